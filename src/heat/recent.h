/* The last minute of one device's readings, for people: a ring of one a period, oldest dropped
 * first. Where a period has no sample (the machine slept, the thread came late) it has none here
 * either. Zeroed memory is empty. Pure; one thread. */
#pragma once

#include "sensors/sensors.h"

enum { RECENT_SAMPLES = 120 };

/* Unknown: NAN. */
struct recent_sample {
    uint64_t time_ns;
    float temperature_c, use_share, power_w, clock_mhz, free_bytes;
};

struct recent {
    struct recent_sample samples[RECENT_SAMPLES];
    uint32_t n; /* ever */
};

void recent_add(struct recent *recent, uint64_t time_ns, const struct sensor_device *readings);

/* One a period up to the newest, which is the last; unknown where there is none, and before the
 * first. Of two in one period the later counts. Returns the newest's time; 0: there is none. */
uint64_t recent_list(const struct recent *recent, uint32_t period_ms,
                     struct recent_sample out[static RECENT_SAMPLES]);
