/* What a sensor said, and when. A reading that is not valid says nothing: it is never read as zero.
 *
 * Temperatures are millidegrees Celsius and powers milliwatts where they come in, degrees Celsius
 * and watts (doubles, named _c and _w) inside this room. Pure: no state, any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct thermal_reading {
    int64_t value;
    bool valid;
};

/* A derived number, which may be unknown too. */
struct thermal_number {
    double value;
    bool valid;
};

struct thermal_sample {
    uint64_t time_ns; /* of one monotonic clock */
    struct thermal_reading temperature_mc;
    struct thermal_reading power_mw;
};

/* Beyond these no silicon computes; a sensor that says so is broken. No device that answers draws
 * exactly nothing, and drivers without a power sensor like to say 0: 0 mW is "unknown". */
#define THERMAL_TEMPERATURE_MC_MIN INT64_C(-40000)
#define THERMAL_TEMPERATURE_MC_MAX INT64_C(150000)
#define THERMAL_POWER_MW_MAX INT64_C(10000000)

/* The same sample, with what cannot be marked as not valid. */
struct thermal_sample thermal_sample_clean(struct thermal_sample sample);

double thermal_seconds_between(uint64_t from_ns,
                               uint64_t to_ns); /* 0 when `to` is not after `from` */
