/* Which bytes to ask for next. Pure.
 *
 * A span is one request: missing pieces that follow each other and that nobody has been asked for.
 * Long ones spare requests; they get shorter towards the end, so that all connections end about
 * together. */
#pragma once

#include "hub/pull_state.h"

#define PULL_SPAN_BYTES (UINT64_C(64) << 20)

struct pull_span {
    uint32_t first, end; /* pieces [first, end) */
    uint64_t from, to;   /* bytes [from, to): the first piece may be begun */
};

/* asked[piece]: somebody was. False: nothing is left to ask for. */
bool pull_span_next(const struct pull_state *state, const bool *asked, uint32_t connections,
                    struct pull_span *out);
