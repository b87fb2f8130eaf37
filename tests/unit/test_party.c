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

static void begin_life(struct life *life)
{
    const struct party_options options = {.node = "tower", .seed = 1, .reopen_ms = REOPEN_MS};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_proposed_counts_once),
        cmocka_unit_test(the_state_that_is_shown_outlives_a_failure),
        cmocka_unit_test(proposals_end_with_the_node),
        cmocka_unit_test(nobody_answers_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
