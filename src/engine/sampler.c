#include "engine/sampler.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"
#include "engine/sampler_cut.h"
#include "engine/sampler_select.h"
#include "model/picture.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

struct sampler {
    uint32_t n_vocab;
    float *logits;     /* n_vocab: the caller's, with bias and penalties */
    uint64_t *keys;    /* n_vocab: the candidates, best first */
    uint64_t *scratch; /* n_vocab */
    uint32_t *counts;  /* n_vocab: how often a token stands in the history; all 0 between calls */
};

enum error_code sampler_new(uint32_t n_vocab, struct sampler **out, struct error *err)
{
    *out = NULL;
    if (n_vocab == 0 || n_vocab > LIMIT_VOCAB)
        return error_set(err, ERROR_INVALID, "sampler: a vocabulary of %u tokens (at most %d)",
                         n_vocab, LIMIT_VOCAB);
    struct sampler *sampler = mem_new(sizeof *sampler);
    if (!sampler)
        goto no_memory;
    sampler->n_vocab = n_vocab;
    sampler->logits = mem_new_array(n_vocab, sizeof *sampler->logits);
    sampler->keys = mem_new_array(n_vocab, sizeof *sampler->keys);
    sampler->scratch = mem_new_array(n_vocab, sizeof *sampler->scratch);
    sampler->counts = mem_new_array(n_vocab, sizeof *sampler->counts);
    if (!sampler->logits || !sampler->keys || !sampler->scratch || !sampler->counts)
        goto no_memory;
    *out = sampler;
    return ERROR_NONE;

no_memory:
    sampler_free(sampler);
    return error_set(err, ERROR_NO_MEMORY,
                     "sampler: not enough memory for a vocabulary of %u tokens", n_vocab);
}

void sampler_free(struct sampler *sampler)
{
    if (!sampler)
        return;
    mem_free(sampler->logits);
    mem_free(sampler->keys);
    mem_free(sampler->scratch);
    mem_free(sampler->counts);
    mem_free(sampler);
}

/* ---- from raw logits to biased, penalised ones ---- */

/* In integers, because the compiler will not make vector code of choices between floats that may
 * trap. */
static inline float tame(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits & 0x7fffffffu) > 0x7f800000u ? 0xff800000u : bits; /* NaN to -inf */
    bits = bits == 0x7f800000u ? 0x7f7fffffu : bits;                /* +inf to FLT_MAX */
    bits = bits == 0x80000000u ? 0 : bits; /* -0 to +0, which the order of keys tells apart */
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void copy_tamed(float *restrict to, const float *restrict from, uint32_t n)
{
    enum {
        LANES = 16
    }; /* a loop of fixed length is what the compiler makes vector code of at -O2 */
    for (; n >= LANES; n -= LANES, to += LANES, from += LANES) {
        for (int j = 0; j < LANES; j++)
            to[j] = tame(from[j]);
    }
    for (; n > 0; n--)
        *to++ = tame(*from++);
}

/* Keeps a candidate a candidate: arithmetic on a finite logit must not make it infinite. */
static float bounded(double x)
{
    return (float)(x > (double)FLT_MAX    ? (double)FLT_MAX
                   : x < -(double)FLT_MAX ? -(double)FLT_MAX
                                          : x);
}

static bool forces_any(const struct sampler_params *params)
{
    for (uint32_t i = 0; i < params->n_biases; i++) {
        if (params->biases[i].bias >= SAMPLER_BIAS_MAX)
            return true;
    }
    return false;
}

static void apply_biases(struct sampler *sampler, const struct sampler_params *params,
                         const float *logits)
{
    bool forced = forces_any(params);
    for (uint32_t i = 0; forced && i < sampler->n_vocab; i++)
        sampler->logits[i] = -INFINITY;
    for (uint32_t i = 0; i < params->n_biases; i++) {
        int32_t token = params->biases[i].token;
        float bias = params->biases[i].bias;
        assert(token >= 0 && (uint32_t)token < sampler->n_vocab); /* sampler_check saw to it */
        float *x = &sampler->logits[token];
        if (bias >= SAMPLER_BIAS_MAX)
            *x = bounded((double)tame(logits[token]));
        else if (*x > -INFINITY)
            *x = bounded((double)*x + (double)bias);
    }
    for (uint32_t i = 0; i < params->n_biases; i++) {
        if (params->biases[i].bias <= -SAMPLER_BIAS_MAX)
            sampler->logits[params->biases[i].token] = -INFINITY;
    }
}

static bool penalises(const struct sampler_params *params)
{
    return params->repeat_penalty != 1.0f || params->frequency_penalty != 0.0f ||
           params->presence_penalty != 0.0f;
}

static float penalised(float x, uint32_t count, const struct sampler_params *params)
{
    if (x == -INFINITY)
        return x;
    double repeat = (double)params->repeat_penalty;
    double y = x > 0 ? (double)x / repeat : (double)x * repeat;
    return bounded(y - (double)count * (double)params->frequency_penalty -
                   (double)params->presence_penalty);
}

static void apply_penalties(struct sampler *sampler, const struct sampler_params *params,
                            const int32_t *history, size_t n_history)
{
    if (params->penalty_last_n && params->penalty_last_n < n_history) {
        history += n_history - params->penalty_last_n;
        n_history = params->penalty_last_n;
    }
    for (size_t i = 0; i < n_history; i++) {
        if (history[i] >= PICTURE_TOKEN_FIRST)
            continue;
        assert(history[i] >= 0 && (uint32_t)history[i] < sampler->n_vocab);
        sampler->counts[history[i]]++;
    }
    for (size_t i = 0; i < n_history; i++) {
        if (history[i] >= PICTURE_TOKEN_FIRST)
            continue;
        uint32_t *count = &sampler->counts[history[i]];
        if (*count)
            sampler->logits[history[i]] = penalised(sampler->logits[history[i]], *count, params);
        *count = 0;
    }
}

/* ---- from logits to candidates to one token ---- */

static bool filters(const struct sampler_params *params)
{
    return params->top_k || params->typical_p < 1 || params->top_p < 1 || params->min_p > 0;
}

/* Fills sampler->keys, best first, and returns how many; at least 1. `max` is the largest logit,
 * above -inf. */
static size_t candidates(struct sampler *sampler, const struct sampler_params *params, float max)
{
    uint64_t *keys = sampler->keys, *scratch = sampler->scratch;
    uint32_t n_vocab = sampler->n_vocab;
    bool all = params->top_k == 0 || params->top_k >= n_vocab;
    if (all && params->typical_p >= 1)
        return cut_all(sampler->logits, n_vocab, max, params->top_p, params->min_p, keys, scratch);
    size_t n = select_top(sampler->logits, n_vocab, all ? n_vocab : params->top_k, keys, scratch);
    if (params->typical_p < 1)
        n = cut_typical(keys, scratch, n, params->typical_p, sampler->logits);
    if (params->top_p < 1)
        n = cut_top_p(keys, n, params->top_p);
    if (params->min_p > 0)
        n = cut_min_p(keys, n, params->min_p);
    return n;
}

static int32_t sampler_draw(const uint64_t *keys, size_t n, float scale, double unit)
{
    float max = key_value(keys[0]);
    double sum = 0, part = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)select_exp((key_value(keys[i]) - max) * scale);
    for (size_t i = 0; i < n; i++) {
        part += (double)select_exp((key_value(keys[i]) - max) * scale);
        if (part > unit * sum)
            return (int32_t)key_id(keys[i]);
    }
    return (int32_t)key_id(keys[0]); /* not reached: unit < 1 and both sums are the same */
}

int32_t sampler_pick(struct sampler *sampler, const struct sampler_params *params,
                     const float *logits, const int32_t *history, size_t n_history,
                     uint64_t position)
{
    bool greedy = params->temperature == 0, changed = params->n_biases || penalises(params);
    if (greedy && !changed)
        return (int32_t)select_argmax(logits, sampler->n_vocab);
    copy_tamed(sampler->logits, logits, sampler->n_vocab);
    if (params->n_biases)
        apply_biases(sampler, params, logits);
    if (penalises(params))
        apply_penalties(sampler, params, history, n_history);
    if (greedy)
        return (int32_t)select_argmax(sampler->logits, sampler->n_vocab);

    float max = select_max(sampler->logits, sampler->n_vocab);
    if (max == -INFINITY)
        return 0;
    double unit = random_unit_at(params->seed, position);
    /* Bounded, because 0 * inf would be NaN where a logit is the largest. */
    float scale = bounded(1.0 / (double)params->temperature);
    if (filters(params))
        return sampler_draw(sampler->keys, candidates(sampler, params, max), scale, unit);
    double sum = select_exp_sum(sampler->logits, sampler->n_vocab, max, scale);
    return (int32_t)select_exp_walk(sampler->logits, sampler->n_vocab, max, scale, unit * sum);
}

float sampler_logprobs(struct sampler *sampler, const float *logits, int32_t chosen,
                       struct token_logprob *top, uint32_t n_top)
{
    assert(chosen >= 0 && (uint32_t)chosen < sampler->n_vocab);
    assert(n_top <= sampler->n_vocab);
    copy_tamed(sampler->logits, logits, sampler->n_vocab);
    const float *x = sampler->logits;
    float max = select_max(x, sampler->n_vocab);
    double log_sum = max > -INFINITY ? log(select_exp_sum(x, sampler->n_vocab, max, 1)) : 0;
    max = max > -INFINITY ? max : 0;
    size_t n = select_top(x, sampler->n_vocab, n_top, sampler->keys, sampler->scratch);
    for (uint32_t i = 0; i < n_top; i++) {
        bool there = i < n; /* fewer than n_top logits may be above -inf */
        float value = there ? key_value(sampler->keys[i]) : -INFINITY;
        top[i].token = there ? (int32_t)key_id(sampler->keys[i]) : -1;
        top[i].logprob = (float)((double)value - (double)max - log_sum);
    }
    return (float)((double)x[chosen] - (double)max - log_sum);
}
