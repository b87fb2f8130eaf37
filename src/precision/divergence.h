/* How far a model's predictions are from another's, and from a text: perplexity, Kullback-Leibler
 * divergence, logit error, agreement; each with an interval. Pure.
 *
 * One position is one prediction: a row of logits, n_vocab of them, and the token that follows in
 * the text. With p = softmax(row): -ln p(token) is the position's surprise, and perplexity is
 * exp(mean surprise). With q from the other model's row, D(p || q) = sum p ln(p/q), in nats (S.
 * Kullback, R. A. Leibler, On Information and Sufficiency, 1951).
 *
 * Intervals are of 95 %, and treat positions as independent, which neighbours are not quite:
 *   means        mean ± 1.96 s / sqrt(n); of perplexity, the exponential of that
 *   quantile p   between the values of rank np ± 1.96 sqrt(np(1-p)) (Conover, Practical
 *                Nonparametric Statistics, 3.2), whatever the distribution
 *   share        Wilson's (1927) */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct estimate {
    double value, low, high;
};

/* A mean from what is added: count, sum and sum of squares of differences from the mean so far
 * (Welford 1962). */
struct running_mean {
    uint64_t count;
    double mean, squares;
};
void running_mean_add(struct running_mean *mean, double value);
struct estimate running_mean_estimate(const struct running_mean *mean);
/* exp() of all three. */
struct estimate running_mean_perplexity(const struct running_mean *surprise);

/* -ln of the probability that the row gives to `token`. Infinite or NaN logits give NaN. */
double row_surprise(const float *row, uint32_t n_vocab, uint32_t token);

/* All zero: nothing compared yet. */
struct divergence {
    struct running_mean surprise_a, surprise_b; /* of the model that is measured against, and of
                                                   the other */
    struct running_mean kl;
    double *kls; /* of each position, for the quantiles */
    uint64_t capacity;
    uint64_t n_same_top;             /* positions at which both think the same token likeliest */
    double error_squares, error_max; /* of logits */
    uint64_t n_logits;
};
void divergence_deinit(struct divergence *divergence);

/* One position. ERROR_INVALID: a logit is not finite. ERROR_NO_MEMORY. */
enum error_code divergence_add(struct divergence *divergence, const float *a, const float *b,
                               uint32_t n_vocab, uint32_t token, struct error *err);

struct divergence_summary {
    uint64_t n_positions;
    struct estimate kl_mean, kl_median, kl_p99;
    struct estimate same_top; /* share of positions, 0 to 1 */
    struct estimate perplexity_a, perplexity_b;
    double logit_error_rms, logit_error_max;
};
/* Sorts the positions' divergences. */
void divergence_summarise(struct divergence *divergence, struct divergence_summary *out);
