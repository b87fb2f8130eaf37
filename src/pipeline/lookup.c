#include "pipeline/lookup.h"

static uint32_t lookup_match(const int32_t *tokens, uint32_t end, uint32_t n)
{
    uint32_t length = 0;
    while (length < LOOKUP_MATCH_MAX && length < end &&
           tokens[end - 1 - length] == tokens[n - 1 - length])
        length++;
    return length;
}

uint32_t lookup_find(const int32_t *tokens, uint32_t n, uint32_t *n_match)
{
    uint32_t best = 0, longest = LOOKUP_MATCH_MIN - 1;
    const uint32_t first = n > LOOKUP_DISTANCE_MAX ? n - LOOKUP_DISTANCE_MAX : 1;
    for (uint32_t end = n ? n - 1 : 0; end >= first && longest < LOOKUP_MATCH_MAX; end--) {
        if (tokens[end - 1] != tokens[n - 1])
            continue;
        const uint32_t length = lookup_match(tokens, end, n);
        if (length > longest) {
            longest = length;
            best = end;
        }
    }
    *n_match = best ? longest : 0;
    return best;
}
