/* How often something took how long: counts in buckets with fixed limits. Pure; a zeroed one is
 * empty. */
#pragma once

#include <stdint.h>

enum { HISTOGRAM_BUCKETS = 16 };

enum histogram_scale {
    HISTOGRAM_SECONDS,      /* 0.5 ms doubling to 16 s: a token of a small model, and the prefill of
                               a large one */
    HISTOGRAM_LONG_SECONDS, /* 10 ms doubling to 5.5 min: whole requests */
    HISTOGRAM_RATIO,        /* around 1 */
};

struct histogram {
    uint64_t buckets[HISTOGRAM_BUCKETS + 1]; /* not cumulative; the last is for what is larger */
    uint64_t count;
    double sum;
};

double histogram_limit(enum histogram_scale scale, uint32_t bucket);
void histogram_add(struct histogram *histogram, enum histogram_scale scale, double value);
void histogram_add_ns(struct histogram *histogram, enum histogram_scale scale, uint64_t ns);
