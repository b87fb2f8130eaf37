/* What several devices are together: sums, extremes, and which of them to take for a model.
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

/* ---- which devices for a model --------------------------------------------------------------- */

struct aggregate_need {
    uint64_t weight_bytes;
    uint64_t kv_bytes;        /* of the context that is wanted, all sequences */
    uint64_t bytes_per_token; /* of both, what one token reads (a mixture of experts reads less); 0:
                                 all of it */
    uint32_t n_layers;        /* they are taken for equally large; 1 to LIMIT_LAYERS */
};

struct aggregate_choice {
    bool fits;  /* false: no k devices hold it; then the rest is the k that hold most, and ns is
                   unknown */
    bool exact; /* false: found by exchanges, see below */
    uint32_t n_devices;               /* at most k: a device that would get no layer is not in it */
    uint32_t n_unmeasured;            /* of these */
    uint32_t n_layers_left;           /* that found no room; 0 when it fits */
    uint32_t device[LIMIT_DEVICES];   /* indices, measured ones first, fastest first: in this order
                                         they are filled */
    uint32_t n_layers[LIMIT_DEVICES]; /* of each of them */
    struct reading ns_per_token;      /* unknown when an unmeasured device is in it */
};

/* The best k devices: the smallest time for one token of one sequence, to which every layer adds
 * what it takes to read it once, one device after the other:
 *
 *     t = sum over devices of  layers_d x (bytes read per token / layers) / bandwidth_d
 *
 * It is the memory side of the roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009),
 * which binds where a single sequence decodes: every weight is read once for each token and
 * multiplied once. Links, launches and heat are left out: two devices that come out alike may
 * differ by them. (The planner of a running model is plan/plan.c; this is advice on which devices
 * to name.)
 *
 * Of a set of devices the fastest are filled first, as far as their free memory and that of the
 * host they may share go. That is the best for the set: free memory and the host's limit make a
 * polymatroid, for which the greedy order is optimal (Edmonds 1970). The fastest k devices need not
 * be the best k: they may be too small.
 *
 * A device that was not measured is never taken for slow or fast: it is used only for layers that
 * find no room on measured ones; of two sets the one with fewer such layers is better, whatever the
 * times. Among the unmeasured the one with more free memory is filled first. The predicted time is
 * unknown then.
 *
 * Ties go to fewer devices, then always to the same.
 *
 * Up to AGGREGATE_EXACT_MAX devices every set is tried (at most 2^12 sets). Beyond that it begins
 * with the k devices that hold most, so that it fits whenever it can, and exchanges one device for
 * another as long as that helps, AGGREGATE_ROUNDS_MAX times at most: good, not proven best (`exact`
 * is false). */
enum { AGGREGATE_EXACT_MAX = 12, AGGREGATE_ROUNDS_MAX = 64 };
struct aggregate_choice aggregate_best(const struct device_info *devices, uint32_t n_devices,
                                       const struct aggregate_need *need, uint32_t k);
