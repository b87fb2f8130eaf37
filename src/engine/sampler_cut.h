/* The cuts of the sampler: which candidates stay.
 *
 * A list of candidates is keys of sampler_select.h, best first, never empty. Each cut takes the
 * softmax over the list it is given, keeps a part of it in place, still best first, and returns how
 * many: at least 1. Papers: see sampler.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The shortest run of best tokens that holds top_p of the probability. */
size_t cut_top_p(uint64_t *keys, size_t n, float top_p);

/* The tokens with at least min_p times the probability of the best. */
size_t cut_min_p(const uint64_t *keys, size_t n, float min_p);

/* The tokens whose information is nearest to the entropy, as many as hold typical_p of the
 * probability. `logits` is what the ids index; `scratch` has room for n. */
size_t cut_typical(uint64_t *keys, uint64_t *scratch, size_t n, float typical_p,
                   const float *logits);

/* cut_top_p and cut_min_p over a whole vocabulary, without sorting more of it than is kept:
 * `max` is its largest logit; `keys` and `scratch` have room for n_vocab. */
size_t cut_all(const float *logits, uint32_t n_vocab, float max, float top_p, float min_p,
               uint64_t *keys, uint64_t *scratch);
