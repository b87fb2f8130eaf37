/* Random events for tests: mostly sensible ones, on few nodes, devices, models and instances, so
 * that they meet; some with a field that is wrong; some that are only bytes. */
#pragma once

#include "base/buffer.h"
#include "cluster/state.h"

struct event_draws {
    uint64_t seed, draws;
};

void random_event(struct event_draws *draws, const struct state *state, struct buffer *out);
