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

/* Appends the tokens of the word and sets *found, or leaves it false. */
enum error_code word_cache_get(const struct word_cache *cache, const char *word, size_t size, bool *found,
                               struct token_list *out, struct error *err);
void word_cache_put(struct word_cache *cache, const char *word, size_t size, const int32_t *tokens, size_t count);
