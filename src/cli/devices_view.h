/* What `medley devices` shows, gathered once: devices with their readings, the sensors' sources,
 * what it adds up to. */
#pragma once

#include "gpu/aggregate.h"
#include "gpu/gpu.h"
#include "sensors/sensors.h"

enum { DEVICES_SOURCES_MAX = 16 };

struct devices_view {
    const struct gpu *gpu;
    uint32_t n_devices;
    struct device_info infos[LIMIT_DEVICES]; /* with the memory of now */
    struct sensor_sample sample; /* in their order; of a simulated device what it says of itself */
    uint64_t sample_unix_ms;     /* the wall clock at sample.time_ns */
    uint32_t n_sources;
    struct devices_source {
        struct sensor_source source;
        bool is_of_here; /* false: for a GPU of a vendor of which this machine has none */
    } sources[DEVICES_SOURCES_MAX];
    struct aggregate aggregate;
};

/* Takes two samples, a tenth of a second apart: power is the difference of two counters. NULL: no
 * memory. Freed with mem_free(). */
struct devices_view *devices_view_read(const struct gpu *gpu, struct error *err);

const char *devices_kind_name(enum device_kind kind);

void devices_print_text(const struct devices_view *view);
/* False: no memory. */
bool devices_print_json(const struct devices_view *view);
