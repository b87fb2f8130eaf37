#include "engine/sampler_cut.h"

#include "engine/sampler_select.h"

#include <assert.h>
#include <float.h>
#include <math.h>

static float weight_of(uint64_t key, float max)
{
    return select_exp(key_value(key) - max);
}

static double weight_sum(const uint64_t *keys, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)weight_of(keys[i], key_value(keys[0]));
    return sum;
}

/* The smallest logit that min_p keeps. */
static float min_p_floor(float max, float min_p)
{
    double floor = min_p > 0 ? (double)max + log((double)min_p) : -(double)FLT_MAX;
    return (float)fmax(floor, -(double)FLT_MAX);
}

size_t cut_top_p(uint64_t *keys, size_t n, float top_p)
{
    assert(n > 0);
    double enough = (double)top_p * weight_sum(keys, n), sum = 0;
    float max = key_value(keys[0]);
    for (size_t i = 0; i < n; i++) {
        sum += (double)weight_of(keys[i], max);
        if (sum >= enough)
            return i + 1;
    }
    return n;
}

size_t cut_min_p(const uint64_t *keys, size_t n, float min_p)
{
    assert(n > 0);
    float floor = min_p_floor(key_value(keys[0]), min_p);
    size_t kept = 1;
    while (kept < n && key_value(keys[kept]) >= floor)
        kept++;
    return kept;
}

size_t cut_typical(uint64_t *keys, uint64_t *scratch, size_t n, float typical_p,
                   const float *logits)
{
    assert(n > 0);
    float max = key_value(keys[0]);
    double total = weight_sum(keys, n), log_total = log(total), entropy = 0;
    for (size_t i = 0; i < n; i++) {
        float weight = weight_of(keys[i], max); /* 0 ln 0 = 0 */
        if (weight > 0)
            entropy +=
                (double)weight / total * (log_total - ((double)key_value(keys[i]) - (double)max));
    }
    for (size_t i = 0; i < n; i++) {
        double information = log_total - ((double)key_value(keys[i]) - (double)max);
        double distance = fmin(fabs(information - entropy), (double)FLT_MAX);
        keys[i] = key_of(-(float)distance, key_id(keys[i]));
    }
    select_sort(keys, scratch, n);
    double sum = 0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || sum < (double)typical_p * total)) {
        float value = logits[key_id(keys[kept])];
        sum += (double)select_exp(value - max);
        keys[kept] = key_of(value, key_id(keys[kept]));
        kept++;
    }
    select_sort(keys, scratch, kept);
    return kept;
}

size_t cut_all(const float *logits, uint32_t n_vocab, float max, float top_p, float min_p,
               uint64_t *keys, uint64_t *scratch)
{
    assert(max >= -FLT_MAX && max <= FLT_MAX);
    float floor = min_p_floor(max, min_p);
    double enough = (double)INFINITY, total;
    if (top_p < 1) {
        floor = fmaxf(floor, select_mass_floor(logits, n_vocab, max, (double)top_p, &total));
        enough = (double)top_p * total;
    }
    size_t n = select_from(logits, n_vocab, floor, keys);
    select_sort(keys, scratch, n);
    double sum = 0;
    for (size_t i = 0; i < n && top_p < 1; i++) {
        sum += (double)weight_of(keys[i], max);
        if (sum >= enough)
            return i + 1;
    }
    return n;
}
