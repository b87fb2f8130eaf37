#include "metrics/histogram.h"

#include <assert.h>
#include <stdbool.h>

double histogram_limit(enum histogram_scale scale, uint32_t bucket)
{
    static const double ratios[HISTOGRAM_BUCKETS] = {0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95,
                                                     1,   1.05, 1.1, 1.2, 1.5, 2,   4,   8};
    assert(bucket < HISTOGRAM_BUCKETS);
    switch (scale) {
    case HISTOGRAM_SECONDS:
        return 0.0005 * (double)(1u << bucket);
    case HISTOGRAM_LONG_SECONDS:
        return 0.01 * (double)(1u << bucket);
    case HISTOGRAM_RATIO:
        return ratios[bucket];
    }
    assert(false && "a histogram's scale");
    return 0;
}

void histogram_add(struct histogram *histogram, enum histogram_scale scale, double value)
{
    uint32_t i = 0;
    while (i < HISTOGRAM_BUCKETS && value > histogram_limit(scale, i))
        i++;
    histogram->buckets[i]++;
    histogram->count++;
    histogram->sum += value;
}

void histogram_add_ns(struct histogram *histogram, enum histogram_scale scale, uint64_t ns)
{
    histogram_add(histogram, scale, (double)ns * 1e-9);
}
