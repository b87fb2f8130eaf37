#include "sensors/rate.h"

#include "base/limits.h"

#include <math.h>

enum { SHORTEST_NS = 10000000 };
static const uint64_t longest_ns = 60000000000u;

struct reading energy_meter_update(struct energy_meter *meter, uint64_t energy_uj,
                                   uint64_t range_uj, uint64_t time_ns)
{
    uint64_t elapsed_ns = time_ns - meter->time_ns;
    if (meter->running && time_ns >= meter->time_ns && elapsed_ns < SHORTEST_NS)
        return meter->power_mw;
    uint64_t used_uj = energy_uj - meter->energy_uj;
    bool known = meter->running && time_ns > meter->time_ns && elapsed_ns <= longest_ns;
    if (energy_uj < meter->energy_uj) {
        known = known && range_uj >= meter->energy_uj;
        used_uj = range_uj - meter->energy_uj + energy_uj;
    }
    *meter = (struct energy_meter){.energy_uj = energy_uj, .time_ns = time_ns, .running = true};
    meter->power_mw = reading_failed();
    /* 10 kW over 60 s are 6e11 µJ: beyond 1e12 it is nonsense, and the product could overflow. */
    if (known && used_uj < 1000000000000u)
        meter->power_mw = reading_now_u64(UNIT_MW, used_uj * 1000000 / elapsed_ns);
    return meter->power_mw;
}

void energy_meter_reset(struct energy_meter *meter)
{
    *meter = (struct energy_meter){0};
}

struct reading load_meter_update(struct load_meter *meter, uint64_t busy, uint64_t all,
                                 uint64_t time_ns)
{
    bool too_soon = time_ns >= meter->time_ns && time_ns - meter->time_ns < SHORTEST_NS;
    if (meter->running && (too_soon || all == meter->all))
        return meter->pct;
    uint64_t spent = all - meter->all, worked = busy - meter->busy;
    bool known = meter->running && all > meter->all && busy >= meter->busy && worked <= spent;
    *meter = (struct load_meter){.busy = busy, .all = all, .time_ns = time_ns, .running = true};
    meter->pct = known ? reading_now(UNIT_PCT, round(100.0 * (double)worked / (double)spent))
                       : reading_failed();
    return meter->pct;
}
