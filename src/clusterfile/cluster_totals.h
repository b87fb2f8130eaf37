/* What all devices of a cluster are together: sums, extremes, and the best few for a model. For one
 * machine gpu/aggregate.h says the same, by the same rules: devices that live in their host's
 * memory (CPU, integrated) count its memory once, the largest of them; what is not measured is left
 * out, and never zero.
 *
 * Pure: no I/O, no allocation. */
#pragma once

#include "base/buffer.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { TOTALS_VENDORS_MAX = 16, TOTALS_VENDOR_BYTES = 32 };

struct totals_device {
    uint32_t node;      /* which one it is on; devices of one node follow one another */
    const char *vendor; /* NULL or "": not known */
    bool shares_host_memory, has_free;
    uint64_t memory_bytes; /* 0: not known, as the rate */
    uint64_t free_bytes;
    uint64_t decode_bytes_per_s;
};

struct totals_vendor {
    char name[TOTALS_VENDOR_BYTES];
    uint32_t n;
};

struct cluster_totals {
    uint32_t n_devices, n_nodes; /* nodes: that have a device */
    uint32_t n_rated;            /* with a decode rate */
    uint64_t memory_bytes, free_bytes;
    bool has_free; /* of all of them it is known */
    uint64_t decode_bytes_per_s;
    double fastest_to_slowest; /* 0: nobody is rated */
    uint32_t n_vendors;        /* more are left out */
    struct totals_vendor vendors[TOTALS_VENDORS_MAX];
    /* of the links that are measured; 0: none is */
    uint64_t bottleneck_link_bytes_per_s, mean_link_bytes_per_s;
};

struct cluster_totals cluster_totals_of(const struct totals_device *devices, uint32_t n_devices,
                                        const uint64_t *links_bytes_per_s, uint32_t n_links);

/* One sentence for people. */
void cluster_totals_say(const struct cluster_totals *totals, struct buffer *out);

struct totals_link {
    uint32_t from, to;   /* nodes, as in totals_device */
    uint64_t latency_ns; /* one way; 0: not measured */
};

/* Devices whose free memory together has room for so many bytes: their indices, at most `max`. A
 * token takes the time in which each reads its share at its rate, and the way to each node and
 * back. Around each of the TOTALS_STARTS fastest nodes a set grows of devices that are there, or
 * linked to it by what is measured, those first that add the least for a byte, until there is room;
 * the set with the least time is it. 0: none has room, or it is not known. An estimate at a glance:
 * `medley plan` plans. */
enum { TOTALS_STARTS = 8 };
uint32_t cluster_best_devices(const struct totals_device *devices, uint32_t n_devices,
                              const struct totals_link *links, uint32_t n_links, uint64_t bytes,
                              uint32_t *chosen, uint32_t max);
