/* How instances are used by those who ask this node: what the leader plans with. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* What this node's users ask of an instance, in one call: as it is now. */
struct relay_use {
    const char *instance; /* as long as the relay */
    uint64_t used_ms;     /* when it was last, by clock_now_ns(); 0: never */
    uint32_t live;        /* requests of this node that are in it or wait for it */
    bool waits;           /* one of them for a driver */
    /* Generated for such of late: each token counts less as it gets older, by half in about 7
     * minutes. */
    double tokens;
};
struct relay_uses {
    struct relay_use list[LIMIT_CLUSTER_INSTANCES]; /* every instance that was asked for here */
    uint32_t n;
};
struct relay_use relay_use_of(const struct relay_uses *uses,
                              const char *instance); /* zeroed: never used */

/* Requests of this node wait for an instance, which is being loaded or was lost. */
struct relay_pause {
    uint64_t since_ns; /* that the first has waited, by clock_now_ns() */
    char why[192];     /* what was lost, and what is being waited for; cut */
};
