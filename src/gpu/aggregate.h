/* What several devices are together: sums and extremes.
 *
 * Everything is computed from an array of struct device_info. For what is free now and not when the
 * devices were opened, put device_memory() into copies of them first.
 *
 * Unknown is not zero: a device without a measured speed is left out of means, extremes and sums
 * (n_measured and n_rated say how many are in them), and they are invalid when nobody is. A
 * measured 0 counts as not measured. Sums of bytes that do not fit are UINT64_MAX.
 *
 * Shared hardware counts once:
 *  - Memory. Devices of the kinds CPU (software Vulkan too) and integrated GPU live in the host's
 *    memory, of which one may see a smaller part than another: the largest of them counts. A
 *    simulated device counts its own, as
 * if it were real, though what it holds lies in the host's memory too.
 *  - FLOP/s. Devices of the kind CPU are one processor: the fastest of them counts. All others add
 *    up.
 *
 * Pure: no I/O, no allocation, no state. Any thread. */
#pragma once

#include "base/limits.h"
#include "gpu/gpu.h"

struct aggregate_vendor {
    char name[32]; /* "" where the driver does not say */
    uint32_t n_devices;
};

struct aggregate {
    uint32_t n_devices;
    uint32_t n_measured; /* with a decode bandwidth */
    uint32_t n_rated;    /* with FLOP/s */
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    struct reading bandwidth_mb_per_s_mean; /* arithmetic, rounded down */
    struct reading bandwidth_mb_per_s_min;  /* the bottleneck */
    struct reading bandwidth_mb_per_s_max;
    uint32_t slowest,
        fastest; /* indices of these two; the first of equals; 0 when nothing is measured */
    struct reading
        heterogeneity_permille; /* fastest / slowest x 1000, rounded down; 1000: all equally fast */
    struct reading mflops_total;
    uint32_t n_vendors;
    struct aggregate_vendor vendors[LIMIT_DEVICES]; /* in the order of their first device */
};

/* At most LIMIT_DEVICES devices; none gives a zeroed aggregate. */
struct aggregate aggregate_of(const struct device_info *devices, uint32_t n_devices);

/* A few lines, each ended by a newline; "" for no devices. What does not fit is cut off. `devices`
 * are those that it was made of. */
enum { AGGREGATE_TEXT_BYTES = 1024 };
void aggregate_text(const struct aggregate *aggregate, const struct device_info *devices,
                    char *text, size_t size);
