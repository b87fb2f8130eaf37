/* The state: total over any event, the same everywhere, the same after a snapshot; epochs; fields
 * of a newer node. */
#include "base/limits.h"
#include "base/mem.h"
#include "cluster_events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct error err;

static struct buffer encoded(const struct state *state)
{
    struct buffer bytes = {0};
    state_encode(state, &bytes);
    assert_false(bytes.failed);
    return bytes;
}

static bool same_bytes(const struct buffer *a, const struct buffer *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

/* Live epochs are unique and not above the last; every stage of a live placement has its layers. */
static void check(const struct state *state)
{
    uint64_t seen[64];
    uint32_t n = 0;
    for (size_t i = 0; state->root && i < state->root->n_instances; i++) {
        const Cluster__Instance *instance = state->root->instances[i];
        const Cluster__Placement *own[] = {instance->current, instance->next};
        assert_true(!instance->next || instance->current);
        for (int k = 0; k < 2; k++) {
            if (!own[k])
                continue;
            assert_true(instance->active && own[k]->epoch <= state->root->last_epoch &&
                        own[k]->epoch > 0);
            for (uint32_t j = 0; j < n; j++)
                assert_true(seen[j] != own[k]->epoch);
            seen[n++] = own[k]->epoch;
            uint32_t layer = 0;
            for (size_t j = 0; j < own[k]->n_stages; j++) {
                assert_true(own[k]->stages[j]->first_layer == layer);
                layer += own[k]->stages[j]->n_layers;
            }
        }
    }
}

static void apply_ok(struct state *state, uint64_t index, const struct buffer *event,
                     struct state_outcome *outcome)
{
    if (state_apply(state, index, (const uint8_t *)event->data, event->size, outcome, &err))
        fail_msg("%s", err.text);
    assert_true(outcome->applied == (outcome->reason == NULL));
}

/* Two states take the same events; the second is now and then replaced by what a snapshot of it
 * gives. */
static void random_events_lead_to_one_state(void **unused)
{
    uint32_t applied = 0, total = 0, moves = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct event_draws draws = {.seed = seed};
        struct state a = {0}, b = {0};
        for (uint64_t index = 1; index <= 600; index++) {
            struct buffer event = {0}, text = {0};
            struct state_outcome first, second;
            random_event(&draws, &a, &event);
            apply_ok(&a, index, &event, &first);
            apply_ok(&b, index, &event, &second);
            assert_true(first.applied == second.applied && first.reason == second.reason);
            applied += first.applied, total++;
            check(&a);
            struct buffer x = encoded(&a), y = encoded(&b);
            assert_true(same_bytes(&x, &y));
            if (index % 7 == 0) {
                if (state_decode(&b, (const uint8_t *)x.data, x.size, &err))
                    fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
                struct buffer again = encoded(&b);
                assert_true(same_bytes(&x, &again));
                buffer_deinit(&again);
            }
            Cluster__Event *decoded;
            if (event_decode((const uint8_t *)event.data, event.size, &decoded, &err) ==
                ERROR_NONE) {
                event_describe(decoded, &text);
                assert_true(text.size && !memchr(text.data, '\n', text.size));
                event_free(decoded);
            }
            buffer_deinit(&x), buffer_deinit(&y), buffer_deinit(&event), buffer_deinit(&text);
        }
        for (size_t i = 0; i < a.root->n_instances; i++)
            moves += a.root->instances[i]->next != NULL;
        state_deinit(&a);
        state_deinit(&b);
    }
    print_message("# %u of %u events made sense; %u moves were under way in the end\n", applied,
                  total, moves);
    assert_true(applied > total / 10 && moves > 0);
}

/* Whichever allocation fails: the state is as before, and the event can be applied again. */
static void nothing_is_half_done_without_memory(void **unused)
{
    struct event_draws draws = {.seed = 99};
    struct state state = {0};
    for (uint64_t index = 1; index <= 300; index++) {
        struct buffer event = {0};
        struct state_outcome outcome;
        random_event(&draws, &state, &event);
        struct buffer before = encoded(&state);
        for (unsigned nth = 1;; nth++) {
            mem_fail_nth(nth);
            const enum error_code code =
                state_apply(&state, index, (const uint8_t *)event.data, event.size, &outcome, &err);
            mem_fail_nth(0);
            if (code == ERROR_NONE)
                break;
            assert_int_equal(code, ERROR_NO_MEMORY);
            struct buffer after = encoded(&state);
            assert_true(same_bytes(&before, &after));
            buffer_deinit(&after);
            assert_true(nth < 1000);
        }
        buffer_deinit(&before);
        buffer_deinit(&event);
    }
    state_deinit(&state);
}

/* A field 1000 with the text "new", as a later version might add it, and its place in a message. */
static const uint8_t unknown_field[] = {0xc2, 0x3e, 3, 'n', 'e', 'w'};

static void put_bytes(struct buffer *out, const void *bytes, size_t size)
{
    buffer_append(out, bytes, size);
}

static void fields_of_a_newer_node_survive(void **unused)
{
    /* Event { node_joined (18 * 8 … tag 130): Node { id, member, name, unknown } } */
    uint8_t node[64];
    size_t n = 0;
    const uint8_t known[] = {0x0a, 1, 'a', 0x11, 7, 0, 0, 0, 0, 0, 0, 0, 0x1a, 1, 'b'};
    memcpy(node, known, sizeof known), n += sizeof known;
    memcpy(node + n, unknown_field, sizeof unknown_field), n += sizeof unknown_field;
    const uint8_t tag[] = {0x82, 1, (uint8_t)n};
    struct buffer event = {0};
    put_bytes(&event, tag, sizeof tag);
    put_bytes(&event, node, n);
    struct state state = {0}, copy = {0};
    struct state_outcome outcome;
    apply_ok(&state, 1, &event, &outcome);
    assert_true(outcome.applied);
    struct buffer snapshot = encoded(&state);
    assert_non_null(memmem(snapshot.data, snapshot.size, unknown_field, sizeof unknown_field));
    put_bytes(&snapshot, unknown_field, sizeof unknown_field); /* and one of the state's own */
    assert_int_equal(state_decode(&copy, (const uint8_t *)snapshot.data, snapshot.size, &err),
                     ERROR_NONE);
    assert_string_equal(state_node(&copy, "a")->node->name, "b");
    struct buffer again = encoded(&copy);
    assert_true(same_bytes(&snapshot, &again));
    /* A kind of event that nobody knows yet: nothing but the trace. */
    struct buffer newer = {0};
    const uint8_t kind[] = {0xc2, 0x3e, 3, 1, 2, 3};
    put_bytes(&newer, kind, sizeof kind);
    apply_ok(&copy, 2, &newer, &outcome);
    assert_false(outcome.applied);
    assert_true(copy.root->ignored == 1 && copy.root->last_ignored == 2);
    buffer_deinit(&event), buffer_deinit(&snapshot), buffer_deinit(&again), buffer_deinit(&newer);
    state_deinit(&state);
    state_deinit(&copy);
}

static void takes_no_foreign_snapshot(void **unused)
{
    struct state state = {0};
    const uint8_t garbage[] = {0xff, 0xff, 0xff};
    const uint8_t no_node[] = {0x32, 0}; /* a record without its node */
    assert_int_equal(state_decode(&state, garbage, sizeof garbage, &err), ERROR_INVALID);
    assert_int_equal(state_decode(&state, no_node, sizeof no_node, &err), ERROR_INVALID);
    uint8_t *large = mem_new(LIMIT_CLUSTER_SNAPSHOT_BYTES + 1);
    assert_int_equal(state_decode(&state, large, LIMIT_CLUSTER_SNAPSHOT_BYTES + 1, &err),
                     ERROR_INVALID);
    mem_free(large);
    assert_null(state.root);
    /* Bytes that ask for much more memory than they are: a million empty nodes. */
    uint8_t *many = mem_new(2000000);
    for (size_t i = 0; i < 2000000; i += 2)
        many[i] = 0x32;
    assert_int_equal(state_decode(&state, many, 2000000, &err), ERROR_INVALID);
    mem_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_events_lead_to_one_state),
        cmocka_unit_test(nothing_is_half_done_without_memory),
        cmocka_unit_test(fields_of_a_newer_node_survive),
        cmocka_unit_test(takes_no_foreign_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
