/* The tokens of words seen lately: text repeats its words, and looking one up is far cheaper than
 * merging it again. One place a hash, the latest word in each; long words are not kept. For the
 * length of one tokenizer_encode(), so of one thread. Zeroed is empty and keeps nothing. */
#pragma once

#include "model/tokenizer.h"

struct word_cache {
    struct cached_word *places;
};

bool word_cache_init(struct word_cache *cache); /* false: out of memory */
void word_cache_deinit(struct word_cache *cache);

/* Appends the tokens of the word: those that it had lately, else those that `encode` appends. */
typedef enum error_code word_encode_fn(void *self, const char *word, size_t size,
                                       struct token_list *out, struct error *err);
enum error_code word_cache_encode(struct word_cache *cache, const char *word, size_t size,
                                  word_encode_fn *encode, void *self, struct token_list *out,
                                  struct error *err);
