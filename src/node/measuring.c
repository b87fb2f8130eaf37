#include "node/measuring.h"

#include <assert.h>

enum measuring_need measuring_need_of(uint64_t unix_s, bool is_short, uint64_t now_unix_s)
{
    if (!unix_s || (now_unix_s > unix_s && now_unix_s - unix_s > MEASURING_STALE_S))
        return MEASURING_SHORT;
    return is_short ? MEASURING_FINE : MEASURING_NONE;
}

static bool measuring_is_due(const struct measuring_round *measuring, uint32_t device,
                             uint64_t now_ms)
{
    return measuring->devices[device].not_before_ms <= now_ms;
}

bool measuring_next(struct measuring_round *measuring, const enum measuring_need *needs, uint32_t n,
                    bool busy, uint64_t now_ms, uint32_t *device, uint32_t *budget_ms)
{
    assert(now_ms && n <= MEASURING_DEVICES_MAX);
    if (busy)
        measuring->idle_since_ms = 0;
    else if (!measuring->idle_since_ms)
        measuring->idle_since_ms = now_ms;
    if (busy || measuring->is_under_way)
        return false;
    const uint64_t idle_ms = now_ms - measuring->idle_since_ms;
    *device = n;
    for (uint32_t i = 0; i < n; i++) {
        if (needs[i] != MEASURING_NONE && measuring_is_due(measuring, i, now_ms) &&
            (*device == n || needs[i] > needs[*device]))
            *device = i;
    }
    if (*device == n)
        return false;
    const bool is_short = needs[*device] == MEASURING_SHORT;
    if (idle_ms < (uint64_t)(is_short ? MEASURING_IDLE_MS : MEASURING_IDLE_FINE_MS))
        return false;
    *budget_ms = is_short ? MEASURING_SHORT_BUDGET_MS : MEASURING_FINE_BUDGET_MS;
    measuring->is_under_way = true;
    measuring->device = *device;
    return true;
}

void measuring_ended(struct measuring_round *measuring, enum error_code code, uint64_t now_ms)
{
    assert(measuring->is_under_way);
    uint64_t *wait_ms = &measuring->devices[measuring->device].wait_ms;
    measuring->is_under_way = false;
    if (!code) {
        *wait_ms = 0;
    } else if (code == ERROR_CANCELLED) {
        measuring->idle_since_ms = 0; /* it has to be idle anew */
    } else {
        *wait_ms = *wait_ms ? 2 * *wait_ms : MEASURING_RETRY_MS;
        if (*wait_ms > MEASURING_RETRY_MAX_MS)
            *wait_ms = MEASURING_RETRY_MAX_MS;
        measuring->devices[measuring->device].not_before_ms = now_ms + *wait_ms;
    }
}
