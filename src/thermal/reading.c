#include "thermal/reading.h"

struct thermal_sample thermal_sample_clean(struct thermal_sample sample)
{
    struct thermal_reading *temperature = &sample.temperature_mc, *power = &sample.power_mw;
    if (temperature->value < THERMAL_TEMPERATURE_MC_MIN ||
        temperature->value > THERMAL_TEMPERATURE_MC_MAX)
        temperature->valid = false;
    if (power->value <= 0 || power->value > THERMAL_POWER_MW_MAX)
        power->valid = false;
    return sample;
}

double thermal_seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}
