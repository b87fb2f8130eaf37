#include "thermal/sample.h"

struct thermal_sample thermal_sample_clean(struct thermal_sample sample)
{
    sample.temperature_mc = reading_checked(UNIT_MC, sample.temperature_mc);
    sample.power_mw = reading_checked(UNIT_MW, sample.power_mw);
    return sample;
}

double thermal_seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}
