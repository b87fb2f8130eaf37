/* The sampler's filters once more, slowly and in double precision: what the real ones are compared
 * with. */
#pragma once

#include "engine/sampler.h"

#include <stddef.h>
#include <stdint.h>

struct candidate {
    int32_t id;
    double x, p, distance; /* the logit; the probability; from the entropy, for typical sampling */
};

int candidate_better(const void *a,
                     const void *b); /* for qsort(): the larger logit first, then the lower id */

/* The candidates that `params` leave of `logits`, with the probability of each to be drawn, best
 * first; `list` has room for n_vocab. Returns how many. */
size_t sampler_reference(const float *logits, uint32_t n_vocab, const struct sampler_params *params,
                         struct candidate *list);
