/* A party by hand: time and events in, effects out. What it does among others is tested in
 * test_agreement.c, with sockets' delays in their place, and by `medley sim`. */
#include "agreement/party.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error err;

enum { SELF = 7, REOPEN_MS = 5000 };

struct life {
    struct party *party;
    struct log_saved disk;
    uint64_t now_ms;
    uint32_t n_entries, n_seen, n_done, n_failed, n_reopens, n_changed;
    enum error_code done;
    bool applied;
};

static void note_done(void *arg, enum error_code code, const struct state_outcome *outcome,
                      const struct error *why)
{
    struct life *life = arg;
    life->n_done++;
    life->done = code;
    life->applied = outcome && outcome->applied;
    assert_true((code != ERROR_NONE) == (why->code != ERROR_NONE));
}

static void carry_out(struct life *life, struct party_effect *effect)
{
    switch (effect->type) {
    case PARTY_WRITE:
        assert_int_equal(log_saved_write(&life->disk, effect->write, &err), ERROR_NONE);
        party_written(life->party, life->now_ms, effect->write->sequence);
        break;
    case PARTY_ENTRY:
        life->n_entries++;
        life->n_seen += effect->seen;
        break;
    case PARTY_DONE:
        effect->done(effect->arg, effect->err.code, effect->outcome, &effect->err);
        break;
    case PARTY_FAILED:
        life->n_failed++;
        break;
    case PARTY_REOPEN:
        life->n_reopens++;
        assert_int_equal(party_begin(life->party, life->now_ms, SELF, &life->disk, &err),
                         ERROR_NONE);
        break;
    case PARTY_CHANGED:
        life->n_changed++;
        break;
    case PARTY_SEND:
    case PARTY_FORWARD:
    case PARTY_RESTORED:
    case PARTY_DROPPED:
        fail_msg("effect %d of a node that is alone", effect->type);
    }
}

static void live_until(struct life *life, uint64_t until_ms)
{
    struct party_effect effect;
    do {
        party_tick(life->party, life->now_ms);
        while (party_next(life->party, &effect))
            carry_out(life, &effect);
        const uint64_t due_ms = party_timer(life->party);
        life->now_ms = due_ms > life->now_ms ? due_ms : life->now_ms + 1;
    } while (life->now_ms < until_ms);
    life->now_ms = until_ms;
}

static void begin_life_as(struct life *life, const char *node, const struct identity *signer)
{
    const struct party_options options = {
        .node = node, .signer = signer, .seed = 1, .reopen_ms = REOPEN_MS};
    struct log_write first;
    *life = (struct life){.now_ms = 1000};
    assert_int_equal(replica_found(SELF, &first, &err), ERROR_NONE);
    assert_int_equal(log_saved_write(&life->disk, &first, &err), ERROR_NONE);
    log_write_clear(&first);
    assert_int_equal(party_new(&options, &life->party, &err), ERROR_NONE);
    assert_int_equal(party_begin(life->party, life->now_ms, SELF, &life->disk, &err), ERROR_NONE);
    live_until(life, 2000);
    assert_true(party_status(life->party).leads);
}

static void begin_life(struct life *life)
{
    begin_life_as(life, "tower", NULL);
}

static void end_life(struct life *life)
{
    party_free(life->party);
    log_saved_clear(&life->disk);
}

static void propose_setting(struct life *life, const char *value)
{
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    setting.key = (char *)(uintptr_t)"color";
    setting.value = (char *)(uintptr_t)value;
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    assert_int_equal(party_propose(life->party, life->now_ms, 12345, &event, note_done, life, &err),
                     ERROR_NONE);
    assert_true(event.has_nonce && !event.by);
}

static const char *color(const struct life *life)
{
    const char *value = state_setting(party_state(life->party), "color");
    return value ? value : "";
}

static void what_is_proposed_counts_once(void **unused)
{
    struct life life;
    begin_life(&life);
    propose_setting(&life, "red");
    assert_int_equal(life.n_done, 0); /* never from within the call */
    live_until(&life, 4000);
    assert_true(life.n_done == 1 && life.done == ERROR_NONE && life.applied);
    assert_string_equal(color(&life), "red");
    assert_true(life.n_changed > 0 && life.n_failed == 0);
    end_life(&life);
}

static void the_state_that_is_shown_outlives_a_failure(void **unused)
{
    struct life life;
    struct error full;
    begin_life(&life);
    propose_setting(&life, "red");
    live_until(&life, 4000);
    error_set(&full, ERROR_IO, "the disk is full");
    party_fail(life.party, life.now_ms, &full, PARTY_RETRIES);
    propose_setting(&life, "blue");
    live_until(&life, 4000 + REOPEN_MS - 10);
    assert_true(life.n_failed == 1 && life.n_reopens == 0 && !party_takes_part(life.party));
    assert_string_equal(color(&life), "red");
    assert_string_equal(party_failure(life.party)->text, "the disk is full");
    live_until(&life, 4000 + REOPEN_MS + 100);
    assert_true(life.n_reopens == 1 && life.n_seen == 2 && party_takes_part(life.party));
    assert_true(life.n_done == 2 && life.applied);
    assert_string_equal(color(&life), "blue");
    end_life(&life);
}

static void proposals_end_with_the_node(void **unused)
{
    struct life life;
    begin_life(&life);
    propose_setting(&life, "red");
    party_stop(life.party);
    live_until(&life, 3000);
    assert_true(life.n_done == 1 && life.done == ERROR_CANCELLED);
    propose_setting(&life, "blue");
    live_until(&life, 4000);
    assert_true(life.n_done == 2 && life.done == ERROR_CANCELLED);
    assert_true(party_timer(life.party) == UINT64_MAX);
    end_life(&life);
}

static void nobody_answers_for_long(void **unused)
{
    struct life life;
    struct error damaged;
    begin_life(&life);
    error_set(&damaged, ERROR_INVALID, "it is damaged");
    party_fail(life.party, life.now_ms, &damaged, PARTY_RETRIES);
    propose_setting(&life, "red");
    live_until(&life, life.now_ms + LIMIT_PROPOSAL_MS + 1000);
    assert_true(life.n_done == 1 && life.done == ERROR_BUSY && life.n_reopens == 0);
    end_life(&life);
}

/* ---- what needs an admin ---- */

static void propose_about(struct life *life, Cluster__Event__KindCase kind, const char *id)
{
    Cluster__Node node = CLUSTER__NODE__INIT;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__NodeRole role = CLUSTER__NODE_ROLE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    uint8_t bytes[PUBLIC_KEY_BYTES] = {1};
    node.has_level = true;
    node.level = event_level_known();
    node.id = node.name = name.id = role.id = (char *)(uintptr_t)id;
    role.has_role = role.has_cluster = role.has_authority = true;
    role.role = CLUSTER__ROLE__ADMIN;
    role.cluster = (ProtobufCBinaryData){CLUSTER_ID_BYTES, bytes};
    role.authority = (ProtobufCBinaryData){PUBLIC_KEY_BYTES, bytes};
    event.kind_case = kind;
    if (kind == CLUSTER__EVENT__KIND_NODE_JOINED)
        event.node_joined = &node;
    else if (kind == CLUSTER__EVENT__KIND_NODE_ROLE)
        event.node_role = &role;
    else
        event.node_admitted = &name;
    life->applied = false;
    assert_int_equal(party_propose(life->party, life->now_ms, 12345, &event, note_done, life, &err),
                     ERROR_NONE);
}

/* It founds the cluster, and is its first admin. */
static void begin_life_as_admin(struct life *life, struct identity *admin, char id[NODE_ID_TEXT])
{
    assert_int_equal(identity_make(admin, &err), ERROR_NONE);
    id_text(admin->node_id, NODE_ID_BYTES, id);
    begin_life_as(life, id, admin);
    propose_about(life, CLUSTER__EVENT__KIND_NODE_JOINED, id);
    propose_about(life, CLUSTER__EVENT__KIND_NODE_ADMITTED, id);
    live_until(life, 3000);
    propose_about(life, CLUSTER__EVENT__KIND_NODE_ROLE, id);
    live_until(life, 4000);
    assert_true(life->n_done == 3 && life->done == ERROR_NONE && life->applied);
    assert_true(state_has_roles(party_state(life->party)));
}

/* Signed in one go, for the same number: each but the first comes too late, and is signed again. */
static void changes_at_once_all_count(void **unused)
{
    struct identity admin;
    struct life life;
    char id[NODE_ID_TEXT];
    begin_life_as_admin(&life, &admin, id);
    static const char *const guests[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        propose_about(&life, CLUSTER__EVENT__KIND_NODE_JOINED, guests[i]);
    live_until(&life, 6000);
    assert_int_equal(life.n_done, 7);
    for (int i = 0; i < 4; i++)
        assert_non_null(state_node(party_state(life.party), guests[i]));
    assert_true(party_state(life.party)->root->admin_changes == 5);
    assert_true(party_state(life.party)->root->ignored == 3 + 2 + 1);
    end_life(&life);
    identity_deinit(&admin);
}

/* Without its key a node's wish is refused, and it is told why. */
static void who_cannot_sign_is_told(void **unused)
{
    struct identity admin;
    struct life life;
    char id[NODE_ID_TEXT];
    begin_life_as_admin(&life, &admin, id);
    struct party_options without = {.node = id, .seed = 2, .reopen_ms = REOPEN_MS};
    party_free(life.party);
    assert_int_equal(party_new(&without, &life.party, &err), ERROR_NONE);
    assert_int_equal(party_begin(life.party, life.now_ms, SELF, &life.disk, &err), ERROR_NONE);
    live_until(&life, 6000);
    propose_about(&life, CLUSTER__EVENT__KIND_NODE_JOINED, "a");
    live_until(&life, 8000);
    assert_true(life.n_done == 4 && life.done == ERROR_NONE && !life.applied);
    assert_null(state_node(party_state(life.party), "a"));
    end_life(&life);
    identity_deinit(&admin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_proposed_counts_once),
        cmocka_unit_test(the_state_that_is_shown_outlives_a_failure),
        cmocka_unit_test(proposals_end_with_the_node),
        cmocka_unit_test(nobody_answers_for_long),
        cmocka_unit_test(changes_at_once_all_count),
        cmocka_unit_test(who_cannot_sign_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
