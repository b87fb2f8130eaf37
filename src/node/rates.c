#include "node/rates.h"

#include "base/fnv.h"

#include <math.h>

enum { RATES_SMOOTH_MS = 3000 };

/* The row of that name; else a free one, else the one that was not looked at for longest. */
static struct rate_row *rates_row(struct rates *rates, enum rate_kind kind, const char *name,
                                  uint64_t now_ms)
{
    const uint64_t hash = fnv_text(FNV_BASIS, name) | 1;
    struct rate_row *oldest = &rates->rows[0];
    for (uint32_t i = 0; i < RATES_MAX; i++) {
        struct rate_row *row = &rates->rows[i];
        if (row->name == hash && row->kind == kind)
            return row;
        if (row->seen_ms < oldest->seen_ms)
            oldest = row;
    }
    *oldest = (struct rate_row){.kind = kind, .name = hash, .since_ms = now_ms};
    return oldest;
}

static void rates_smooth(struct rate_row *row, double rate, double passed_ms)
{
    const double weight = 1 - exp(-passed_ms / RATES_SMOOTH_MS);
    row->per_s = row->per_s > 0 ? row->per_s + weight * (rate - row->per_s) : rate;
}

double rates_step(struct rates *rates, enum rate_kind kind, const char *name, uint64_t now_ms,
                  uint64_t count, bool busy)
{
    struct rate_row *row = rates_row(rates, kind, name, now_ms);
    const bool goes_on = row->seen_ms && count >= row->count && now_ms > row->seen_ms;
    const double passed_ms = (double)(now_ms - row->seen_ms);
    if (!goes_on && row->seen_ms && now_ms > row->seen_ms)
        row->per_s = 0;
    if (goes_on && (row->was_busy && (busy || count > row->count))) {
        rates_smooth(row, (double)(count - row->count) * 1000 / passed_ms, passed_ms);
        row->risen_ms = now_ms;
    }
    if (now_ms - row->risen_ms > RATES_LAST_MS)
        row->per_s = 0;
    if (!row->seen_ms || now_ms > row->seen_ms) {
        row->seen_ms = now_ms;
        row->count = count;
        row->was_busy = busy;
    }
    return row->per_s;
}

uint64_t rates_since(struct rates *rates, const char *name, uint64_t now_ms, bool holds)
{
    struct rate_row *row = rates_row(rates, RATE_PAUSE, name, now_ms);
    row->seen_ms = now_ms;
    if (!holds || !row->was_busy)
        row->since_ms = now_ms;
    row->was_busy = holds;
    return now_ms - row->since_ms;
}
