#include "hub/pull_schedule.h"

#include <assert.h>

static bool pull_is_missing(const struct pull_state *state, const bool *asked, uint32_t piece)
{
    return !asked[piece] && state->have[piece] < pull_piece_size(state, piece);
}

static uint64_t pull_span_bytes(const struct pull_state *state, uint32_t connections)
{
    const uint64_t left = state->size - pull_state_done(state);
    const uint64_t share = left / (2 * (uint64_t)connections);
    return share < PULL_SPAN_BYTES ? share : PULL_SPAN_BYTES;
}

bool pull_span_next(const struct pull_state *state, const bool *asked, uint32_t connections,
                    struct pull_span *out)
{
    assert(connections > 0);
    uint32_t i = 0;
    while (i < state->n_pieces && !pull_is_missing(state, asked, i))
        i++;
    if (i == state->n_pieces)
        return false;
    const uint64_t bytes = pull_span_bytes(state, connections);
    out->first = i;
    out->from = i * state->piece + state->have[i];
    do { /* one piece at least; a begun one only in front */
        out->to = i * state->piece + pull_piece_size(state, i);
        i++;
    } while (i < state->n_pieces && pull_is_missing(state, asked, i) && !state->have[i] &&
             out->to - out->from < bytes);
    out->end = i;
    assert(out->from < out->to && out->to <= state->size);
    return true;
}
