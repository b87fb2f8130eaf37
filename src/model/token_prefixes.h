/* Which tokens a text begins with: the tokens in order of their bytes, walked one byte after the
 * other.
 *
 *     struct prefix_walk walk = token_prefixes_walk(&prefixes);
 *     while (at < size && prefix_walk_step(&prefixes, &walk, text[at++], &token))
 *         if (token >= 0) … text[0 .. at - 1] is that token …
 *
 * A step takes the logarithm of the number of tokens. Read-only after init: any thread. */
#pragma once

#include "model/text_table.h"

#include <stdbool.h>

struct token_prefixes { /* zeroed: none */
    const struct text_table *texts;
    uint32_t *by_text; /* owned */
    uint32_t count;
};

/* Of tokens below n_tokens those that are `wanted` (NULL: all). `texts` must outlive it. False: no
 * memory. */
bool token_prefixes_init(struct token_prefixes *prefixes, const struct text_table *texts,
                         uint32_t n_tokens, const bool *wanted);
void token_prefixes_deinit(struct token_prefixes *prefixes);

struct prefix_walk { /* tokens that begin with the bytes so far */
    uint32_t low, high;
    size_t depth;
};
struct prefix_walk token_prefixes_walk(const struct token_prefixes *prefixes);
/* False: no token begins so. *token: the one that is these bytes, or -1. */
bool prefix_walk_step(const struct token_prefixes *prefixes, struct prefix_walk *walk, char byte,
                      int32_t *token);
