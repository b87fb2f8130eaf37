#include "gpu/calibration_statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int calibration_statistics_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median_of_sorted(const double *sorted, uint32_t count)
{
    return count % 2 ? sorted[count / 2]
                     : sorted[count / 2 - 1] + (sorted[count / 2] - sorted[count / 2 - 1]) / 2;
}

struct device_measurement measurement_of(double *samples, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (isfinite(samples[i]) && samples[i] > 0)
            samples[n++] = samples[i];
    }
    if (n == 0)
        return (struct device_measurement){0};
    qsort(samples, n, sizeof *samples, calibration_statistics_compare);
    double median = median_of_sorted(samples, n);
    for (uint32_t i = 0; i < n; i++)
        samples[i] = fabs(samples[i] - median);
    qsort(samples, n, sizeof *samples, calibration_statistics_compare);
    return (struct device_measurement){
        .median = median, .spread = 1.4826 * median_of_sorted(samples, n) / median, .n_runs = n};
}

struct device_measurement measurement_rate(double *times_ns, uint32_t count, double work)
{
    for (uint32_t i = 0; i < count; i++)
        times_ns[i] = times_ns[i] > 0 ? work / times_ns[i] * 1e9 : 0;
    return measurement_of(times_ns, count);
}

struct calibration_summary calibration_summarize(const struct device_calibration *calibration)
{
    double bandwidth = 0, flops = 0;
    for (uint32_t i = 0; i < calibration->n_types; i++) {
        const struct calibration_type *type = &calibration->types[i];
        bool counts = strcmp(type->name, "q4_0") == 0 || strcmp(type->name, "q8_0") == 0;
        if (counts && type->decode_bytes_per_s.n_runs &&
            type->decode_bytes_per_s.median > bandwidth)
            bandwidth = type->decode_bytes_per_s.median;
        if (type->prefill_flops.n_runs && type->prefill_flops.median > flops)
            flops = type->prefill_flops.median;
    }
    return (struct calibration_summary){
        .bandwidth_mb_per_s = reading_of(UNIT_MB_PER_S, floor(bandwidth * 1e-6)),
        .peak_mflops = reading_of(UNIT_MFLOPS, floor(flops * 1e-6))};
}

uint32_t calibration_grow(uint32_t rows, double took_ns, double target_ns, uint32_t max)
{
    while (rows <= max / 2 && took_ns * 2 <= target_ns) {
        rows *= 2;
        took_ns *= 2;
    }
    return rows;
}
