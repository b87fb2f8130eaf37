/* How long to wait before dialling again. Pure. */
#pragma once

#include "base/limits.h"
#include "base/random.h"

enum {
    BACKOFF_PART = 8,       /* of the time since a link's end */
    BACKOFF_SPREAD_MS = 4,  /* between the dials of one node, where many have lost their links */
    BACKOFF_REACH_MS = 500, /* for the other end to say anything at all, at first */
};

/* After `n_failures` in a row, 1 or more: first_ms * 2^(n - 1), at most LIMIT_DIAL_WAIT_MS, of
 * which a random half is taken away, so that nodes that failed together do not come back
 * together. */
static inline uint64_t backoff_ms(uint64_t first_ms, uint32_t n_failures, uint64_t seed)
{
    uint64_t wait_ms = first_ms;
    for (uint32_t i = 1; i < n_failures && wait_ms < LIMIT_DIAL_WAIT_MS; i++)
        wait_ms *= 2;
    if (wait_ms > LIMIT_DIAL_WAIT_MS)
        wait_ms = LIMIT_DIAL_WAIT_MS;
    return wait_ms - (uint64_t)(random_unit_at(seed, n_failures) * (double)wait_ms / 2);
}

/* The same where there was a link, whose end is `gone_ms` ago: an eighth of that, so that it is
 * back soon after the way is, however long it was cut. first_ms / 2 at least, and BACKOFF_SPREAD_MS
 * for each of the `n_waiting` dials that wait with this one; LIMIT_DIAL_WAIT_MS at most. */
static inline uint64_t backoff_again_ms(uint64_t first_ms, uint64_t gone_ms, uint32_t n_waiting,
                                        uint64_t seed)
{
    uint64_t wait_ms = gone_ms / BACKOFF_PART;
    if (wait_ms < first_ms / 2)
        wait_ms = first_ms / 2;
    if (wait_ms < (uint64_t)n_waiting * BACKOFF_SPREAD_MS)
        wait_ms = (uint64_t)n_waiting * BACKOFF_SPREAD_MS;
    if (wait_ms > LIMIT_DIAL_WAIT_MS)
        wait_ms = LIMIT_DIAL_WAIT_MS;
    return wait_ms - (uint64_t)(random_unit_at(seed, gone_ms) * (double)wait_ms / 2);
}

/* How long such a dial waits for any answer: of a connection request that was lost the next is sent
 * a second later, or more. */
static inline uint64_t backoff_reach_ms(uint64_t gone_ms)
{
    return gone_ms / BACKOFF_PART > BACKOFF_REACH_MS ? gone_ms / BACKOFF_PART : BACKOFF_REACH_MS;
}
