/* From samples to figures. Pure. */
#pragma once

#include "gpu/gpu.h"

/* The median of the samples, and their spread: 1.4826 × the median absolute deviation, relative to
 * the median. For a normal distribution that is its standard deviation, and unlike that it does not
 * see a few outliers (Rousseeuw and Croux, "Alternatives to the Median Absolute Deviation", JASA
 * 88, 1993). Sorts the samples. Samples that are not finite or not positive are left out; where
 * none is left, nothing was measured. */
struct device_measurement measurement_of(double *samples, uint32_t count);

/* The part of `work` (bytes, FLOP) done in a second, from times in ns: the median rate. */
struct device_measurement measurement_rate(double *times_ns, uint32_t count, double work);

struct calibration_summary {
    struct reading bandwidth_mb_per_s; /* the faster of q4_0 and q8_0; 10^6 bytes */
    struct reading peak_mflops;        /* the fastest type */
};
struct calibration_summary calibration_summarize(const struct device_calibration *calibration);

/* How many rows a product should have so that it takes about `target_ns`, when `rows` of them took
 * `took_ns`: a power of two times `rows`, at most `max`. */
uint32_t calibration_grow(uint32_t rows, double took_ns, double target_ns, uint32_t max);
