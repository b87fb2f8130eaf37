/* How long to wait before dialling again. Pure. */
#pragma once

#include "base/limits.h"
#include "base/random.h"

/* After `n_failures` in a row, 1 or more: first_ms * 2^(n - 1), at most LIMIT_DIAL_WAIT_MS, of which a random half is
 * taken away, so that nodes that failed together do not come back together. */
static inline uint64_t backoff_ms(uint64_t first_ms, uint32_t n_failures, uint64_t seed)
{
    uint64_t wait_ms = first_ms;
    for (uint32_t i = 1; i < n_failures && wait_ms < LIMIT_DIAL_WAIT_MS; i++)
        wait_ms *= 2;
    if (wait_ms > LIMIT_DIAL_WAIT_MS)
        wait_ms = LIMIT_DIAL_WAIT_MS;
    return wait_ms - (uint64_t)(random_unit_at(seed, n_failures) * (double)wait_ms / 2);
}
