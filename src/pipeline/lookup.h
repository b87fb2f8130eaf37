/* Prompt lookup: where a text goes on as it went on before (Saxena 2023, "Prompt Lookup Decoding").
 * Code that is edited, a summary with quotes and JSON repeat what stands above. Pure. */
#pragma once

#include <stdint.h>

enum {
    LOOKUP_MATCH_MIN = 2,         /* tokens; one alone says too little */
    LOOKUP_MATCH_MAX = 24,        /* a longer match is as good */
    LOOKUP_DISTANCE_MAX = 1 << 15 /* tokens back: bounds what a token costs */
};

/* Searches the n tokens for the place, other than their end, that ends with the longest run of the
 * same tokens as they do; the latest of several. Returns the index of the token that followed
 * there, which is less than n, and *n_match, the length of the run; 0: there is none. */
uint32_t lookup_find(const int32_t *tokens, uint32_t n, uint32_t *n_match);
