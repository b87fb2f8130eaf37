/* From logits to a token.
 *
 * The order is: logit bias, penalties, then top-k, typical, top-p, min-p, each on the softmax
 * (at temperature 1) over what the step before left, then temperature, then one draw.
 * Temperature 0 is greedy: the largest logit, the lowest id on a tie. The draw for the token
 * at `position` uses random_unit_at(seed, position) alone, so that any point of a sequence
 * can be replayed.
 *
 * A bias is added to its logit; -100 forbids the token, +100 forces it: when any token has
 * +100, only such tokens are candidates. The penalties see the last penalty_last_n tokens of
 * the history, prompt included: repeat_penalty divides a positive logit and multiplies a
 * negative one, once; then frequency_penalty times the count and presence_penalty are taken off.
 *
 * A NaN logit counts as -inf, which is never chosen; +inf as the largest float. Where no token
 * has a logit above -inf, the answer is token 0.
 *
 * Sources: top-p (Holtzman et al. 2020, arXiv:1904.09751), typical (Meister et al. 2022,
 * arXiv:2202.00666), min-p (Nguyen et al. 2024, arXiv:2407.01082), repetition penalty
 * (Keskar et al. 2019, arXiv:1909.05858), frequency and presence penalties (OpenAI API).
 *
 * A sampler owns scratch memory for one vocabulary: no allocation per token. One thread at a
 * time. */
#pragma once

#include "base/error.h"
#include "engine/sampler_params.h"

#include <stddef.h>
#include <stdint.h>

struct sampler;
enum error_code sampler_new(uint32_t n_vocab, struct sampler **out, struct error *err);
void sampler_free(struct sampler *sampler);

struct token_logprob {
    int32_t token;
    float logprob; /* natural logarithm, of the softmax of the raw logits */
};

/* Chooses the token that will stand at `position`. `logits` has n_vocab values and is not changed.
 * `history` holds the sequence so far, prompt included, all of the vocabulary; it may be NULL when
 * n_history is 0 or no penalty is on. */
int32_t sampler_pick(struct sampler *sampler, const struct sampler_params *params,
                     const float *logits, const int32_t *history, size_t n_history,
                     uint64_t position);

/* The log-probability of `chosen`, and the `n_top` most probable tokens, best first (n_top at most
 * n_vocab; where fewer than that have a logit above -inf, the rest get token -1 and -inf). */
float sampler_logprobs(struct sampler *sampler, const float *logits, int32_t chosen,
                       struct token_logprob *top, uint32_t n_top);
