/* A replica takes no word from those whose it is not to say. */
#include "base/limits.h"
#include "base/mem.h"
#include "replica_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

/* It goes no further, and nothing is different but for that. */
static void refuse(struct stage *s, uint64_t from, struct wire_message message, const char *why)
{
    const struct replica_status before = replica_status(s->replica);
    assert_int_not_equal(tell(s, from, message), ERROR_NONE);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" is not said in \"%s\"", why, err.text);
    const struct replica_status after = replica_status(s->replica);
    assert_true(after.term == before.term && after.leader == before.leader &&
                after.leads == before.leads && after.last == before.last &&
                after.commit == before.commit && !after.failed &&
                lineage_compare(after.lineage, before.lineage) == 0);
}

static struct wire_message an_append(uint64_t term, uint64_t prev, uint64_t prev_term,
                                     struct log_entry *entries, uint32_t n)
{
    return (struct wire_message){
        .type = WIRE_APPEND,
        .append = {
            term, prev, prev_term, prev + n, {.first = prev + 1, .n = n, .entries = entries}}};
}

static struct wire_message a_vote(uint64_t term)
{
    return (struct wire_message){.type = WIRE_VOTE, .vote = {term, 9, 1, true, false}};
}

static struct wire_message an_install(uint64_t term, uint64_t index, const struct log_entry *list)
{
    return (struct wire_message){.type = WIRE_INSTALL,
                                 .install = {term,
                                             {.index = index,
                                              .term = term,
                                              .members_index = 1,
                                              .members = list->bytes,
                                              .members_size = list->size,
                                              .state = (uint8_t *)(uintptr_t)"s",
                                              .state_size = 1}}};
}

/* The first snapshot is on its way to the disk, and with it the first list. */
static void nobody_else_leads_while_the_first_snapshot_is_written(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry list = members_entry(1, 1, bytes), forged[] = {event_entry(4)};
    new_stage(&s);
    s.hold_writes = true;
    hear(&s, LEADER, an_install(1, 3, &list));
    assert_true(s.n_writes > 0 && replica_status(s.replica).leader == LEADER);
    refuse(&s, 9, an_append(4, 3, 1, forged, 1), "has no vote");
    refuse(&s, 9, a_vote(4), "without a vote");
    finish_writes(&s);
    look(&s);
    assert_true(replica_status(s.replica).leader == LEADER && replica_status(s.replica).term == 1);
    drop_stage(&s);
}

/* Of three members one votes, and leads. Another says that it leads, stands for election, hands
 * over: as long as the leader is heard nothing comes of it. */
static void nobody_leads_without_a_vote(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 1, bytes), event_entry(1)};
    struct log_entry forged[] = {event_entry(2)};
    new_stage(&s);
    append(&s, 1, 0, 0, 2, entries, 2);
    refuse(&s, 9, an_append(2, 2, 1, forged, 1), "has no vote");
    refuse(&s, 9, an_append(1, 2, 1, NULL, 0), "another leads");
    refuse(&s, 9, an_install(2, 50, entries), "has no vote");
    refuse(&s, 9, a_vote(2), "without a vote");
    refuse(&s, 10, a_vote(2), "without a vote"); /* a stranger */
    refuse(&s, 9, (struct wire_message){.type = WIRE_TIMEOUT_NOW, .timeout_now = {1, 2, 1}},
           "cannot hand over");
    refuse(&s, LEADER, (struct wire_message){.type = WIRE_TIMEOUT_NOW, .timeout_now = {9, 2, 1}},
           "cannot hand over"); /* in a term that is not its */
    append(&s, 1, 2, 1, 2, NULL, 0);
    assert_true(replica_status(s.replica).leader == LEADER && s.disk.term == 1);
    /* Nobody is heard for long: our list may be the older one. */
    s.now_ms += 6000;
    hear(&s, 9, an_append(2, 2, 1, forged, 1));
    assert_true(replica_status(s.replica).leader == 9 && log_last(&s.disk.log) == 3);
    /* But whoever votes here may always take it back. */
    hear(&s, LEADER, an_append(3, 2, 1, NULL, 0));
    assert_true(replica_status(s.replica).leader == LEADER);
    drop_stage(&s);
}

static void one_leader_a_term(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 7, bytes), event_entry(1)};
    new_stage(&s);
    append(&s, 1, 0, 0, 2, entries, 2);
    refuse(&s, 9, an_append(1, 2, 1, NULL, 0), "another leads in that term");
    hear(&s, 9, an_append(2, 2, 1, NULL, 0));
    refuse(&s, LEADER, an_append(2, 2, 1, NULL, 0), "another leads in that term");
    refuse(&s, LEADER, an_install(2, 9, entries), "another leads in that term");
    assert_int_equal(replica_status(s.replica).leader, 9);
    drop_stage(&s);
}

static void terms_do_not_leap(void **unused)
{
    const uint64_t last = UINT64_C(1) << 36;
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 7, bytes), event_entry(1)};
    new_stage(&s);
    append(&s, 1, 0, 0, 2, entries, 2);
    const char *const why = "too far ahead";
    refuse(&s, LEADER, an_append(last, 2, 1, NULL, 0), why);
    refuse(&s, LEADER, a_vote(last), why);
    refuse(&s, LEADER, an_install(last, 50, entries), why);
    refuse(&s, LEADER,
           (struct wire_message){.type = WIRE_APPEND_RESULT, .append_result = {last, 0, 0}}, why);
    refuse(&s, LEADER,
           (struct wire_message){.type = WIRE_VOTE_RESULT, .vote_result = {last, false, false}},
           why);
    refuse(&s, LEADER, an_append(2 + LIMIT_CLUSTER_TERM_LEAP, 2, 1, NULL, 0), why);
    struct wire_message snapshot = an_install(2, UINT64_C(1) << 32, entries);
    refuse(&s, LEADER, snapshot, why);
    hear(&s, LEADER, an_append(1 + LIMIT_CLUSTER_TERM_LEAP, 2, 1, NULL, 0));
    const uint64_t term = replica_status(s.replica).term;
    refuse(&s, LEADER, an_append(term + 100, 2, 1, NULL, 0), why); /* and not again at once */
    s.now_ms += 31 * 1000;
    hear(&s, LEADER, an_append(term + 100, 2, 1, NULL, 0));
    drop_stage(&s);
}

/* With the longest numbers that a message may have the log starts again (wire.c). */
static void the_longest_numbers_are_survived(void **unused)
{
    const uint64_t term = UINT64_C(1) << 36, index = (UINT64_C(1) << 32) - 3;
    struct stage s;
    uint8_t bytes[64];
    struct log_entry list[] = {members_entry(1, 7, bytes)};
    struct log_entry entries[] = {event_entry(term), event_entry(term), event_entry(term)};
    struct wire_message snapshot = an_install(term, index, list);
    new_stage(&s);
    hear(&s, LEADER, snapshot);
    hear(&s, LEADER, an_append(term, index, term, entries, 3));
    assert_true(log_last(&s.disk.log) == index + 3 && s.disk.term == term);
    close_stage(&s);
    open_stage(&s);
    assert_true(replica_status(s.replica).term == term);
    drop_stage(&s);
}

/* libraft ends itself when it is told so. */
static void what_is_committed_is_not_contradicted(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 7, bytes), event_entry(1), event_entry(1)};
    struct log_entry forged[] = {event_entry(2), event_entry(2)};
    const char *const why = "contradicts what is committed";
    new_stage(&s);
    append(&s, 1, 0, 0, 2, entries, 3);
    refuse(&s, 9, an_append(2, 1, 1, forged, 2), why);
    refuse(&s, 9, an_append(3, 2, 2, NULL, 0), why);
    refuse(&s, 9, an_install(3, 2, entries), why);
    hear(&s, 9, an_append(2, 2, 1, forged, 2)); /* not yet committed */
    assert_true(replica_status(s.replica).commit == 4);
    drop_stage(&s);
}

/* An append speaks of what is before and in it; what else is here may be another leader's. */
static void nothing_is_committed_that_was_not_sent(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 7, bytes), event_entry(1), event_entry(1)};
    new_stage(&s);
    append(&s, 1, 0, 0, 1, entries, 3);
    append(&s, 1, 2, 1, UINT32_MAX, NULL, 0);
    assert_true(replica_status(s.replica).commit == 2);
    drop_stage(&s);
}

/* A leader of three, of whom it alone votes: answers of those that it did not ask, and higher terms
 * from those without a vote. */
static void a_leader_steps_down_for_few(void **unused)
{
    static struct members members = {.n = 2, .list = {{SELF, true}, {9, false}}};
    struct stage s = {.now_ms = 1000};
    struct log_write first;
    const struct lineage lineage = {1, SELF};
    assert_int_equal(replica_found(SELF, &first, &err), ERROR_NONE);
    assert_int_equal(log_saved_write(&s.disk, &first, &err), ERROR_NONE);
    log_write_clear(&first);
    open_stage(&s);
    assert_int_equal(replica_change_members(s.replica, s.now_ms, &members, &err), ERROR_NONE);
    look(&s);
    const uint64_t term = replica_status(s.replica).term;
    const struct wire_message higher = {
        .type = WIRE_APPEND_RESULT, .lineage = lineage, .append_result = {term + 1, 0, 0}};
    refuse(&s, 10, higher, "was not asked");
    struct wire_message vote = a_vote(term + 1);
    vote.lineage = lineage;
    refuse(&s, 9, vote, "without a vote");
    assert_int_equal(tell(&s, 9, higher), ERROR_NONE); /* once */
    s.now_ms += 3000;
    replica_tick(s.replica, s.now_ms);
    look(&s);
    const uint64_t next = replica_status(s.replica).term;
    assert_true(replica_status(s.replica).leads && next > term);
    struct wire_message again = higher;
    again.append_result.term = next + 1;
    refuse(&s, 9, again, "too often");
    drop_stage(&s);
}

/* What nobody who is asked knows anything of. */
static void strangers_do_not_count(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 7, bytes)};
    struct wire_message status = {.type = WIRE_STATUS, .status = {900, 900, true, true}};
    new_stage(&s);
    append(&s, 1, 0, 0, 1, entries, 1);
    s.n_sent = 0;
    for (uint64_t id = 1000; id < 3100; id++) {
        s.n_sent = 0;
        hear(&s, id, status);
        assert_non_null(last_sent(&s, WIRE_STATUS)); /* it is answered */
    }
    drop_stage(&s);
}

/* That there is a higher lineage is anybody's word. The log goes on until the whole of the other
 * has come. */
static void a_log_is_there_until_the_higher_one_has_come(void **unused)
{
    struct stage s = {.now_ms = 1000};
    struct log_write first;
    uint8_t bytes[64];
    struct log_entry list[] = {members_entry(5, 1, bytes), event_entry(5)};
    assert_int_equal(replica_found(SELF, &first, &err), ERROR_NONE);
    assert_int_equal(log_saved_write(&s.disk, &first, &err), ERROR_NONE);
    log_write_clear(&first);
    open_stage(&s);
    const uint64_t last = log_last(&s.disk.log);
    assert_true(replica_status(s.replica).leads && last == 2); /* the members, and its own term's */

    const struct lineage higher = {2, LEADER}, leap = {UINT64_C(1) << 36, LEADER}, nobody = {2, 99},
                         other = {1, LEADER};
    struct wire_message hearsay[] = {
        {.type = WIRE_STATUS, .status = {9, 9, true, true}},
        {.type = WIRE_VOTE, .vote = {6, 3, 5, false, false}},
        {.type = WIRE_TIMEOUT_NOW, .timeout_now = {6, 3, 5}},
        an_append(5, 3, 5, NULL, 0),
    };
    for (size_t i = 0; i < sizeof hearsay / sizeof *hearsay; i++) {
        hearsay[i].lineage = higher;
        assert_int_equal(tell(&s, LEADER, hearsay[i]), ERROR_NONE);
        assert_true(replica_status(s.replica).leads && s.disk.lineage.founder == SELF);
    }
    assert_null(last_sent(&s, WIRE_VOTE_RESULT)); /* it could not be kept */
    const struct wire_message *answer = last_sent(&s, WIRE_APPEND_RESULT);
    assert_true(answer->append_result.rejected == 3 && answer->append_result.last_index == 0 &&
                lineage_compare(answer->lineage, higher) == 0); /* send it all */

    struct wire_message whole = an_install(5, 9, list), entries = an_append(5, 0, 0, list, 2);
    whole.lineage = leap;
    refuse(&s, LEADER, whole, "generation is too far ahead");
    whole.lineage = nobody;
    refuse(&s, LEADER, whole, "nobody knows the founder");
    whole.lineage = higher;
    refuse(&s, 10, whole, "in which it is not");
    entries.lineage = higher;
    refuse(&s, LEADER, entries, "begins with a snapshot");
    entries.lineage = other; /* of the same generation: another cluster's */
    refuse(&s, LEADER, entries, "begins with a snapshot");
    whole.install.snapshot.state = (uint8_t *)(uintptr_t)"x";
    refuse(&s, LEADER, whole, "no state");
    assert_true(s.disk.lineage.founder == SELF && log_last(&s.disk.log) == last);
    whole.install.snapshot.state = (uint8_t *)(uintptr_t)"s";
    s.hold_writes = true;
    assert_int_equal(tell(&s, LEADER, whole), ERROR_NONE);
    assert_true(s.n_writes == 1 && s.writes[0].reset && s.writes[0].aside &&
                s.writes[0].has_snapshot && s.writes[0].term == 5);
    close_stage(&s); /* the power goes */
    s.hold_writes = false;
    open_stage(&s);
    assert_true(replica_status(s.replica).leads && s.disk.lineage.founder == SELF);
    assert_int_equal(tell(&s, LEADER, whole), ERROR_NONE);
    assert_true(s.disk.lineage.founder == LEADER && s.disk.term == 5 && s.disk.snapshot.index == 9);
    assert_true(replica_status(s.replica).applied == 9 && !replica_status(s.replica).leads);
    close_stage(&s);
    open_stage(&s);
    assert_int_equal(replica_status(s.replica).lineage.founder, LEADER);
    drop_stage(&s);
}

static void refuses_what_cannot_be(void **unused)
{
    struct stage s;
    uint64_t index;
    uint8_t *large = mem_new(LIMIT_CLUSTER_ENTRY_BYTES + 1);
    struct log_saved gap = {.term = 1, .log = {.first = 5}};
    struct replica_options options = replica_options_default();
    struct replica *replica;
    new_stage(&s);
    assert_int_equal(replica_receive(s.replica, 0, 9, (const uint8_t *)"", 0, &err), ERROR_INVALID);
    assert_int_equal(replica_receive(s.replica, 0, SELF, (const uint8_t *)"x", 1, &err),
                     ERROR_INVALID);
    assert_int_equal(replica_submit(s.replica, 0, large, 1, &index, &err), ERROR_BUSY);
    assert_int_equal(
        replica_submit(s.replica, 0, large, LIMIT_CLUSTER_ENTRY_BYTES + 1, &index, &err),
        ERROR_INVALID);
    struct log_entry entry = event_entry(1);
    options.id = SELF;
    assert_int_equal(log_append(&gap.log, &entry, &err), ERROR_NONE);
    assert_int_equal(replica_open(&options, &gap, 0, &replica, &err), ERROR_INVALID);
    log_saved_clear(&gap);
    mem_free(large);
    drop_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_is_there_until_the_higher_one_has_come),
        cmocka_unit_test(nobody_leads_without_a_vote),
        cmocka_unit_test(nobody_else_leads_while_the_first_snapshot_is_written),
        cmocka_unit_test(one_leader_a_term),
        cmocka_unit_test(terms_do_not_leap),
        cmocka_unit_test(the_longest_numbers_are_survived),
        cmocka_unit_test(what_is_committed_is_not_contradicted),
        cmocka_unit_test(nothing_is_committed_that_was_not_sent),
        cmocka_unit_test(a_leader_steps_down_for_few),
        cmocka_unit_test(strangers_do_not_count),
        cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
