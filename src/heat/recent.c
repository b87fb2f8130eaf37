#include "heat/recent.h"

#include <math.h>

static float recent_value(struct reading reading, double scale)
{
    return reading.valid ? (float)(reading.value * scale) : NAN;
}

void recent_add(struct recent *recent, uint64_t time_ns, const struct sensor_device *readings)
{
    recent->samples[recent->n++ % RECENT_SAMPLES] = (struct recent_sample){
        .time_ns = time_ns,
        .temperature_c = recent_value(readings->temperature_mc, 1e-3),
        .use_share = recent_value(readings->utilisation_pct, 1e-2),
        .power_w = recent_value(readings->power_mw, 1e-3),
        .clock_mhz = recent_value(readings->clock_mhz, 1),
        .free_bytes = recent_value(readings->memory_free_bytes, 1),
    };
}

uint64_t recent_list(const struct recent *recent, uint32_t period_ms,
                     struct recent_sample out[static RECENT_SAMPLES])
{
    const uint64_t period_ns = (uint64_t)period_ms * 1000000;
    const uint32_t kept = recent->n < RECENT_SAMPLES ? recent->n : RECENT_SAMPLES;
    for (uint32_t i = 0; i < RECENT_SAMPLES; i++)
        out[i] = (struct recent_sample){0, NAN, NAN, NAN, NAN, NAN};
    if (!kept)
        return 0;
    const uint64_t end_ns = recent->samples[(recent->n - 1) % RECENT_SAMPLES].time_ns;
    for (uint32_t i = recent->n - kept; i < recent->n; i++) {
        const struct recent_sample *sample = &recent->samples[i % RECENT_SAMPLES];
        if (sample->time_ns > end_ns)
            continue; /* the clock was set back */
        const uint64_t periods = (end_ns - sample->time_ns + period_ns / 2) / period_ns;
        if (periods < RECENT_SAMPLES)
            out[RECENT_SAMPLES - 1 - periods] = *sample;
    }
    return end_ns;
}
