/* Single traits of a replica, each in the shortest story that shows it. What it sees to beyond
 * libraft is tested here by hand-made messages, and in test_replica_random.c by chance. */
#include "base/limits.h"
#include "base/mem.h"
#include "cluster/wire.h"
#include "cluster_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error err;

/* ---- one replica, spoken to by hand ---- */

enum { SELF = 7, LEADER = 8, SENT_MAX = 64 };

struct stage {
    struct replica *replica;
    struct log_saved disk;
    uint64_t now_ms, written;
    bool hold_writes;
    struct log_write writes[16];
    uint32_t n_writes;
    struct wire_message sent[SENT_MAX]; /* without their contents */
    uint64_t to[SENT_MAX];
    uint32_t n_sent, n_applied;
    uint64_t applied[64];
};

static void note_sent(struct stage *s, const struct replica_effect *effect)
{
    struct wire_message message;
    assert_int_equal(wire_decode(effect->bytes, effect->size, &message, &err), ERROR_NONE);
    if (message.type == WIRE_APPEND)
        log_deinit(&message.append.entries);
    else if (message.type == WIRE_INSTALL)
        log_snapshot_clear(&message.install.snapshot);
    assert_true(s->n_sent < SENT_MAX);
    s->to[s->n_sent] = effect->to;
    s->sent[s->n_sent++] = message;
}

static void finish_one_write(struct stage *s)
{
    struct log_write done = s->writes[0];
    memmove(s->writes, s->writes + 1, --s->n_writes * sizeof s->writes[0]);
    assert_int_equal(log_saved_write(&s->disk, &done, &err), ERROR_NONE);
    replica_written(s->replica, s->now_ms, done.sequence);
    log_write_clear(&done);
}

static void finish_writes(struct stage *s)
{
    while (s->n_writes)
        finish_one_write(s);
}

static void look(struct stage *s)
{
    struct replica_effect effect;
    while (replica_next(s->replica, &effect)) {
        if (effect.type == REPLICA_SEND)
            note_sent(s, &effect);
        if (effect.type == REPLICA_APPLY)
            s->applied[s->n_applied++] = effect.index;
        if (effect.type == REPLICA_FAILED)
            fail_msg("%s", effect.failure.text);
        if (effect.type == REPLICA_WRITE) {
            s->writes[s->n_writes++] = effect.write;
            effect.write = (struct log_write){0};
        }
        replica_effect_clear(&effect);
        if (!s->hold_writes)
            finish_writes(s);
    }
}

static enum error_code begins_with_s(void *self, struct lineage lineage, const uint8_t *bytes,
                                     size_t size, struct error *why)
{
    assert_true(lineage.generation && !self);
    return size && bytes[0] == 's' ? ERROR_NONE : error_set(why, ERROR_INVALID, "it is no state");
}

static void open_stage(struct stage *s)
{
    struct replica_options options = replica_options_default();
    options.id = SELF;
    options.grace_ms = 0;
    options.check_state = begins_with_s;
    if (replica_open(&options, &s->disk, s->now_ms, &s->replica, &err))
        fail_msg("%s", err.text);
    look(s);
}

static void close_stage(struct stage *s)
{
    replica_close(s->replica);
    s->replica = NULL;
    for (uint32_t i = 0; i < s->n_writes; i++)
        log_write_clear(&s->writes[i]);
    s->n_writes = 0;
}

static void new_stage(struct stage *s)
{
    memset(s, 0, sizeof *s);
    s->now_ms = 1000;
    open_stage(s);
}

static void drop_stage(struct stage *s)
{
    close_stage(s);
    log_saved_clear(&s->disk);
}

static enum error_code tell(struct stage *s, uint64_t from, struct wire_message message)
{
    struct buffer bytes = {0};
    if (!message.lineage.generation)
        message.lineage = (struct lineage){1, LEADER};
    wire_encode(&bytes, &message);
    err = (struct error){0};
    const enum error_code code =
        replica_receive(s->replica, s->now_ms, from, (uint8_t *)bytes.data, bytes.size, &err);
    buffer_deinit(&bytes);
    look(s);
    return code;
}

static void hear(struct stage *s, uint64_t from, struct wire_message message)
{
    if (tell(s, from, message))
        fail_msg("%s", err.text);
}

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

static const struct wire_message *last_sent(const struct stage *s, enum wire_type type)
{
    for (uint32_t i = s->n_sent; i-- > 0;) {
        if (s->sent[i].type == type)
            return &s->sent[i];
    }
    return NULL;
}

/* ---- made-up logs of a leader ---- */

/* A list of members as an entry: LEADER votes, and up to two more; `votes` is one bit each. */
static struct log_entry members_entry(uint64_t term, uint32_t votes, uint8_t *bytes)
{
    const uint64_t ids[] = {LEADER, SELF, 9};
    size_t n = 9;
    memset(bytes, 0, 64);
    bytes[0] = 1, bytes[1] = 3;
    for (int i = 0; i < 3; i++) {
        bytes[n] = (uint8_t)ids[i];
        n += 8;
        bytes[n++] = (uint8_t)('0' + ids[i]);
        bytes[n++] = 0;
        bytes[n++] = votes >> i & 1;
    }
    return (struct log_entry){term, LOG_MEMBERS, bytes, (n + 7) / 8 * 8};
}

static struct log_entry event_entry(uint64_t term)
{
    return (struct log_entry){term, LOG_EVENT, (uint8_t *)(uintptr_t)"e", 1};
}

static void append(struct stage *s, uint64_t term, uint64_t prev, uint64_t prev_term,
                   uint64_t commit, struct log_entry *entries, uint32_t n)
{
    hear(s, LEADER,
         (struct wire_message){
             .type = WIRE_APPEND,
             .append = {
                 term, prev, prev_term, commit, {.first = prev + 1, .n = n, .entries = entries}}});
}

/* ---- tests ---- */

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

/* ---- of those whose it is not to say ---- */

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

/* ---- stories of several nodes ---- */

static struct world *world_of(uint64_t seed, uint32_t n, uint64_t grace_ms)
{
    struct world *w = calloc(1, sizeof *w);
    world_init(w, seed, n, grace_ms);
    for (uint32_t i = 0; i < n; i++)
        w->nodes[i].admitted = true;
    world_run(w, 10000, false);
    return w;
}

static void end_world(struct world *w)
{
    char why[512];
    if (!world_agrees(w, why, sizeof why)) {
        world_describe(w, stderr);
        fail_msg("%s", why);
    }
    world_deinit(w);
    free(w);
}

static uint32_t voters(const struct world *w)
{
    static struct members members;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->nodes[i].up && replica_status(w->nodes[i].replica).leads) {
            replica_members(w->nodes[i].replica, &members);
            return members_voters(&members);
        }
    }
    return 0;
}

static void voters_follow_the_number_of_nodes(void **unused)
{
    const uint32_t wanted[] = {0, 1, 1, 3, 3, 5, 5, 5};
    for (uint32_t n = 1; n <= WORLD_NODES; n++) {
        struct world *w = world_of(n, n, 0);
        assert_int_equal(voters(w), wanted[n]);
        end_world(w);
    }
}

static void a_lost_leader_is_replaced(void **unused)
{
    struct world *w = world_of(3, 5, 0);
    uint32_t leader = 0;
    while (!replica_status(w->nodes[leader].replica).leads)
        leader++;
    world_crash(w, leader);
    world_run(w, 4000, false);
    assert_true(world_leaders(w) == 1 && world_submit(w));
    world_start(w, leader);
    world_run(w, 4000, false);
    end_world(w);
}

/* Two laptops, and the one that votes is gone for good: the other goes on, with all that was known.
 * When the first comes back after all, it gives up its log. */
static void the_second_of_two_goes_on_alone(void **unused)
{
    struct world *w = world_of(5, 2, 3000);
    for (int i = 0; i < 40; i++) {
        world_submit(w);
        world_run(w, 100, false);
    }
    world_run(w, 1000, false);
    const uint64_t known = replica_status(w->nodes[1].replica).applied;
    world_crash(w, 0);
    world_run(w, 2500, false);
    assert_true(world_leaders(w) == 0); /* the grace period */
    world_run(w, 6000, false);
    assert_true(world_leaders(w) == 1 && world_submit(w));
    const struct replica_status status = replica_status(w->nodes[1].replica);
    assert_true(status.lineage.generation == 2 && status.lineage.founder == w->nodes[1].id &&
                status.commit >= known);
    world_start(w, 0);
    world_run(w, 6000, false);
    assert_true(replica_status(w->nodes[0].replica).lineage.generation == 2);
    end_world(w);
}

static void a_minority_waits_longer(void **unused)
{
    struct world *w = world_of(6, 5, 3000); /* alone: 9 s */
    for (uint32_t i = 1; i < 5; i++)
        w->cut[0][i] = w->cut[i][0] = true;
    world_run(w, 7000, false);
    assert_true(replica_status(w->nodes[0].replica).lineage.generation == 1);
    assert_true(world_leaders(w) == 1 && world_submit(w)); /* the others have not waited */
    world_heal(w);
    world_run(w, 5000, false);
    assert_true(replica_status(w->nodes[0].replica).lineage.generation == 1);
    end_world(w);
}

static void leadership_is_handed_over(void **unused)
{
    struct world *w = world_of(9, 3, 0);
    uint32_t leader = 0;
    while (!replica_status(w->nodes[leader].replica).leads)
        leader++;
    const uint32_t other = (leader + 1) % 3;
    assert_int_equal(
        replica_hand_over(w->nodes[leader].replica, w->now_ms, w->nodes[other].id, &err),
        ERROR_NONE);
    world_run(w, 300, false);
    assert_true(replica_status(w->nodes[other].replica).leads);
    assert_int_equal(replica_hand_over(w->nodes[other].replica, w->now_ms, 12345, &err),
                     ERROR_INVALID);
    world_run(w, 2000, false);
    end_world(w);
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
        cmocka_unit_test(voters_follow_the_number_of_nodes),
        cmocka_unit_test(a_lost_leader_is_replaced),
        cmocka_unit_test(the_second_of_two_goes_on_alone),
        cmocka_unit_test(a_minority_waits_longer),
        cmocka_unit_test(leadership_is_handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
