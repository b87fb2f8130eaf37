/* How fast counters rise, by name: bytes fetched, tokens generated. And for how long something has
 * been so. Pure. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum rate_kind { RATE_FETCH, RATE_DECODE, RATE_PAUSE };

enum { RATES_MAX = 128, RATES_LAST_MS = 60 * 1000 };

struct rate_row {
    enum rate_kind kind;
    uint64_t name; /* its hash; 0: the row is free */
    uint64_t seen_ms, since_ms, risen_ms, count;
    double per_s; /* 0: not known */
    bool was_busy;
};

struct rates {
    struct rate_row rows[RATES_MAX];
};

/* The rate now: over about three seconds in which it was busy; that of then for a minute after.
 * 0: not known. A counter that fell begins anew. */
double rates_step(struct rates *rates, enum rate_kind kind, const char *name, uint64_t now_ms,
                  uint64_t count, bool busy);

/* For how long `holds` has been true at each call; 0: since now, or it does not. */
uint64_t rates_since(struct rates *rates, const char *name, uint64_t now_ms, bool holds);
