/* How much of this machine's processors others use: all that is used, less what the node and its
 * devices' processes took (/proc). */
#pragma once

#include "base/reading.h"

struct lend_load { /* zeroed: nothing measured yet */
    uint64_t own_ticks, at_ns;
};

/* A share since the last call, from what is used now (percent of all). Unknown: the first time, or
 * where /proc does not say. */
struct reading lend_load_others(struct lend_load *load, struct reading used_pct);
