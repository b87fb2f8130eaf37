#include "base/reading.h"

#include "base/clock.h"
#include "base/limits.h"

#include <assert.h>
#include <math.h>

#define WHOLE_MAX 0x1p53 /* whole numbers are exact in a double up to here */

static const struct {
    double lowest, highest;
} plausible[UNITS] = {
    [UNIT_NUMBER] = {-INFINITY, INFINITY},
    [UNIT_COUNT] = {0, WHOLE_MAX},
    /* Nothing that computes is at or below 0 °C: sensors that are not connected say so. */
    [UNIT_MC] = {1, LIMIT_TEMPERATURE_MC},
    /* No device that answers draws exactly nothing, and drivers without a power sensor say 0. */
    [UNIT_MW] = {1, LIMIT_POWER_MW},
    [UNIT_MHZ] = {0, LIMIT_CLOCK_MHZ},
    [UNIT_PCT] = {0, 100},
    [UNIT_SHARE] = {0, 1},
    [UNIT_BYTES] = {0, WHOLE_MAX},
    [UNIT_DELAY_NS] = {0, LIMIT_LINK_DELAY_MS * 1e6},
    /* Nothing is slower than one a second and yet of use: 0 is how "not measured" looks. */
    [UNIT_BYTES_PER_S] = {1, LIMIT_LINK_GB_PER_S * 1e9},
    [UNIT_MB_PER_S] = {1, WHOLE_MAX},
    [UNIT_MFLOPS] = {1, WHOLE_MAX},
};

bool unit_is_plausible(enum unit unit, double value)
{
    assert((unsigned)unit < UNITS);
    return value >= plausible[unit].lowest && value <= plausible[unit].highest; /* NaN is not */
}

struct reading reading_at(enum unit unit, double value, uint64_t time_ns)
{
    const bool valid = unit_is_plausible(unit, value);
    return (struct reading){.value = valid ? value : 0, .valid = valid, .time_ns = time_ns};
}

struct reading reading_now(enum unit unit, double value)
{
    return reading_at(unit, value, clock_now_ns());
}

struct reading reading_now_u64(enum unit unit, uint64_t value)
{
    return reading_now(unit, (double)value);
}

struct reading reading_of(enum unit unit, double value)
{
    return reading_at(unit, value, 0);
}

struct reading reading_failed(void)
{
    return (struct reading){.time_ns = clock_now_ns()};
}

struct reading reading_checked(enum unit unit, struct reading reading)
{
    return reading.valid ? reading_at(unit, reading.value, reading.time_ns) : reading;
}

uint64_t reading_whole(struct reading reading)
{
    assert(reading.valid && reading.value >= 0 && reading.value < 0x1p64);
    return (uint64_t)reading.value;
}

void reading_keep_lower(struct reading *limit, struct reading other)
{
    if (other.valid && (!limit->valid || other.value < limit->value))
        *limit = other;
}
