#include "sensors/reading.h"

#include "base/clock.h"
#include "base/limits.h"

struct sensor_reading reading_make(uint64_t value, uint64_t max)
{
    bool valid = value <= max;
    return (struct sensor_reading){
        .value = valid ? value : 0, .time_ns = clock_now_ns(), .valid = valid};
}

struct sensor_reading reading_failed(void)
{
    return (struct sensor_reading){.time_ns = clock_now_ns()};
}

struct sensor_reading reading_temperature_mc(int64_t mc)
{
    return mc > 0 ? reading_make((uint64_t)mc, LIMIT_TEMPERATURE_MC) : reading_failed();
}

struct sensor_reading reading_power_mw(uint64_t mw)
{
    return reading_make(mw, LIMIT_POWER_MW);
}

struct sensor_reading reading_clock_mhz(uint64_t mhz)
{
    return reading_make(mhz, LIMIT_CLOCK_MHZ);
}

struct sensor_reading reading_pct(uint64_t pct)
{
    return reading_make(pct, 100);
}

void reading_keep_lower(struct sensor_reading *limit, struct sensor_reading other)
{
    if (other.valid && (!limit->valid || other.value < limit->value))
        *limit = other;
}
