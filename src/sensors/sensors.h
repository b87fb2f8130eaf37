/* What the machine says of itself: temperature, power, clock, memory, battery.
 *
 * sensors_open() opens every source of the table in sensors.c (NVML, amdgpu, Level Zero, hwmon,
 * RAPL …). A source that is missing is a stated absence, never an error: sensors_source() says
 * why it is not available, with the one step that mends it. Sources that were not available are
 * tried again from time to time, so that a driver loaded or a permission given later is seen.
 *
 * sensors_sample() reads everything once. Each device is found by its PCI id (struct device_info),
 * the CPU by its kind. Where two sources have a number the first of the table wins.
 *
 * A source whose driver may hang (NVML, amdgpu, Level Zero, the battery's firmware) works on a
 * thread of its own (guard.h): sensors_sample() waits for it LIMIT_SENSOR_ANSWER_MS, once until it
 * answers, and then goes on with its last readings, which turn invalid LIMIT_SENSOR_STALE_MS after
 * they were taken.
 *
 * Numbers that are a difference (power from an energy counter, load) need two samples: they are
 * invalid in the first, and when the samples are closer than 10 ms the last value stays.
 *
 * Threading: sensors_open(), _sample() and _close() belong to one thread at a time; the other
 * functions may be called from any. telemetry.h samples on a thread of its own.
 *
 *     struct sensors *sensors;
 *     if (sensors_open(NULL, infos, n_infos, &sensors, &err)) …
 *     struct sensor_sample sample;
 *     sensors_sample(sensors, &sample);
 *     if (sample.devices[0].temperature_mc.valid) … */
#pragma once

#include "base/device_info.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/reading.h"

struct sensors_options {
    const char *root;            /* the folder in which /sys and /proc are looked up; NULL: "/" */
    const char *nvml_path;       /* NULL: libnvidia-ml.so.1 */
    const char *level_zero_path; /* NULL: libze_loader.so.1 */
    uint32_t answer_ms;      /* that a sample waits for slow sources; 0: LIMIT_SENSOR_ANSWER_MS */
    uint32_t retry_ms;       /* between attempts to open what is not available; 0: 30 s */
    bool open_in_background; /* do not wait for slow sources: they come when they are there */
};

/* Of one device. A struct of readings only: sensors.c merges it as an array. */
struct sensor_device {
    struct reading memory_used_bytes;
    struct reading memory_free_bytes;
    struct reading utilisation_pct;
    struct reading temperature_mc; /* the hottest sensor that its throttling goes by */
    struct reading power_mw;       /* the CPU: of all its packages */
    struct reading clock_mhz;
    struct reading power_limit_mw;
    struct reading temperature_slowdown_mc; /* where the hardware begins to throttle */
    struct reading temperature_critical_mc; /* where it stops */
};

enum battery_state { BATTERY_DISCHARGING, BATTERY_CHARGING, BATTERY_FULL, BATTERY_NOT_CHARGING };

/* Of the machine. A struct of readings only. */
struct sensor_node {
    struct reading battery_pct;
    struct reading battery_state; /* enum battery_state */
    struct reading on_ac;         /* 0 or 1 */
    struct reading cpu_utilisation_pct;
    struct reading
        memory_total_bytes; /* of the machine, or of this process's control group if less */
    struct reading memory_available_bytes;
    /* Part of the last 10 s in which some, or all, tasks waited for memory (PSI avg10). */
    struct reading memory_stall_some_share;
    struct reading memory_stall_full_share;
};

struct sensor_sample {
    uint64_t time_ns; /* when it was complete; 0: never taken */
    uint32_t n_devices;
    struct sensor_node node;
    struct sensor_device devices[LIMIT_DEVICES]; /* in the order given to sensors_open() */
};

struct sensors;

/* Copies options and devices. At most LIMIT_DEVICES devices; `options` may be NULL. Waits for slow
 * sources LIMIT_SENSOR_OPEN_MS together. Fails for lack of memory and for what the caller got
 * wrong. */
enum error_code sensors_open(const struct sensors_options *options,
                             const struct device_info *devices, uint32_t n_devices,
                             struct sensors **out, struct error *err);

/* Prompt also when a driver hangs: the thread in it is left behind with what it uses. NULL is
 * fine. */
void sensors_close(struct sensors *sensors);

void sensors_sample(struct sensors *sensors, struct sensor_sample *out);

struct sensor_source {
    char name[24];
    bool available;
    char reason[256]; /* when not available: what is missing and the step that mends it */
};
uint32_t sensors_source_count(const struct sensors *sensors);
void sensors_source(struct sensors *sensors, uint32_t index, struct sensor_source *out);
