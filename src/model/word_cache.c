#include "model/word_cache.h"

#include "base/mem.h"
#include "base/random.h"

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

enum error_code word_cache_get(const struct word_cache *cache, const char *word, size_t size, bool *found,
                               struct token_list *out, struct error *err)
{
    *found = false;
    if (!cache->places || size > WORD_BYTES_MAX)
        return ERROR_NONE;
    const struct cached_word *place = place_of(cache, word, size);
    if (place->size != size || memcmp(place->word, word, size) != 0)
        return ERROR_NONE;
    *found = true;
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < place->count && !code; i++)
        code = token_list_push(out, place->tokens[i], err);
    return code;
}

void word_cache_put(struct word_cache *cache, const char *word, size_t size, const int32_t *tokens, size_t count)
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
