/* Power and load out of counters: the difference of two reads over the time between them. Pure.
 *
 * P [mW] = ΔE [µJ] · 10^6 / Δt [ns];  load [%] = 100 · Δbusy / Δall.
 * A counter that went backwards has wrapped around at its `range` (RAPL says where) or, when that
 * is 0, was reset: then this interval is invalid and the next one counts. Reads closer than 10 ms
 * tell nothing (RAPL moves about once a millisecond): the last value stays. After more than 60 s a
 * counter may have wrapped around unseen (the shortest, 65 kJ, takes 65 s at 1 kW): invalid. */
#pragma once

#include "base/reading.h"

struct energy_meter {
    uint64_t energy_uj, time_ns;
    struct reading power_mw;
    bool running;
};

/* What the counter says at `time_ns`; the power since the last call, invalid at the first. */
struct reading energy_meter_update(struct energy_meter *meter, uint64_t energy_uj,
                                   uint64_t range_uj, uint64_t time_ns);
void energy_meter_reset(struct energy_meter *meter); /* the counter was not there */

struct load_meter {
    uint64_t busy, all, time_ns;
    struct reading pct;
    bool running;
};

/* `all` counts time, `busy` the part of it that was spent working, both in any one unit; read at
 * `time_ns`. */
struct reading load_meter_update(struct load_meter *meter, uint64_t busy, uint64_t all,
                                 uint64_t time_ns);
