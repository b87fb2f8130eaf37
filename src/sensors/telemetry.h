/* Samples all sensors at a steady pace on a thread of its own.
 *
 * Every period the thread reads every device and the machine into one sample, which
 * on_sample is given. A driver that hangs holds up neither the others nor
 * telemetry_close() (sensors.h says how). The pace does not drift: periods that were missed (the
 * machine slept) are skipped.
 *
 *     struct telemetry *telemetry;
 *     struct telemetry_options options = {.on_sample = on_sample, .arg = heat};
 *     if (telemetry_open(&options, infos, n_infos, &telemetry, &err)) … */
#pragma once

#include "sensors/sensors.h"

enum { TELEMETRY_PERIOD_MS = 500 };

struct telemetry_options {
    struct sensors_options sensors;
    uint32_t period_ms; /* 0: TELEMETRY_PERIOD_MS */
    /* Called on the telemetry thread after each sample, which is only borrowed; must not call
     * telemetry_close(). NULL: nobody is told. */
    void (*on_sample)(void *arg, const struct sensor_sample *sample);
    void *arg;
};

struct telemetry;

/* Returns at once; slow sources come when they are there. `options` may be NULL. */
enum error_code telemetry_open(const struct telemetry_options *options,
                               const struct device_info *devices, uint32_t n_devices,
                               struct telemetry **out, struct error *err);

/* Waits for the thread: options.sensors.answer_ms + LIMIT_SENSOR_CLOSE_MS at most, plus what
 * on_sample takes. NULL is fine. */
void telemetry_close(struct telemetry *telemetry);

/* The sources, as sensors_source() says them. Any thread. */
uint32_t telemetry_source_count(const struct telemetry *telemetry);
void telemetry_source(struct telemetry *telemetry, uint32_t index, struct sensor_source *out);
