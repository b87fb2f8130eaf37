/* This node's vitals, from what its governors have read last. */
#pragma once

#include "heat/heat.h"
#include "vitals/vitals.h"

/* `uptime_s` is the process's. A zeroed snapshot: nothing is known but that. Pure. */
void vitals_sample(const struct heat_snapshot *snapshot, uint64_t uptime_s, struct vitals *out);

/* What a governor does, in words; NULL: none is at work, or it has never seen a temperature.
 * `reason` is vitals_device.governor, of another node: any number. */
const char *vitals_governor_text(int32_t reason);
