/* One number that a sensor told, or failed to tell.
 *
 * Unknown is never zero: look at `valid` before `value`. Implausible numbers (a broken sensor's
 * 300 °C, a counter that went backwards) are invalid, with the time at which they were read. The
 * limits of what is plausible are in base/limits.h. The unit is in the name of the field that
 * holds the reading. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sensor_reading {
    uint64_t value;
    uint64_t time_ns; /* clock_now_ns() when it was read or failed to be; 0: no source has it */
    bool valid;
};

/* Valid when value <= max; the time is now. */
struct sensor_reading reading_make(uint64_t value, uint64_t max);
struct sensor_reading reading_failed(void); /* invalid, now */

/* Nothing that computes is at or below 0 °C: sensors that are not connected say so. */
struct sensor_reading reading_temperature_mc(int64_t mc);
struct sensor_reading reading_power_mw(uint64_t mw);
struct sensor_reading reading_clock_mhz(uint64_t mhz);
struct sensor_reading reading_pct(uint64_t pct);

/* *limit becomes `other` where that is valid and lower, or the only one that is. */
void reading_keep_lower(struct sensor_reading *limit, struct sensor_reading other);
