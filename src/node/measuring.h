/* When a node measures which of its devices (calibration, gpu/calibrate.h). Pure; one thread.
 *
 *   never, or too long ago    a short measurement (seconds; good to 15 %), once the node has been
 *                             idle for MEASURING_IDLE_MS
 *   measured shortly          a fine one, when none needs a short one and the node has been idle
 * for MEASURING_IDLE_FINE_MS
 *
 * One device at a time: they share the host's memory and the way to it. A measurement that other
 * work has interrupted begins anew when the node is idle again; one that failed is tried again
 * after a time that doubles. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MEASURING_DEVICES_MAX = 64,
    MEASURING_IDLE_MS = 1000,
    MEASURING_IDLE_FINE_MS = 20 * 1000,
    MEASURING_SHORT_BUDGET_MS = 600,
    MEASURING_FINE_BUDGET_MS = 6000,
    MEASURING_RETRY_MS = 10 * 1000, /* doubled … */
    MEASURING_RETRY_MAX_MS = 3600 * 1000,
    MEASURING_STALE_S = 170 * 86400, /* before the alert calibration_stale is raised */
};

enum measuring_need { MEASURING_NONE, MEASURING_FINE, MEASURING_SHORT };

struct measuring_round {    /* zeroed: nothing was seen yet */
    uint64_t idle_since_ms; /* 0: it is not */
    bool is_under_way;
    uint32_t device; /* that is being measured */
    struct {
        uint64_t not_before_ms, wait_ms;
    } devices[MEASURING_DEVICES_MAX];
};

/* What a calibration leaves to do; unix_s 0: there is none. */
enum measuring_need measuring_need_of(uint64_t unix_s, bool is_short, uint64_t now_unix_s);

/* A device to measure now, by its place in `needs`; false: none. Then it is under way. `now_ms` is
 * above 0. */
bool measuring_next(struct measuring_round *measuring, const enum measuring_need *needs, uint32_t n,
                    bool busy, uint64_t now_ms, uint32_t *device, uint32_t *budget_ms);
/* ERROR_CANCELLED: other work came first. */
void measuring_ended(struct measuring_round *measuring, enum error_code code, uint64_t now_ms);
