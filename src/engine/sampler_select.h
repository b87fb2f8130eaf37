/* The sums and partial sorts that the sampler makes over a vocabulary's logits.
 *
 * A candidate is one 64-bit key: the logit in the upper half, so coded that the larger logit
 * has the smaller key, and the token id in the lower. Ordinary integer order is then "best
 * first, lowest id on a tie", and nothing here compares floats and ids apart.
 *
 * `argmax` takes any floats: a NaN is never the largest. All else wants logits without NaN
 * and +inf; -inf means "not a candidate". */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t key_of(float value, uint32_t id)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)~ascending << 32 | id;
}

static inline uint32_t key_id(uint64_t key)
{
    return (uint32_t)key;
}

static inline float key_value(uint64_t key)
{
    uint32_t ascending = ~(uint32_t)(key >> 32);
    uint32_t bits = ascending & 0x80000000u ? ascending & 0x7fffffffu : ~ascending;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(x) for x <= 0 to 2e-7 relative; 0 below -87. Branch-free, so loops over it vectorise. */
float select_exp(float x);

/* The first index of the largest value; 0 when there is none above -inf. */
uint32_t select_argmax(const float *x, uint32_t n);

/* -inf for n = 0. */
float select_max(const float *x, uint32_t n);

/* The sum of exp((x - max) * scale). */
double select_exp_sum(const float *x, uint32_t n, float max, float scale);

/* The first index at which the running sum of exp((x - max) * scale) exceeds `target`; the last
 * index of a positive weight when rounding lets the target stand above the whole sum. */
uint32_t select_exp_walk(const float *x, uint32_t n, float max, float scale, double target);

/* A value such that the x at or above it hold at least `part` of the sum of exp(x - max), and not
 * much more; -FLT_MAX when that takes nearly all. *total is that sum. */
float select_mass_floor(const float *x, uint32_t n, float max, double part, double *total);

/* Writes the keys of all x >= low, which is above -inf, in order of id; returns how many. `keys`
 * has room for n. */
size_t select_from(const float *x, uint32_t n, float low, uint64_t *keys);

/* Best first; equal values stay in the order in which they came. `scratch` has room for n keys. */
void select_sort(uint64_t *keys, uint64_t *scratch, size_t n);

/* The k best (fewer when fewer are above -inf), best first, lowest id on a tie. `keys` and
 * `scratch` have room for n.
 */
size_t select_top(const float *x, uint32_t n, uint32_t k, uint64_t *keys, uint64_t *scratch);
