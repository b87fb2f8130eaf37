#include "precision/divergence.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static const double deviations = 1.959963984540054; /* of 95 % of a normal distribution */

void running_mean_add(struct running_mean *mean, double value)
{
    const double before = value - mean->mean;
    mean->count++;
    mean->mean += before / (double)mean->count;
    mean->squares += before * (value - mean->mean);
}

/* With one value or none there is no deviation to tell: the interval is everything. */
struct estimate running_mean_estimate(const struct running_mean *mean)
{
    if (mean->count < 2)
        return (struct estimate){mean->mean, -INFINITY, INFINITY};
    const double n = (double)mean->count, error = deviations * sqrt(mean->squares / (n - 1) / n);
    return (struct estimate){mean->mean, mean->mean - error, mean->mean + error};
}

struct estimate running_mean_perplexity(const struct running_mean *surprise)
{
    const struct estimate e = running_mean_estimate(surprise);
    return (struct estimate){exp(e.value), exp(e.low), exp(e.high)};
}

/* ---- one row --------------------------------------------------------------------------------- */

static uint32_t row_top(const float *row, uint32_t n_vocab)
{
    uint32_t top = 0;
    for (uint32_t i = 1; i < n_vocab; i++) {
        if (row[i] > row[top])
            top = i;
    }
    return top;
}

/* ln sum exp(row), with the largest taken out so that no exponential overflows. */
static double row_log_sum(const float *row, uint32_t n_vocab)
{
    const double top = (double)row[row_top(row, n_vocab)];
    double sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += exp((double)row[i] - top);
    return top + log(sum);
}

double row_surprise(const float *row, uint32_t n_vocab, uint32_t token)
{
    assert(token < n_vocab);
    return row_log_sum(row, n_vocab) - (double)row[token];
}

/* ---- positions ------------------------------------------------------------------------------- */

void divergence_deinit(struct divergence *divergence)
{
    mem_free(divergence->kls);
    *divergence = (struct divergence){0};
}

static bool divergence_grow(struct divergence *divergence)
{
    if (divergence->kl.count < divergence->capacity)
        return true;
    const uint64_t capacity = divergence->capacity ? 2 * divergence->capacity : 1024;
    double *kls = mem_resize(divergence->kls, capacity, sizeof *kls);
    if (!kls)
        return false;
    divergence->kls = kls;
    divergence->capacity = capacity;
    return true;
}

enum error_code divergence_add(struct divergence *divergence, const float *a, const float *b,
                               uint32_t n_vocab, uint32_t token, struct error *err)
{
    const double log_a = row_log_sum(a, n_vocab), log_b = row_log_sum(b, n_vocab);
    double kl = 0, squares = 0, largest = divergence->error_max;
    assert(token < n_vocab);
    for (uint32_t i = 0; i < n_vocab; i++) {
        const double log_p = (double)a[i] - log_a, log_q = (double)b[i] - log_b,
                     error = (double)b[i] - (double)a[i];
        kl += exp(log_p) * (log_p - log_q);
        squares += error * error;
        largest = fabs(error) > largest ? fabs(error) : largest;
    }
    if (!isfinite(kl) || !isfinite(squares))
        return error_set(err, ERROR_INVALID, "a logit is infinite or not a number");
    if (!divergence_grow(divergence))
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to compare so much text");
    kl = kl > 0 ? kl : 0; /* it cannot be less; rounding can */
    divergence->kls[divergence->kl.count] = kl;
    running_mean_add(&divergence->kl, kl);
    running_mean_add(&divergence->surprise_a, log_a - (double)a[token]);
    running_mean_add(&divergence->surprise_b, log_b - (double)b[token]);
    divergence->n_same_top += row_top(a, n_vocab) == row_top(b, n_vocab);
    divergence->error_squares += squares;
    divergence->error_max = largest;
    divergence->n_logits += n_vocab;
    return ERROR_NONE;
}

/* ---- the summary ----------------------------------------------------------------------------- */

static int divergence_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value of a rank that counts from 1 and may lie outside. */
static double value_at_rank(const double *sorted, uint64_t n, double rank)
{
    if (rank < 1)
        return sorted[0];
    return rank >= (double)n ? sorted[n - 1] : sorted[(uint64_t)rank - 1];
}

static struct estimate quantile_estimate(const double *sorted, uint64_t n, double p)
{
    const double rank = p * (double)n, error = deviations * sqrt(p * (1 - p) * (double)n);
    return (struct estimate){
        value_at_rank(sorted, n, ceil(rank)),
        value_at_rank(sorted, n, floor(rank - error)),
        value_at_rank(sorted, n, ceil(rank + error) + 1),
    };
}

static struct estimate share_estimate(uint64_t hits, uint64_t n)
{
    const double share = (double)hits / (double)n, z = deviations, m = (double)n,
                 centre = (share + z * z / (2 * m)) / (1 + z * z / m),
                 error = z / (1 + z * z / m) * sqrt(share * (1 - share) / m + z * z / (4 * m * m));
    const double low = centre - error, high = centre + error;
    return (struct estimate){share, low > 0 ? low : 0, high < 1 ? high : 1};
}

void divergence_summarise(struct divergence *divergence, struct divergence_summary *out)
{
    const uint64_t n = divergence->kl.count;
    *out = (struct divergence_summary){.n_positions = n};
    if (n == 0)
        return;
    qsort(divergence->kls, n, sizeof *divergence->kls, divergence_order);
    out->kl_mean = running_mean_estimate(&divergence->kl);
    out->kl_mean.low = out->kl_mean.low > 0 ? out->kl_mean.low : 0;
    out->kl_median = quantile_estimate(divergence->kls, n, 0.5);
    out->kl_p99 = quantile_estimate(divergence->kls, n, 0.99);
    out->same_top = share_estimate(divergence->n_same_top, n);
    out->perplexity_a = running_mean_perplexity(&divergence->surprise_a);
    out->perplexity_b = running_mean_perplexity(&divergence->surprise_b);
    out->logit_error_rms = sqrt(divergence->error_squares / (double)divergence->n_logits);
    out->logit_error_max = divergence->error_max;
}
