/* What the sensors of a device said at one moment.
 *
 * Temperatures are millidegrees Celsius and powers milliwatts where they come in, degrees Celsius
 * and watts (named _c and _w) inside this room. Numbers that are derived of them and may be unknown
 * are readings as well (UNIT_NUMBER). Pure: no state, any thread. */
#pragma once

#include "base/reading.h"

struct thermal_sample {
    uint64_t time_ns; /* of one monotonic clock */
    struct reading temperature_mc;
    struct reading power_mw;
};

/* The same sample, with what cannot be (base/reading.h) marked as unknown. */
struct thermal_sample thermal_sample_clean(struct thermal_sample sample);

double thermal_seconds_between(uint64_t from_ns,
                               uint64_t to_ns); /* 0 when `to` is not after `from` */
