/* Events and snapshots: any bytes, as both. An event leads to a state that a snapshot gives back
 * bit for bit; a snapshot that is accepted is the same after it was decoded and encoded twice, and
 * takes events. */
#include "fuzz.h"

#include "cluster/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_round_trip(const struct state *state)
{
    struct state copy = {0};
    struct buffer first = {0}, second = {0};
    struct error err;
    state_encode(state, &first);
    FUZZ_CHECK(!first.failed);
    FUZZ_CHECK(state_decode(&copy, (const uint8_t *)first.data, first.size, &err) == ERROR_NONE);
    state_encode(&copy, &second);
    FUZZ_CHECK(first.size == second.size &&
               (!first.size || memcmp(first.data, second.data, first.size) == 0));
    state_deinit(&copy);
    buffer_deinit(&first);
    buffer_deinit(&second);
}

static void as_event(struct state *state, const uint8_t *data, size_t size)
{
    struct state_outcome outcome;
    struct error err;
    Cluster__Event *event;
    struct buffer text = {0};
    FUZZ_CHECK(state_apply(state, 1, data, size, &outcome, &err) == ERROR_NONE);
    FUZZ_CHECK(outcome.applied == !outcome.reason);
    check_round_trip(state);
    if (event_decode(data, size, &event, &err) == ERROR_NONE) {
        event_describe(event, &text);
        FUZZ_CHECK(text.size && !memchr(text.data, '\n', text.size));
        event_free(event);
        buffer_deinit(&text);
    }
}

/* The input as an event for the state that the input is: what it says of nodes and instances then
 * meets some. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state state = {0};
    struct error err = {0};
    as_event(&state, data, size);
    state_deinit(&state);
    /* Its first byte splits it into a snapshot and an event. */
    const size_t cut = size ? 1 + (size - 1) * data[0] / 255 : 0;
    if (size && state_decode(&state, data + 1, cut - 1, &err) == ERROR_NONE) {
        check_round_trip(&state);
        as_event(&state, data + cut, size - cut);
    } else if (size) {
        FUZZ_CHECK(err.text[0] && !state.root);
    }
    state_deinit(&state);
    return 0;
}
