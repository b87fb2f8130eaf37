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

#include <stddef.h>
#include <stdint.h>

struct logit_bias {
    int32_t token;
    float bias;
};

struct sampler_params {
    float temperature;       /* 0: greedy */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 1: off */
    float min_p;             /* 0: off */
    float typical_p;         /* 1: off */
    float repeat_penalty;    /* 1: off */
    float frequency_penalty; /* 0: off */
    float presence_penalty;  /* 0: off */
    uint32_t penalty_last_n; /* tokens looked back at; 0: all */
    uint64_t seed;
    const struct logit_bias *biases; /* the caller's, must outlive the use */
    uint32_t n_biases;
};

/* temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, nothing else, seed 0. */
struct sampler_params sampler_defaults(void);

/* Checks ranges; the error names the field: temperature 0 to 100, probabilities 0 to 1 (top_p and
 * typical_p 0 keep one token), repeat_penalty 0.01 to 100, frequency and presence -2 to 2, biases
 * -100 to 100 on tokens of the vocabulary, at most LIMIT_LOGIT_BIAS. The functions below assert
 * it. */
enum error_code sampler_check(const struct sampler_params *params, uint32_t n_vocab,
                              struct error *err);

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
