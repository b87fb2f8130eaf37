#include "model/word_cache.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/work_limit.h"
#include "model/tokenizer_private.h"

#include <string.h>

enum { PLACES = 8192, WORD_BYTES_MAX = 16, TOKENS_MAX = 6 };

struct cached_word {
    uint8_t size, count; /* size 0: empty */
    char word[WORD_BYTES_MAX];
    int32_t tokens[TOKENS_MAX];
};

bool word_cache_init(struct word_cache *cache)
{
    cache->places = mem_new_array(PLACES, sizeof *cache->places);
    return cache->places != NULL;
}

void word_cache_deinit(struct word_cache *cache)
{
    mem_free(cache->places);
    cache->places = NULL;
}

static struct cached_word *place_of(const struct word_cache *cache, const char *word, size_t size)
{
    uint64_t halves[WORD_BYTES_MAX / sizeof(uint64_t)] = {0};
    memcpy(halves, word, size);
    return &cache->places[random_mix(halves[0] ^ random_mix(halves[1] + size)) % PLACES];
}

/* NULL: it is not kept. */
static const struct cached_word *word_cache_get(const struct word_cache *cache, const char *word,
                                                size_t size)
{
    if (!cache->places || size > WORD_BYTES_MAX)
        return NULL;
    const struct cached_word *place = place_of(cache, word, size);
    return place->size == size && memcmp(place->word, word, size) == 0 ? place : NULL;
}

static void word_cache_put(struct word_cache *cache, const char *word, size_t size,
                           const int32_t *tokens, size_t count)
{
    if (!cache->places || size > WORD_BYTES_MAX || count > TOKENS_MAX)
        return;
    struct cached_word *place = place_of(cache, word, size);
    place->size = (uint8_t)size;
    place->count = (uint8_t)count;
    memcpy(place->word, word, size);
    if (count)
        memcpy(place->tokens, tokens, count * sizeof *tokens);
}

enum error_code word_cache_encode(struct word_cache *cache, const char *word, size_t size,
                                  word_encode_fn *encode, void *self, struct token_list *out,
                                  struct error *err)
{
    if (!work_limit_goes_on())
        return tokenizer_given_up(err);
    const struct cached_word *known = word_cache_get(cache, word, size);
    const size_t before = out->count;
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; known && i < known->count && !code; i++)
        code = token_list_push(out, known->tokens[i], err);
    if (known)
        return code;
    code = encode(self, word, size, out, err);
    if (!code)
        word_cache_put(cache, word, size, out->ids + before, out->count - before);
    return code;
}
