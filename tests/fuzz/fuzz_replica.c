/* What a member may send to another's log, one message after the other: to a follower, a leader and
 * a node without a log. Most messages are made from the replica's own numbers, a little off, so
 * that they reach where a random one does not; some are bent afterwards. Holds: the replica never
 * fails; what it has applied it applies once and in order; its commit index never falls; the log
 * is given up only for a whole higher one; the disk is always one that it starts from again. */
#include "fuzz.h"

#include "cluster/replica.h"
#include "cluster/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SELF = 7, LEADER = 8, VOTER = 9, MEMBER = 10, STRANGER = 11, LIST_BYTES = 96 };

struct fuzzed {
    struct replica *replica;
    struct log_saved disk;
    uint64_t now_ms, applied;
    struct lineage lineage;
    const uint8_t *at, *end;
};

static uint64_t n_messages, n_taken, n_adopted;

static unsigned draw(struct fuzzed *f)
{
    return f->at < f->end ? *f->at++ : 0;
}

/* ---- the owner ---- */

static enum error_code check_state(void *self, struct lineage lineage, const uint8_t *bytes,
                                   size_t size, struct error *err)
{
    (void)self;
    FUZZ_CHECK(lineage.generation);
    return size && bytes[0] == 's' ? ERROR_NONE : error_set(err, ERROR_INVALID, "no state");
}

static void carry_out_one(struct fuzzed *f, struct replica_effect *effect)
{
    static const uint8_t state[] = "state";
    struct error err = {0};
    switch (effect->type) {
    case REPLICA_WRITE:
        FUZZ_CHECK(!effect->write.reset || !f->disk.log.n || effect->write.has_snapshot);
        n_adopted += effect->write.reset;
        FUZZ_CHECK(!log_saved_write(&f->disk, &effect->write, &err));
        FUZZ_CHECK(!log_saved_check(&f->disk, &err));
        replica_written(f->replica, f->now_ms, effect->write.sequence);
        break;
    case REPLICA_SNAPSHOT:
        replica_snapshot(f->replica, f->now_ms, effect->index, state, sizeof state);
        break;
    case REPLICA_APPLY:
        FUZZ_CHECK(effect->index > f->applied);
        f->applied = effect->index;
        break;
    case REPLICA_RESTORE:
        FUZZ_CHECK(effect->index >= f->applied && effect->bytes[0] == 's');
        f->applied = effect->index;
        break;
    case REPLICA_EMPTY:
        f->applied = 0;
        break;
    case REPLICA_FAILED:
        fprintf(stderr, "%s\n", effect->failure.text);
        FUZZ_CHECK(effect->type != REPLICA_FAILED);
        break;
    case REPLICA_SEND:
        break;
    }
}

static void carry_out(struct fuzzed *f)
{
    struct replica_effect effect;
    while (replica_next(f->replica, &effect)) {
        carry_out_one(f, &effect);
        replica_effect_clear(&effect);
    }
}

static void start(struct fuzzed *f)
{
    struct replica_options options = replica_options_default();
    struct error err;
    options.id = SELF;
    options.snapshot_after = 6;
    options.trailing = 2;
    options.grace_ms = 0;
    options.check_state = check_state;
    f->applied = 0;
    FUZZ_CHECK(!replica_open(&options, &f->disk, f->now_ms, &f->replica, &err));
    carry_out(f);
}

static void end(struct fuzzed *f)
{
    replica_close(f->replica);
    log_saved_clear(&f->disk);
}

/* ---- what is sent ---- */

/* Four members; who votes is one bit each. */
static struct log_entry list_entry(uint64_t term, unsigned votes, uint8_t bytes[LIST_BYTES])
{
    static const char *const names[] = {"7", "8", "9", "10"};
    size_t n = 9;
    memset(bytes, 0, LIST_BYTES);
    bytes[0] = 1, bytes[1] = 4;
    for (unsigned i = 0; i < 4; i++) {
        bytes[n] = (uint8_t)(SELF + i);
        n += 8;
        memcpy(bytes + n, names[i], strlen(names[i]) + 1);
        n += strlen(names[i]) + 1;
        bytes[n++] = votes >> i & 1;
    }
    return (struct log_entry){term, LOG_MEMBERS, bytes, (n + 7) / 8 * 8};
}

/* Near a number that the replica knows, or far from all. */
static uint64_t near(struct fuzzed *f, uint64_t number)
{
    static const uint64_t far[] = {0, 1, 1 << 20, UINT64_C(1) << 32, UINT64_C(1) << 36, UINT64_MAX};
    const unsigned how = draw(f);
    if (how < 224)
        return number + how % 7 < 3 ? 0 : number + how % 7 - 3;
    return far[how % (sizeof far / sizeof *far)];
}

static struct lineage drawn_lineage(struct fuzzed *f, struct lineage own)
{
    static const uint64_t founders[] = {SELF, LEADER, VOTER, MEMBER, STRANGER, 99};
    const unsigned how = draw(f);
    if (how < 176)
        return own.generation ? own : (struct lineage){1, LEADER};
    return (struct lineage){near(f, own.generation + 1), founders[how % 6]};
}

static void append_entries(struct fuzzed *f, struct wire_append *append, uint8_t bytes[LIST_BYTES])
{
    static const uint8_t event[] = "event";
    const unsigned n = draw(f) % 5, list = draw(f) % 8;
    append->entries.first = append->prev_index + 1;
    for (unsigned i = 0; i < n; i++) {
        const uint64_t term = draw(f) % 4 ? append->term : append->prev_term;
        struct log_entry entry = {term, i % 3 == 1 ? LOG_BARRIER : LOG_EVENT,
                                  (uint8_t *)(uintptr_t)event, 1 + draw(f) % 5};
        if (i == list)
            entry = list_entry(term, 1 + draw(f) % 15, bytes);
        FUZZ_CHECK(!log_append(&append->entries, &entry, NULL));
    }
}

static void fill(struct fuzzed *f, struct wire_message *m, const struct replica_status *own,
                 uint8_t list[LIST_BYTES])
{
    static const uint8_t states[] = "sx";
    const uint64_t term = near(f, own->term);
    switch (m->type) {
    case WIRE_VOTE:
        m->vote = (struct wire_vote){term, near(f, own->last), near(f, own->term), draw(f) & 1,
                                     draw(f) & 1};
        break;
    case WIRE_VOTE_RESULT:
        m->vote_result = (struct wire_vote_result){term, draw(f) & 1, draw(f) & 1};
        break;
    case WIRE_APPEND:
        m->append.term = term;
        m->append.prev_index = near(f, draw(f) & 1 ? own->last : own->commit);
        m->append.prev_term = near(f, own->term);
        m->append.commit = near(f, own->last);
        append_entries(f, &m->append, list);
        break;
    case WIRE_APPEND_RESULT:
        m->append_result = (struct wire_append_result){term, draw(f) & 1 ? near(f, own->last) : 0,
                                                       near(f, own->last)};
        break;
    case WIRE_INSTALL: {
        const struct log_entry members = list_entry(1, 1 + draw(f) % 15, list);
        const uint64_t index = near(f, draw(f) & 1 ? own->last : own->commit);
        struct log_snapshot from = {.index = index ? index : 1, /* without one it is not written */
                                    .term = near(f, own->term),
                                    .members_index = 1,
                                    .members = members.bytes,
                                    .members_size = members.size,
                                    .state = (uint8_t *)(uintptr_t)(states + (draw(f) % 8 == 0)),
                                    .state_size = 1};
        m->install.term = term;
        FUZZ_CHECK(!log_snapshot_copy(&m->install.snapshot, &from, NULL));
        break;
    }
    case WIRE_TIMEOUT_NOW:
        m->timeout_now = (struct wire_timeout_now){term, near(f, own->last), near(f, own->term)};
        break;
    case WIRE_STATUS:
        m->status =
            (struct wire_status){near(f, own->term), near(f, own->last), draw(f) & 1, draw(f) & 1};
        break;
    case WIRE_UNKNOWN:
        break;
    }
}

static void say(struct fuzzed *f, uint64_t from, const uint8_t *bytes, size_t size)
{
    const struct replica_status before = replica_status(f->replica);
    struct error err = {0};
    const enum error_code code = replica_receive(f->replica, f->now_ms, from, bytes, size, &err);
    const struct replica_status after = replica_status(f->replica);
    n_messages++;
    n_taken += !code;
    FUZZ_CHECK(!code || (err.text[0] && after.term == before.term && after.last == before.last));
    const int order = lineage_compare(after.lineage, before.lineage);
    FUZZ_CHECK(order >= 0 && (order > 0 || after.commit >= before.commit));
    carry_out(f);
}

static void say_something(struct fuzzed *f)
{
    const struct replica_status own = replica_status(f->replica);
    const uint64_t from = LEADER + draw(f) % 4;
    uint8_t list[LIST_BYTES];
    struct wire_message message = {.type = (enum wire_type)(WIRE_VOTE + draw(f) % 7)};
    struct buffer bytes = {0};
    message.lineage = drawn_lineage(f, own.lineage);
    fill(f, &message, &own, list);
    const struct lineage lineage = message.lineage;
    wire_encode(&bytes, &message);
    FUZZ_CHECK(lineage.generation == message.lineage.generation && !bytes.failed);
    for (unsigned bent = draw(f); bent > 240; bent--)
        bytes.data[(draw(f) | (size_t)draw(f) << 8) % bytes.size] = (char)draw(f);
    say(f, from, (const uint8_t *)bytes.data, bytes.size);
    wire_clear(&message);
    buffer_deinit(&bytes);
}

static void step(struct fuzzed *f)
{
    uint64_t index;
    struct error err;
    const unsigned what = draw(f);
    if (what < 200) {
        say_something(f);
    } else if (what < 230) {
        f->now_ms += what < 220 ? 100 : 900;
        replica_tick(f->replica, f->now_ms);
    } else if (what < 245) {
        replica_submit(f->replica, f->now_ms, (const uint8_t *)"event", 5, &index, &err);
    } else if (what < 250) {
        f->now_ms += 6000; /* nobody was heard */
        replica_tick(f->replica, f->now_ms);
    } else {
        replica_close(f->replica);
        start(f);
    }
    carry_out(f);
}

/* A follower in a log of three voters. */
static void follow(struct fuzzed *f)
{
    uint8_t list[LIST_BYTES];
    struct wire_message message = {.type = WIRE_APPEND, .lineage = {1, LEADER}};
    struct buffer bytes = {0};
    struct log_entry entries[] = {list_entry(1, 7, list),
                                  {1, LOG_EVENT, (uint8_t *)(uintptr_t)"event", 5},
                                  {1, LOG_EVENT, (uint8_t *)(uintptr_t)"other", 5}};
    message.append = (struct wire_append){
        .term = 1, .commit = 2, .entries = {.first = 1, .n = 3, .entries = entries}};
    wire_encode(&bytes, &message);
    say(f, LEADER, (const uint8_t *)bytes.data, bytes.size);
    FUZZ_CHECK(replica_status(f->replica).commit == 2);
    buffer_deinit(&bytes);
}

static void lead(struct fuzzed *f)
{
    struct log_write first;
    FUZZ_CHECK(!replica_found(SELF, &first, NULL) && !log_saved_write(&f->disk, &first, NULL));
    log_write_clear(&first);
}

static void lead_members(struct fuzzed *f)
{
    static const struct members lists[] = {
        {.n = 3, .list = {{SELF, true}, {LEADER, false}, {MEMBER, false}}},
        {.n = 3, .list = {{SELF, true}, {LEADER, true}, {MEMBER, false}}}};
    for (int i = 0; i < 2; i++) {
        FUZZ_CHECK(!replica_change_members(f->replica, f->now_ms, &lists[i], NULL));
        carry_out(f);
    }
}

static void say_counts(void)
{
    if (getenv("FUZZ_COUNTS"))
        fprintf(stderr, "%llu messages, %llu taken, %llu logs begun\n",
                (unsigned long long)n_messages, (unsigned long long)n_taken,
                (unsigned long long)n_adopted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool counts;
    if (!counts)
        atexit(say_counts), counts = true;
    for (int role = 0; role < 3; role++) {
        struct fuzzed f = {.now_ms = 1000, .at = data, .end = data + size};
        if (role == 1)
            lead(&f);
        start(&f);
        if (role == 0)
            follow(&f);
        if (role == 1)
            lead_members(&f);
        while (f.at < f.end)
            step(&f);
        end(&f);
    }
    return 0;
}
