/* The state: total over any event, the same everywhere, the same after a snapshot; epochs; fields
 * of a newer node. */
#include "audit/note.h"
#include "audit/seal.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cluster_events.h"
#include "placement/problem.h"

#include <math.h>
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

/* ---- alerts ---- */

static const char *say_raised(struct state *state, const char *kind, const char *subject)
{
    Cluster__Alert alert = CLUSTER__ALERT__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    static uint64_t index;
    struct buffer bytes = {0};
    struct state_outcome outcome;
    alert.kind = (char *)(uintptr_t)kind, alert.subject = (char *)(uintptr_t)subject;
    event.kind_case = CLUSTER__EVENT__KIND_ALERT_RAISED, event.alert_raised = &alert;
    event_encode(&event, &bytes);
    apply_ok(state, ++index, &bytes, &outcome);
    buffer_deinit(&bytes);
    return outcome.reason;
}

static const char *say_cleared(struct state *state, const char *kind, const char *subject,
                               uint64_t time_ms, const char *why)
{
    Cluster__AlertCleared cleared = CLUSTER__ALERT_CLEARED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    static uint64_t index = 10000;
    struct buffer bytes = {0};
    struct state_outcome outcome;
    cleared.kind = (char *)(uintptr_t)kind, cleared.subject = (char *)(uintptr_t)subject;
    cleared.why = (char *)(uintptr_t)why;
    event.kind_case = CLUSTER__EVENT__KIND_ALERT_CLEARED, event.alert_cleared = &cleared;
    event.has_time_ms = true, event.time_ms = time_ms;
    event_encode(&event, &bytes);
    apply_ok(state, ++index, &bytes, &outcome);
    buffer_deinit(&bytes);
    return outcome.reason;
}

static void alerts_are_raised_once_and_cleared(void **unused)
{
    struct state state = {0};
    assert_string_equal(say_cleared(&state, "hot", "n/gpu0", 1, NULL), "there is no such alert");
    assert_null(say_raised(&state, "hot", "n/gpu0"));
    assert_string_equal(say_raised(&state, "hot", "n/gpu0"), "that alert is up already");
    assert_null(say_raised(&state, "hot", "n/gpu1"));
    assert_string_equal(say_raised(&state, "hot", ""), "the alert has no kind or subject");
    assert_non_null(state_alert(&state, "hot", "n/gpu0"));
    assert_null(say_cleared(&state, "hot", "n/gpu0", 77, "muted"));
    assert_null(state_alert(&state, "hot", "n/gpu0"));
    assert_int_equal(state.root->n_alerts, 1);
    assert_int_equal(state.root->n_cleared_alerts, 1);
    const Cluster__Alert *over = state.root->cleared_alerts[0];
    assert_true(over->cleared_ms == 77 && strcmp(over->why, "muted") == 0);
    assert_string_equal(over->subject, "n/gpu0");
    assert_null(say_raised(&state, "hot", "n/gpu0"));
    state_deinit(&state);
}

static void alerts_are_limited(void **unused)
{
    struct state state = {0}, copy = {0};
    static char text[LIMIT_ALERT_BYTES];
    char subject[32];
    memset(text, 'x', LIMIT_CLUSTER_TEXT_BYTES);
    assert_null(say_raised(&state, "hot", text));
    text[LIMIT_CLUSTER_TEXT_BYTES] = 'x';
    assert_non_null(say_raised(&state, "hot", text));
    for (int i = 1; i < LIMIT_ALERTS; i++) {
        snprintf(subject, sizeof subject, "n%d", i);
        assert_null(say_raised(&state, "hot", subject));
    }
    assert_string_equal(say_raised(&state, "hot", "one more"), "there are too many alerts");
    for (int i = 1; i < LIMIT_ALERTS; i++) {
        snprintf(subject, sizeof subject, "n%d", i);
        assert_null(say_cleared(&state, "hot", subject, 5, NULL));
    }
    assert_int_equal(state.root->n_cleared_alerts, LIMIT_ALERTS_CLEARED);
    assert_string_equal(state.root->cleared_alerts[LIMIT_ALERTS_CLEARED - 1]->subject, subject);
    struct buffer snapshot = encoded(&state);
    assert_int_equal(state_decode(&copy, (const uint8_t *)snapshot.data, snapshot.size, &err),
                     ERROR_NONE);
    /* One that is up twice, or over, is from nobody's log. */
    state.root->cleared_alerts[0]->has_cleared_ms = false;
    struct buffer bad = encoded(&state);
    assert_int_equal(state_decode(&copy, (const uint8_t *)bad.data, bad.size, &err), ERROR_INVALID);
    buffer_deinit(&snapshot), buffer_deinit(&bad);
    state_deinit(&state), state_deinit(&copy);
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

/* ---- the record of who did what ---- */

static void apply_event(struct state *state, Cluster__Event *event, struct state_outcome *outcome)
{
    static uint64_t index;
    struct buffer bytes = {0};
    event->by = (char *)(uintptr_t)"b1";
    event_encode(event, &bytes);
    apply_ok(state, ++index, &bytes, outcome);
    buffer_deinit(&bytes);
}

static void add_node(struct state *state, const char *id, uint32_t level,
                     struct state_outcome *outcome)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    Cluster__Node node = CLUSTER__NODE__INIT;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    node.id = node.name = name.id = (char *)(uintptr_t)id;
    node.has_level = true, node.level = level;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED, event.node_joined = &node;
    apply_event(state, &event, outcome);
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED, event.node_admitted = &name;
    apply_event(state, &event, outcome);
}

/* What a node writes down of an event: made again from it, and from what became of it. */
static struct recorded recorded_again(Cluster__Event *event, struct state_outcome *outcome)
{
    struct recorded recorded;
    struct recorded_outcome again = outcome->recorded;
    event->by = (char *)(uintptr_t)"b1";
    assert_int_equal(recorded_prepare(event, &recorded, &err), ERROR_NONE);
    recorded_finish(&recorded, outcome->reason, &again);
    assert_memory_equal(&again.to, &outcome->recorded.to, sizeof again.to);
    return recorded;
}

static void record_begins_when_all_know_it(void **unused)
{
    struct state state = {0};
    struct state_outcome outcome;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    add_node(&state, "old", EVENT_ROW_AUDITED - 1, &outcome);
    add_node(&state, "new", EVENT_ROW_AUDITED, &outcome);
    assert_false(outcome.recorded.counts);
    assert_int_equal(state_audit_end(&state).number, 0);
    name.id = (char *)(uintptr_t)"old";
    event.actor = (char *)(uintptr_t)"alice at tower";
    event.kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED, event.node_removed = &name;
    apply_event(&state, &event, &outcome);
    assert_true(outcome.recorded.counts && outcome.recorded.begins);
    struct recorded recorded = recorded_again(&event, &outcome);
    assert_int_equal(recorded.n, 2);
    assert_string_equal(recorded.entries[0].what, "record.begun");
    assert_string_equal(recorded.entries[1].what, "node.removed");
    assert_string_equal(recorded.entries[1].subject, "old");
    assert_string_equal(recorded.entries[1].who, "alice at tower");
    assert_string_equal(recorded.entries[1].outcome, "done");
    assert_false(recorded.entries[1].told);
    assert_int_equal(recorded.entries[1].number, 2);
    recorded_clear(&recorded);
    apply_event(&state, &event, &outcome); /* again, which makes no sense: it is recorded as that */
    recorded = recorded_again(&event, &outcome);
    assert_int_equal(recorded.n, 1);
    assert_string_equal(recorded.entries[0].outcome, "refused: there is no such node");
    recorded_clear(&recorded);
    assert_int_equal(state_audit_end(&state).number, 3);
    state_deinit(&state);
}

/* The state that follows from a snapshot goes on with the same record. */
static void snapshots_carry_the_record(void **unused)
{
    struct state state = {0}, copy = {0};
    struct state_outcome outcome, again;
    add_node(&state, "a1", EVENT_ROW_AUDITED, &outcome);
    struct buffer bytes = encoded(&state);
    assert_int_equal(state_decode(&copy, (uint8_t *)bytes.data, bytes.size, &err), ERROR_NONE);
    add_node(&state, "a2", EVENT_ROW_AUDITED, &outcome);
    add_node(&copy, "a2", EVENT_ROW_AUDITED, &again);
    assert_memory_equal(&outcome.recorded.to, &again.recorded.to, sizeof again.recorded.to);
    assert_int_equal(again.recorded.to.number, 4);
    /* A record's end that no events lead to is refused. */
    copy.root->audit->hash.len = 31;
    buffer_clear(&bytes);
    state_encode(&copy, &bytes);
    struct state bad = {0};
    assert_int_equal(state_decode(&bad, (uint8_t *)bytes.data, bytes.size, &err), ERROR_INVALID);
    copy.root->audit->hash.len = 32;
    buffer_deinit(&bytes);
    state_deinit(&state);
    state_deinit(&copy);
}

static void told_notes_are_recorded_as_told(void **unused)
{
    struct state state = {0};
    struct state_outcome outcome;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    Cluster__AuditNote note = CLUSTER__AUDIT_NOTE__INIT, *notes[LIMIT_AUDIT_NOTES + 1];
    Cluster__Audited audited = CLUSTER__AUDITED__INIT;
    add_node(&state, "a1", EVENT_ROW_AUDITED, &outcome);
    note.what = (char *)(uintptr_t)"token.refused";
    note.who = (char *)(uintptr_t)"token ci";
    note.outcome = (char *)(uintptr_t)"it\x1b[31m has expired";
    note.has_time_ms = true, note.time_ms = 77;
    for (size_t i = 0; i < LIMIT_AUDIT_NOTES + 1; i++)
        notes[i] = &note;
    audited.notes = notes, audited.n_notes = 2;
    event.kind_case = CLUSTER__EVENT__KIND_AUDITED, event.audited = &audited;
    apply_event(&state, &event, &outcome);
    assert_true(outcome.applied);
    struct recorded recorded = recorded_again(&event, &outcome);
    assert_int_equal(recorded.n, 2);
    assert_true(recorded.entries[1].told);
    assert_int_equal(recorded.entries[1].time_ms, 77);
    assert_string_equal(recorded.entries[1].node, "b1");
    assert_string_equal(recorded.entries[1].who, "token ci");
    assert_string_equal(recorded.entries[1].outcome, "it?[31m has expired");
    recorded_clear(&recorded);
    audited.n_notes = LIMIT_AUDIT_NOTES + 1;
    apply_event(&state, &event, &outcome);
    assert_false(outcome.applied);
    audited.n_notes = 1;
    note.what = (char *)(uintptr_t)AUDIT_SIGNED; /* without a signature */
    apply_event(&state, &event, &outcome);
    assert_false(outcome.applied);
    recorded = recorded_again(&event, &outcome);
    assert_int_equal(recorded.n, 1);
    assert_false(recorded.entries[0].told);
    assert_string_equal(recorded.entries[0].what, "record.note_refused");
    assert_string_equal(recorded.entries[0].who, "");
    recorded_clear(&recorded);
    state_deinit(&state);
}

/* Nobody signs the record's end in another's name. */
static void signed_ends_are_the_signers_own(void **unused)
{
    struct state state = {0};
    struct state_outcome outcome;
    struct identity signer;
    struct audit_entry entry = {0};
    char id[NODE_ID_TEXT];
    Cluster__Event event = CLUSTER__EVENT__INIT;
    Cluster__AuditNote note = CLUSTER__AUDIT_NOTE__INIT, *notes[] = {&note};
    Cluster__Audited audited = CLUSTER__AUDITED__INIT;
    assert_int_equal(identity_make(&signer, &err), ERROR_NONE);
    id_text(signer.node_id, NODE_ID_BYTES, id);
    add_node(&state, id, EVENT_ROW_AUDITED, &outcome);
    struct audit_end end = state_audit_end(&state);
    struct audit_seal seal = {
        .type = SEAL_HEAD, .first = 1, .last = end.number, .hash = end.hash, .time_ms = 5};
    assert_int_equal(seal_sign(&seal, &signer, &err), ERROR_NONE);
    seal_to_entry(&seal, &entry);
    note.what = entry.what, note.subject = entry.subject, note.outcome = entry.outcome;
    audited.notes = notes, audited.n_notes = 1;
    event.kind_case = CLUSTER__EVENT__KIND_AUDITED, event.audited = &audited;
    apply_event(&state, &event, &outcome); /* by "b1" */
    assert_false(outcome.applied);
    struct buffer bytes = {0};
    event.by = id;
    event_encode(&event, &bytes);
    apply_ok(&state, 100, &bytes, &outcome);
    assert_true(outcome.applied);
    buffer_clear(&bytes);
    entry.subject[6] ^= 1;
    event_encode(&event, &bytes);
    apply_ok(&state, 101, &bytes, &outcome);
    assert_false(outcome.applied);
    buffer_deinit(&bytes);
    identity_deinit(&signer);
    state_deinit(&state);
}

/* Numbers that no instance can have, from a member that means ill. */
static void demands_beyond_limits_are_refused(void **unused)
{
    struct state state = {0};
    struct state_outcome outcome;
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    uint8_t hash[32] = {1};
    model.name = (char *)"m";
    model.has_manifest = model.has_n_layers = true;
    model.manifest.len = 32, model.manifest.data = hash, model.n_layers = 4;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED, event.model_registered = &model;
    apply_event(&state, &event, &outcome);
    assert_true(outcome.applied);
    for (int i = 0; i < 10; i++) {
        Cluster__Demand demand = CLUSTER__DEMAND__INIT, wished = CLUSTER__DEMAND__INIT;
        Cluster__ScoreWeights weights = CLUSTER__SCORE_WEIGHTS__INIT;
        Cluster__Rope rope = CLUSTER__ROPE__INIT;
        demand.has_context_tokens = demand.has_streams = true;
        demand.context_tokens = 512, demand.streams = 1;
        demand.has_weights_bytes = demand.has_time_limit_s = true;
        demand.weights_bytes = i == 0 ? UINT64_MAX : 1 << 20;
        demand.time_limit_s = i == 1 ? LIMIT_PLACING_SEARCH_S + 1 : LIMIT_PLACING_SEARCH_S;
        demand.score_weights = &weights, demand.rope = &rope;
        weights.has_memory = i != 2; /* all are 0 */
        weights.memory = i == 3 ? 1000 * LIMIT_SCORE_WEIGHT + 1 : 60000;
        rope.has_scaling = rope.has_factor = rope.has_frequency_base = true;
        rope.scaling = i == 4 ? ROPE_CHOOSE_YARN + 1 : ROPE_CHOOSE_YARN;
        rope.factor = i == 5 ? NAN : i == 6 ? -2.0F : 2.0F;
        rope.frequency_base = i == 7 ? INFINITY : 0;
        wished.has_streams = true;
        wished.streams = i == 8 ? LIMIT_SEQUENCES + 1 : 0;
        instance.id = instance.model = (char *)"m";
        instance.demand = &demand, instance.wished = &wished;
        event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED, event.instance_desired = &instance;
        apply_event(&state, &event, &outcome);
        assert_true(outcome.applied == (i == 9));
    }
    const Cluster__Instance *there = state_instance(&state, "m");
    assert_non_null(there->wished);
    assert_true(state_rope(there->demand).type == ROPE_CHOOSE_YARN);
    state_deinit(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_events_lead_to_one_state),
        cmocka_unit_test(nothing_is_half_done_without_memory),
        cmocka_unit_test(fields_of_a_newer_node_survive),
        cmocka_unit_test(alerts_are_raised_once_and_cleared),
        cmocka_unit_test(alerts_are_limited),
        cmocka_unit_test(takes_no_foreign_snapshot),
        cmocka_unit_test(record_begins_when_all_know_it),
        cmocka_unit_test(snapshots_carry_the_record),
        cmocka_unit_test(told_notes_are_recorded_as_told),
        cmocka_unit_test(signed_ends_are_the_signers_own),
        cmocka_unit_test(demands_beyond_limits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
