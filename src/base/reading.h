/* One number that somebody measured, or failed to: what it is, whether it is known, and when it was
 * read. Everything in Medley that may be unknown is one of these.
 *
 * Unknown is never zero: look at `valid` before `value`. A zeroed reading is unknown, and nobody
 * ever tried to read it.
 *
 * The value is a double, for one type has to hold a slope below zero, a share of 0.43 and a
 * device's bytes. Whole numbers up to 2^53 are exact in it, and no whole quantity of
 * the table below is plausible beyond that, so that nothing is lost (8 PiB, 104 days in ns).
 * reading_whole() gives it back as an integer.
 *
 * The unit is in the name of whatever holds the reading (`temperature_mc`, `power_mw`,
 * `loss_share`) and not in the reading: it would be a second copy of what the code says already.
 * Whoever makes a reading names the unit, and the table in reading.c says what is plausible of it:
 * a broken sensor's 300 °C is unknown, not hot. That table is the one owner of plausibility; its
 * figures are in base/limits.h. Numbers that were computed of readings are UNIT_NUMBER, of which
 * everything is plausible but NaN.
 *
 * A share is a part of a whole as a number from 0 to 1, everywhere inside. Permille and ppm exist
 * only where people and peers see it: in JSON, in messages, on the screen. (A load and a battery's
 * charge are percent, as their sensors tell them.)
 *
 *     out->temperature_mc = reading_now(UNIT_MC, 61000);
 *     if (out->temperature_mc.valid) … */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct reading {
    double value;
    bool valid;
    uint64_t time_ns; /* clock_now_ns() when it was read or failed to be; 0: at no known time */
};

enum unit {
    UNIT_NUMBER,      /* computed of readings, in any unit; may be infinite */
    UNIT_COUNT,       /* of anything; also codes and flags */
    UNIT_MC,          /* temperature, thousandths of a degree Celsius */
    UNIT_MW,          /* power, milliwatts */
    UNIT_MHZ,         /* clock */
    UNIT_PCT,         /* load, charge */
    UNIT_SHARE,       /* 0 to 1 */
    UNIT_BYTES,       /* of memory */
    UNIT_DELAY_NS,    /* of a link */
    UNIT_BYTES_PER_S, /* of a link */
    UNIT_MB_PER_S,    /* of a device's memory, 10^6 bytes */
    UNIT_MFLOPS,      /* of a device, 10^6 operations a second */
    UNITS
};

bool unit_is_plausible(enum unit unit, double value);

/* Valid where the value is plausible. */
struct reading reading_at(enum unit unit, double value, uint64_t time_ns);
struct reading reading_now(enum unit unit, double value); /* at clock_now_ns() */
struct reading reading_now_u64(enum unit unit, uint64_t value);
struct reading reading_of(enum unit unit, double value); /* at no known time */
struct reading reading_failed(void);                     /* unknown, now */

/* The same reading, unknown where that is not plausible: for those of others. */
struct reading reading_checked(enum unit unit, struct reading reading);

/* A valid reading that is not below zero, as an integer, rounded down. */
uint64_t reading_whole(struct reading reading);

/* *limit becomes `other` where that is valid and lower, or the only one that is. */
void reading_keep_lower(struct reading *limit, struct reading other);
