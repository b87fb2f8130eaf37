/* Single traits of a replica, each in the shortest story that shows it. What it sees to beyond
 * libraft is tested here and in test_replica_hostile.c by hand-made messages, and in
 * test_replica_random.c by chance. */
#include "replica_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

static void a_late_vote_result_is_not_for_a_follower(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 7, bytes), event_entry(1)};
    new_stage(&s);
    append(&s, 1, 0, 0, 2, entries, 2);
    const uint64_t term = replica_status(s.replica).term;
    hear(&s, 9,
         (struct wire_message){.type = WIRE_VOTE_RESULT, .vote_result = {1000, true, false}});
    hear(&s, 9, (struct wire_message){.type = WIRE_VOTE_RESULT, .vote_result = {term, true, true}});
    assert_true(replica_status(s.replica).term == term &&
                replica_status(s.replica).leader == LEADER);
    close_stage(&s);
    open_stage(&s); /* without a leader other bytes lie where a candidate would have its own */
    hear(&s, 9,
         (struct wire_message){.type = WIRE_VOTE_RESULT, .vote_result = {1000, false, false}});
    assert_true(replica_status(s.replica).term == term);
    drop_stage(&s);
}

/* A vote is given only once it is durable. */
static void no_word_before_the_disk_has_it(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 7, bytes)};
    new_stage(&s);
    append(&s, 1, 0, 0, 1, entries, 1);
    close_stage(&s);
    open_stage(&s); /* so that it has no leader */
    s.hold_writes = true;
    s.n_sent = 0;
    hear(&s, 9, (struct wire_message){.type = WIRE_VOTE, .vote = {5, 9, 4, false, false}});
    assert_true(s.n_writes == 1 && s.writes[0].has_term && s.writes[0].term == 5 &&
                s.writes[0].vote == 9);
    assert_null(last_sent(&s, WIRE_VOTE_RESULT));
    hear(&s, LEADER, (struct wire_message){.type = WIRE_VOTE, .vote = {5, 9, 4, false, false}});
    assert_null(last_sent(&s, WIRE_VOTE_RESULT));
    finish_writes(&s);
    look(&s);
    uint32_t granted = 0;
    for (uint32_t i = 0; i < s.n_sent; i++) {
        assert_int_equal(s.sent[i].type, WIRE_VOTE_RESULT);
        granted += s.sent[i].vote_result.granted;
        assert_true(s.sent[i].vote_result.granted == (s.to[i] == 9));
    }
    assert_true(granted == 1 && s.disk.vote == 9);
    drop_stage(&s);
}

/* Two lists in one message: each is noted with its own index, and the first counts as committed.
 * When the second is taken back, the first is what remains. */
static void lists_of_members_in_one_message(void **unused)
{
    static struct members members;
    struct stage s;
    uint8_t one[64], two[64], three[64];
    struct log_entry entries[] = {members_entry(1, 1, one), event_entry(1),
                                  members_entry(1, 3, two), event_entry(1),
                                  members_entry(1, 7, three)};
    new_stage(&s);
    append(&s, 1, 0, 0, 1, entries, 5);
    replica_members(s.replica, &members);
    assert_true(members_voters(&members) == 3 && replica_status(s.replica).members_pending);
    const uint64_t one_id = members.list[0].id;
    assert_false(replica_has_agreed_on(s.replica, one_id)); /* the list is not applied */
    struct log_entry other[] = {event_entry(2), event_entry(2)};
    append(&s, 2, 3, 1, 3, other, 2); /* entries 4 and 5 never were */
    replica_members(s.replica, &members);
    assert_true(members_voters(&members) == 2);
    append(&s, 2, 5, 2, 5, NULL, 0);
    assert_true(replica_status(s.replica).applied == 5 &&
                !replica_status(s.replica).members_pending);
    assert_true(s.n_applied == 5);
    assert_true(replica_has_agreed_on(s.replica, one_id) && !replica_has_agreed_on(s.replica, 99));
    drop_stage(&s);
}

/* A late message speaks of less than is committed by now. */
static void the_commit_index_never_falls(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 1, bytes), event_entry(1), event_entry(1),
                                  event_entry(1)};
    new_stage(&s);
    append(&s, 1, 0, 0, 3, entries, 4);
    assert_true(replica_status(s.replica).commit == 3);
    append(&s, 1, 1, 1, 4, NULL, 0);
    assert_true(replica_status(s.replica).commit == 3 && replica_status(s.replica).applied == 3);
    append(&s, 1, 4, 1, 4, NULL, 0);
    assert_true(replica_status(s.replica).applied == 4 && s.n_applied == 4);
    drop_stage(&s);
}

/* Acknowledgements of entries that others have replaced say nothing of those. */
static void replaced_entries_are_not_acknowledged(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 1, bytes), event_entry(1), event_entry(1),
                                  event_entry(1)};
    struct log_entry others[] = {event_entry(2)};
    new_stage(&s);
    append(&s, 1, 0, 0, 1, entries, 1);
    s.hold_writes = true;
    s.n_sent = 0;
    append(&s, 1, 1, 1, 1, entries + 1, 3); /* 2 to 4 */
    append(&s, 2, 1, 1, 1, NULL,
           0); /* another term: until that is durable nothing is said at all */
    append(&s, 2, 2, 1, 1, others, 1); /* 3, instead of 3 and 4 */
    assert_true(s.n_writes == 3);
    finish_one_write(&s);
    look(&s);
    assert_int_equal(s.n_sent, 0);
    finish_one_write(&s);
    look(&s);
    assert_true(last_sent(&s, WIRE_APPEND_RESULT)->append_result.last_index == 2);
    finish_writes(&s);
    look(&s);
    assert_true(last_sent(&s, WIRE_APPEND_RESULT)->append_result.last_index == 3);
    assert_true(log_last(&s.disk.log) == 3 && log_at(&s.disk.log, 3)->term == 2);
    drop_stage(&s);
}

/* What a snapshot has swallowed is skipped, also in a message that begins with the first entry. */
static void entries_from_before_the_snapshot(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 1, bytes), event_entry(1), event_entry(1),
                                  event_entry(1)};
    const struct log_snapshot snapshot = {.index = 3,
                                          .term = 1,
                                          .members_index = 1,
                                          .members = entries[0].bytes,
                                          .members_size = entries[0].size,
                                          .state = (uint8_t *)(uintptr_t)"s",
                                          .state_size = 1};
    new_stage(&s);
    hear(&s, LEADER, (struct wire_message){.type = WIRE_INSTALL, .install = {1, snapshot}});
    assert_true(replica_status(s.replica).applied == 3 && replica_status(s.replica).last == 3);
    append(&s, 1, 0, 0, 4, entries, 4);
    assert_true(replica_status(s.replica).last == 4 && replica_status(s.replica).applied == 4);
    append(&s, 1, 1, 1, 4, entries + 1, 1);
    const struct wire_append_result *result = &last_sent(&s, WIRE_APPEND_RESULT)->append_result;
    assert_true(result->rejected == 0 && result->last_index >= 3);
    drop_stage(&s);
}

/* Of an older term nothing is answered but the term: libraft leaves the rest of that answer
 * unset. */
static void an_older_term_is_answered_with_the_term_alone(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 1, bytes), event_entry(1)};
    const struct log_snapshot snapshot = {.index = 9,
                                          .term = 1,
                                          .members_index = 1,
                                          .members = entries[0].bytes,
                                          .members_size = entries[0].size,
                                          .state = (uint8_t *)(uintptr_t)"s",
                                          .state_size = 1};
    new_stage(&s);
    append(&s, 3, 0, 0, 2, entries, 2);
    for (int i = 0; i < 2; i++) {
        s.n_sent = 0;
        if (i)
            hear(&s, LEADER, (struct wire_message){.type = WIRE_INSTALL, .install = {2, snapshot}});
        else
            append(&s, 2, 1, 1, 1, entries + 1, 1);
        const struct wire_append_result *result = &last_sent(&s, WIRE_APPEND_RESULT)->append_result;
        assert_true(result->term == 3 && result->rejected == 0 && result->last_index == 0);
    }
    append(&s, 3, 2, 1, 2, NULL, 0);
    assert_true(last_sent(&s, WIRE_APPEND_RESULT)->append_result.last_index == 2);
    drop_stage(&s);
}

/* A node whose own list gives it no vote still votes: the candidate's list may be the newer one. */
static void votes_without_knowing_that_it_may(void **unused)
{
    struct stage s;
    uint8_t bytes[64];
    struct log_entry entries[] = {members_entry(1, 1, bytes), event_entry(1)};
    new_stage(&s);
    append(&s, 1, 0, 0, 2, entries, 2);
    hear(&s, LEADER, (struct wire_message){.type = WIRE_VOTE, .vote = {2, 3, 1, false, false}});
    assert_false(
        last_sent(&s, WIRE_VOTE_RESULT)->vote_result.granted); /* its leader was just heard */
    s.now_ms += 2000;
    hear(&s, LEADER, (struct wire_message){.type = WIRE_VOTE, .vote = {3, 3, 1, false, false}});
    assert_true(last_sent(&s, WIRE_VOTE_RESULT)->vote_result.granted && s.disk.vote == LEADER &&
                s.disk.term == 3);
    drop_stage(&s);
}

static void a_sole_voter_takes_a_new_term_with_every_start(void **unused)
{
    struct stage s;
    struct log_write first;
    memset(&s, 0, sizeof s);
    s.now_ms = 1000;
    assert_int_equal(replica_found(SELF, &first, &err), ERROR_NONE);
    assert_int_equal(log_saved_write(&s.disk, &first, &err), ERROR_NONE);
    log_write_clear(&first);
    for (uint64_t term = 2; term < 5; term++) {
        s.hold_writes = true;
        open_stage(&s);
        assert_false(replica_status(s.replica).leads); /* not before it is durable */
        finish_writes(&s);
        look(&s);
        assert_true(replica_status(s.replica).leads && replica_status(s.replica).term == term);
        close_stage(&s);
    }
    drop_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_vote_result_is_not_for_a_follower),
        cmocka_unit_test(no_word_before_the_disk_has_it),
        cmocka_unit_test(lists_of_members_in_one_message),
        cmocka_unit_test(the_commit_index_never_falls),
        cmocka_unit_test(replaced_entries_are_not_acknowledged),
        cmocka_unit_test(entries_from_before_the_snapshot),
        cmocka_unit_test(an_older_term_is_answered_with_the_term_alone),
        cmocka_unit_test(votes_without_knowing_that_it_may),
        cmocka_unit_test(a_sole_voter_takes_a_new_term_with_every_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
