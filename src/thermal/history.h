/* The last minute of a device: a ring of samples, oldest dropped first.
 *
 * Sized for a sample every 500 ms. One that is sampled faster remembers less than 60 s; what is
 * older than 60 s before the newest sample is never counted. Samples must come in order of time;
 * one that does not is a clock that was set back, and starts the history anew. Zeroed memory is an
 * empty history. Pure; one thread. */
#pragma once

#include "thermal/sample.h"

enum { THERMAL_HISTORY_SECONDS = 60, THERMAL_HISTORY_SAMPLES = 121 }; /* both ends of the minute */

struct thermal_history {
    struct thermal_sample samples[THERMAL_HISTORY_SAMPLES];
    uint32_t first; /* index of the oldest */
    uint32_t count;
};

void thermal_history_add(struct thermal_history *history, struct thermal_sample sample);
void thermal_history_clear(struct thermal_history *history);

/* 0 is the oldest; index < count. */
const struct thermal_sample *thermal_history_at(const struct thermal_history *history,
                                                uint32_t index);

struct thermal_summary {
    uint32_t n_samples;
    uint32_t n_valid; /* with a temperature */
    struct reading temperature_mc_min;
    struct reading temperature_mc_max;
    struct reading power_mw_mean; /* plain mean of the valid powers */
};
struct thermal_summary thermal_history_summary(const struct thermal_history *history);

/* Kelvin per second: the least-squares line through the valid temperatures of the last `seconds`.
 * Unknown with fewer than three of them. */
struct reading thermal_history_slope(const struct thermal_history *history, double seconds);
