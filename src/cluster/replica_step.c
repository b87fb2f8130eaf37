/* raft_step(), and what its answer means for the log, the disk, the network and the state. */
#include "cluster/replica_impl.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void replica_clock(struct replica *r, uint64_t now_ms)
{
    if (now_ms > r->now_ms)
        r->now_ms = now_ms;
}

/* A sole voter leads only once the term that it took is durable: before, a crash would let it take
 * the same again. */
bool replica_leads(const struct replica *r)
{
    return r->raft_open && !r->failed && !r->founding && r->raft.state == RAFT_LEADER &&
           r->hold_sequence <= r->written_sequence;
}

bool raft_members(const struct raft_configuration *from, struct members *to)
{
    to->n = 0;
    for (unsigned i = 0; i < from->n && i < LIMIT_CLUSTER_NODES; i++)
        to->list[to->n++] =
            (struct member){from->servers[i].id, from->servers[i].role == RAFT_VOTER};
    return to->n > 0;
}

/* Without raft_configuration_add()'s comparison of each with all: the members are checked. False:
 * no memory. */
static bool configuration_of(const struct members *members, struct raft_configuration *out)
{
    enum { ADDRESS_BYTES = 24 };
    raft_configuration_init(out);
    out->servers = raft_calloc(members->n, sizeof *out->servers);
    for (; out->servers && out->n < members->n; out->n++) {
        const struct member *member = &members->list[out->n];
        struct raft_server *server = &out->servers[out->n];
        server->id = member->id;
        server->role = member->votes ? RAFT_VOTER : RAFT_STANDBY;
        server->address = raft_malloc(ADDRESS_BYTES);
        if (!server->address)
            break;
        snprintf(server->address, ADDRESS_BYTES, "%llu", (unsigned long long)member->id);
    }
    if (out->servers && out->n == members->n)
        return true;
    raft_configuration_close(out);
    raft_configuration_init(out);
    return false;
}

bool replica_members_decode(struct replica *r, const uint8_t *bytes, size_t size,
                            struct raft_configuration *out)
{
    return !members_decode(bytes, size, &r->step_scratch, NULL) &&
           configuration_of(&r->step_scratch, out);
}

/* The bytes are mem_*'s. */
bool replica_members_encode(struct replica *r, const struct members *members, uint8_t **bytes,
                            size_t *size)
{
    struct raft_configuration configuration;
    struct raft_buffer encoded = {0};
    const bool good = configuration_of(members, &configuration) &&
                      raft_configuration_encode(&configuration, &encoded) == 0;
    raft_configuration_close(&configuration);
    *bytes = good ? mem_new(encoded.len) : NULL;
    *size = encoded.len;
    if (*bytes)
        memcpy(*bytes, encoded.base, encoded.len);
    raft_free(encoded.base);
    if (!*bytes && r)
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a list of members");
    return *bytes != NULL;
}

/* ---- what has to be written ---- */

/* Acknowledgements of older writes must not speak of entries that are replaced now. */
static void cut_pending(struct replica *r, uint64_t from)
{
    assert(from);
    for (uint32_t i = 0; i < r->n_pending; i++) {
        if (r->pending[i].type == PENDING_ENTRIES && r->pending[i].last >= from)
            r->pending[i].last = from - 1;
    }
}

static bool take_entries(struct replica *r, const struct raft_update *update,
                         struct log_write *write)
{
    assert(update->entries.n && update->entries.index);
    log_truncate(&r->log, update->entries.index);
    cut_pending(r, update->entries.index);
    write->log.first = update->entries.index;
    for (unsigned i = 0; i < update->entries.n; i++) {
        const struct raft_entry *from = &update->entries.batch[i];
        const struct log_entry entry = {from->term, (enum log_type)from->type, from->buf.base,
                                        from->buf.len};
        if (log_append(&r->log, &entry, NULL) || log_append(&write->log, &entry, NULL))
            return false;
    }
    if (update->entries.batch == &r->raft.barrier)
        raft_free(r->raft.barrier.batch);
    assert(log_last(&r->log) == raft_last_index(&r->raft));
    return true;
}

/* libraft hands over the snapshot's bytes and members. */
static bool take_install(struct replica *r, struct raft_update *update, struct log_write *write)
{
    assert(!r->installing.index && update->snapshot.metadata.index);
    struct raft_snapshot_metadata *metadata = &update->snapshot.metadata;
    struct log_snapshot *installing = &r->installing;
    *installing = (struct log_snapshot){.index = metadata->index,
                                        .term = metadata->term,
                                        .members_index = metadata->configuration_index};
    raft_members(&metadata->configuration, &r->step_scratch);
    raft_configuration_close(&metadata->configuration);
    bool good = replica_members_encode(r, &r->step_scratch, &installing->members,
                                       &installing->members_size);
    installing->state = mem_new(update->snapshot.chunk.len + 1);
    installing->state_size = update->snapshot.chunk.len;
    if (installing->state && installing->state_size)
        memcpy(installing->state, update->snapshot.chunk.base, installing->state_size);
    raft_free(update->snapshot.chunk.base);
    good = good && installing->state &&
           log_snapshot_copy(&write->snapshot, installing, NULL) == ERROR_NONE;
    write->has_snapshot = write->clear_log = true;
    log_clear(&r->log, installing->index + 1);
    cut_pending(r, 1); /* the entries are gone */
    return good;
}

/* What brings the whole of a higher lineage takes the place of our log, in one write. */
static void begin_lineage(struct replica *r, struct log_write *write)
{
    struct replica_effect effect = {.type = REPLICA_EMPTY};
    assert(r->resets);
    write->reset = write->has_term = true;
    write->aside = r->sets_aside;
    write->lineage = r->lineage;
    write->term = r->raft.current_term;
    write->vote = r->raft.voted_for;
    if (r->sets_aside)
        replica_emit(r, &r->effects, &effect);
    r->resets = r->sets_aside = false;
}

/* One write holds all of an update, so that no crash can part its term from its entries. */
static void take_writes(struct replica *r, struct raft_update *update)
{
    struct log_write write = {0};
    enum pending_type type = PENDING_NONE;
    bool good = true;
    if (update->flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR)) {
        write.has_term = true;
        write.term = r->raft.current_term;
        write.vote = r->raft.voted_for;
    }
    if (update->flags & (RAFT_UPDATE_SNAPSHOT)) {
        type = PENDING_INSTALL;
        good = take_install(r, update, &write);
    }
    if (update->flags & (RAFT_UPDATE_ENTRIES)) {
        type = PENDING_ENTRIES;
        good = take_entries(r, update, &write);
    }
    if (r->resets) {
        if (type == PENDING_NONE)
            return; /* its term comes with the rest */
        begin_lineage(r, &write);
    }
    if (!good) {
        log_write_clear(&write);
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for entries");
    } else if (write.has_term || type != PENDING_NONE) {
        replica_emit_write(r, &write, type);
    }
}

/* ---- what has to be sent ---- */

static void send_append(struct replica *r, const struct raft_message *message)
{
    const struct raft_append_entries *args = &message->append_entries;
    struct wire_message wire = {.type = WIRE_APPEND,
                                .append = {.term = args->term,
                                           .prev_index = args->prev_log_index,
                                           .prev_term = args->prev_log_term,
                                           .commit = args->leader_commit}};
    struct log *entries = &wire.append.entries; /* a view of the log's */
    const uint64_t first = args->prev_log_index + 1;
    if (args->n_entries) {
        assert(first >= r->log.first && first + args->n_entries - 1 <= log_last(&r->log));
        entries->entries = r->log.entries + (first - r->log.first);
        entries->n = args->n_entries;
    }
    entries->first = first;
    replica_send(r, message->server_id, &wire);
}

static void send_install(struct replica *r, const struct raft_message *message)
{
    assert(r->raft.state == RAFT_LEADER);
    const struct raft_install_snapshot *args = &message->install_snapshot;
    if (args->last_index != r->snapshot.index) /* cannot be; without it the follower asks again */
        return;
    struct wire_message wire = {.type = WIRE_INSTALL,
                                .install = {.term = args->term, .snapshot = r->snapshot}};
    replica_send(r, message->server_id, &wire);
}

/* libraft answers a pre-vote with the term that was asked for. Who asked for an older one than ours
 * would never hear of ours, and ask for it again and again. */
static struct wire_vote_result vote_result_of(const struct replica *r,
                                              const struct raft_request_vote_result *result)
{
    const bool older =
        result->pre_vote && !result->vote_granted && result->term < r->raft.current_term;
    return (struct wire_vote_result){older ? r->raft.current_term : result->term,
                                     result->vote_granted, result->pre_vote};
}

static void send_message(struct replica *r, const struct raft_message *m)
{
    struct wire_message wire = {0};
    switch (m->type) {
    case RAFT_APPEND_ENTRIES:
        send_append(r, m);
        return;
    case RAFT_INSTALL_SNAPSHOT:
        send_install(r, m);
        return;
    case RAFT_APPEND_ENTRIES_RESULT:
        wire.type = WIRE_APPEND_RESULT;
        wire.append_result = (struct wire_append_result){.term = m->append_entries_result.term};
        if (r->rejects_term)
            break;
        wire.append_result.rejected = m->append_entries_result.rejected;
        wire.append_result.last_index = m->append_entries_result.last_log_index;
        break;
    case RAFT_REQUEST_VOTE:
        wire.type = WIRE_VOTE;
        wire.vote = (struct wire_vote){m->request_vote.term, m->request_vote.last_log_index,
                                       m->request_vote.last_log_term,
                                       m->request_vote.disrupt_leader, m->request_vote.pre_vote};
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        wire.type = WIRE_VOTE_RESULT;
        wire.vote_result = vote_result_of(r, &m->request_vote_result);
        break;
    case RAFT_TIMEOUT_NOW:
        wire.type = WIRE_TIMEOUT_NOW;
        wire.timeout_now = (struct wire_timeout_now){
            m->timeout_now.term, m->timeout_now.last_log_index, m->timeout_now.last_log_term};
        break;
    }
    replica_send(r, m->server_id, &wire);
}

/* ---- what is committed ---- */

/* A committed list of members is told to libraft at once, also while its entry is still being
 * written. */
static void see_members(struct replica *r)
{
    while (!r->failed && r->members_seen < r->commit) {
        const uint64_t index = ++r->members_seen;
        const struct log_entry *entry = log_at(&r->log, index);
        if (!entry || entry->type != LOG_MEMBERS)
            continue;
        struct raft_event event = {.type = RAFT_CONFIGURATION, .configuration = {.index = index}};
        if (!replica_members_decode(r, entry->bytes, entry->size, &event.configuration.conf)) {
            replica_fail(r, ERROR_NO_MEMORY, "not enough memory for the members");
            return;
        }
        replica_step(r, &event);
    }
}

static void follow_commit(struct replica *r)
{
    if (r->raft.commit_index > r->commit)
        r->commit = r->raft.commit_index;
    see_members(r);
}

int replica_step(struct replica *r, struct raft_event *event)
{
    assert(r->raft_open && event->type);
    struct raft_update update = {0};
    event->time = r->now_ms;
    const int failed = raft_step(&r->raft, event, &update);
    if (failed) {
        if (update.flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR | RAFT_UPDATE_ENTRIES))
            replica_fail(r, ERROR_INTERNAL, raft_strerror(failed));
        return failed;
    }
    take_writes(r, &update);
    for (unsigned i = 0;
         i < update.messages.n && (update.flags & (RAFT_UPDATE_MESSAGES)) && !r->failed; i++)
        send_message(r, &update.messages.batch[i]);
    if (!r->failed)
        follow_commit(r);
    return 0;
}

static void apply_committed(struct replica *r)
{
    assert(r->applied <= r->commit);
    uint64_t until = r->commit < r->raft.last_stored ? r->commit : r->raft.last_stored;
    if (r->installing.index)
        return;
    for (; r->applied < until && !r->failed; r->applied++) {
        const uint64_t index = r->applied + 1;
        const struct log_entry *entry = log_at(&r->log, index);
        assert(entry);
        if (entry->type == LOG_BARRIER)
            continue;
        const struct replica_effect effect = {.type = REPLICA_APPLY,
                                              .index = index,
                                              .term = entry->term,
                                              .lineage = r->lineage,
                                              .entry = entry->type};
        replica_emit_bytes(r, effect, entry->bytes, entry->size);
    }
}

/* Asks for the state, once enough was applied and the members are those of what was applied. */
static void ask_snapshot(struct replica *r)
{
    if (r->failed || r->taking.index || r->installing.index || r->founding ||
        r->applied < r->snapshot.index + r->options.snapshot_after ||
        r->raft.configuration_committed_index > r->applied ||
        !r->raft.configuration_committed_index)
        return;
    const struct log_entry *entry = log_at(&r->log, r->applied);
    assert(entry);
    r->taking = (struct log_snapshot){.index = r->applied,
                                      .term = entry->term,
                                      .members_index = r->raft.configuration_committed_index};
    raft_members(&r->raft.configuration_committed, &r->step_scratch);
    if (!replica_members_encode(r, &r->step_scratch, &r->taking.members, &r->taking.members_size))
        return;
    struct replica_effect effect = {.type = REPLICA_SNAPSHOT, .index = r->taking.index};
    replica_emit(r, &r->effects, &effect);
}

static bool is_told(struct replica *r, unsigned place, uint64_t id)
{
    if (r->told[place].id != id)
        r->told[place].id = id, r->told[place].commit = 0;
    return id == r->raft.id || r->told[place].commit >= r->commit;
}

/* libraft's leader tells of what is committed with the next entries, or heartbeat: a follower would
 * know it up to 300 ms late. Who has the entries is told at once, by an append without any. */
static void tell_commit(struct replica *r)
{
    assert(replica_leads(r) && r->told_all < r->commit);
    const struct raft_configuration *members = &r->raft.configuration;
    bool all = true;
    for (unsigned i = 0; i < members->n && members->n <= TELL_MEMBERS_MAX && !r->failed; i++) {
        const uint64_t id = members->servers[i].id, match = replica_match(r, id);
        const struct log_entry *entry = log_at(&r->log, match);
        if (is_told(r, i, id))
            continue;
        all &= match >= r->commit;
        if (match < r->commit || !entry)
            continue;
        struct wire_message wire = {.type = WIRE_APPEND,
                                    .append = {.term = r->raft.current_term,
                                               .prev_index = match,
                                               .prev_term = entry->term,
                                               .commit = r->commit,
                                               .entries = {.first = match + 1}}};
        replica_send(r, id, &wire);
        r->told[i].commit = r->commit;
    }
    if (all)
        r->told_all = r->commit;
}

int replica_append(struct replica *r, enum log_type type, const uint8_t *bytes, size_t size)
{
    struct raft_entry entry = {.term = r->raft.current_term, .type = (enum raft_entry_type)type};
    assert(r->raft.state == RAFT_LEADER);
    entry.batch = entry.buf.base = raft_malloc(size + 1);
    entry.buf.len = size;
    if (!entry.batch)
        return RAFT_NOMEM;
    memcpy(entry.buf.base, bytes, size);
    struct raft_event event = {.type = RAFT_SUBMIT, .submit = {.entries = &entry, .n = 1}};
    const int failed = replica_step(r, &event);
    raft_free(entry.batch);
    return failed;
}

/* Each leader begins its term with an entry of it (Ongaro, section 6.4). libraft (convert.c) leaves
 * that out where all it has is committed. Then what a follower has beyond that, of a leader that
 * crashed, stays there until somebody proposes something. For want of memory it waits for the next
 * input. */
static void begin_term_with_entry(struct replica *r)
{
    assert(replica_leads(r) && log_last(&r->log));
    const uint64_t last = log_last(&r->log);
    const struct log_entry *entry = log_at(&r->log, last);
    const uint8_t nothing = 0;
    if ((entry ? entry->term : r->snapshot.term) < r->raft.current_term)
        replica_append(r, LOG_BARRIER, &nothing, 1);
}

/* The invariants of replica_impl.h, which must be so between two inputs. */
static void check_replica(struct replica *r)
{
    assert(r->written_sequence <= r->last_sequence && r->hold_sequence <= r->last_sequence);
    assert(r->installing.index || log_last(&r->log) == raft_last_index(&r->raft));
    assert(r->applied <= r->commit && r->told_all <= r->commit);
    assert(r->installing.index || r->applied <= r->raft.last_stored);
    assert(!r->taking_written || r->taking.index);
    assert(!r->resets && !r->sets_aside);
    for (uint32_t i = 1; i < r->n_pending; i++)
        assert(r->pending[i - 1].sequence < r->pending[i].sequence);
}

/* The end of every input. A timer in the past is due in a millisecond: time goes on between two
 * ticks. */
void replica_settle(struct replica *r)
{
    if (r->failed || !r->raft_open || r->founding)
        return;
    if (replica_leads(r))
        begin_term_with_entry(r);
    apply_committed(r);
    ask_snapshot(r);
    if (replica_leads(r)) {
        r->leader_heard_ms = r->now_ms;
        r->leader.term = r->raft.current_term, r->leader.id = r->options.id;
        if (r->commit > r->told_all)
            tell_commit(r);
    }
    const uint64_t due = raft_timeout(&r->raft);
    r->timer_ms = due < r->status_due_ms ? due : r->status_due_ms;
    if (r->timer_ms <= r->now_ms)
        r->timer_ms = r->now_ms + 1;
    if (!r->failed)
        check_replica(r);
}

/* ---- starting ---- */

static void *quietly(void *memory, int *failed)
{
    if (!memory)
        *failed = RAFT_NOMEM;
    return memory;
}

/* The entries as libraft wants them at its start: one array, one batch, both freed by us. */
static struct raft_entry *start_entries(const struct log *log, int *failed)
{
    size_t size = 1;
    for (uint32_t i = 0; i < log->n; i++)
        size += log->entries[i].size;
    struct raft_entry *entries = quietly(raft_calloc(log->n ? log->n : 1, sizeof *entries), failed);
    char *batch = entries ? quietly(raft_malloc(size), failed) : NULL;
    for (uint32_t i = 0; i < log->n && batch; i++) {
        const struct log_entry *from = &log->entries[i];
        entries[i] = (struct raft_entry){
            .term = from->term, .type = (enum raft_entry_type)from->type, .batch = batch};
        entries[i].buf.base = batch;
        entries[i].buf.len = from->size;
        if (from->size)
            memcpy(batch, from->bytes, from->size);
        batch += from->size;
    }
    for (uint32_t i = 0; i < log->n && batch; i++)
        entries[i].batch = entries[0].buf.base;
    if (entries && batch && !log->n)
        raft_free(batch);
    return entries;
}

static int init_raft(struct replica *r)
{
    char address[24];
    snprintf(address, sizeof address, "%llu", (unsigned long long)r->options.id);
    if (r->raft_open)
        raft_close(&r->raft, NULL);
    memset(&r->raft, 0, sizeof r->raft);
    r->raft_open = raft_init(&r->raft, NULL, NULL, r->options.id, address) == 0;
    if (!r->raft_open)
        return RAFT_NOMEM;
    r->raft.tracer = NULL; /* it formats into one buffer for all threads */
    raft_seed(&r->raft, (unsigned)(r->options.seed ^ r->options.seed >> 32));
    raft_set_pre_vote(&r->raft, true);
    raft_set_heartbeat_timeout(&r->raft, r->options.heartbeat_ms);
    raft_set_install_snapshot_timeout(&r->raft, 10 * r->options.election_ms);
    raft_set_max_inflight_entries(&r->raft, LIMIT_CLUSTER_BATCH);
    raft_set_election_timeout(&r->raft, r->options.election_ms);
    return 0;
}

/* From r->snapshot and r->log. */
bool replica_start_raft(struct replica *r, uint64_t term, uint64_t vote)
{
    assert(r->log.first == r->snapshot.index + 1 || log_last(&r->log) >= r->snapshot.index);
    struct raft_snapshot_metadata metadata = {0};
    struct raft_event event = {.type = RAFT_START};
    int failed = init_raft(r);
    if (!failed && r->snapshot.index) {
        failed = !replica_members_decode(r, r->snapshot.members, r->snapshot.members_size,
                                         &metadata.configuration);
        metadata.index = r->snapshot.index;
        metadata.term = r->snapshot.term;
        metadata.configuration_index = r->snapshot.members_index;
        event.start.metadata = &metadata;
    }
    struct raft_entry *entries = failed ? NULL : start_entries(&r->log, &failed);
    void *batch = entries && r->log.n ? entries[0].batch : NULL;
    event.start.term = term;
    event.start.voted_for = vote;
    event.start.start_index = r->log.first;
    event.start.entries = entries;
    event.start.n_entries = r->log.n;
    r->commit = r->members_seen = r->applied = r->snapshot.index;
    r->leader.term = r->leader.id = 0;
    const bool stepped = !failed;
    if (!failed)
        failed = replica_step(r, &event);
    if (!stepped || !failed) { /* after a failed step they may be gone, or not */
        raft_free(batch);
        raft_free(entries);
    }
    if (failed)
        replica_fail(r, ERROR_NO_MEMORY, "the log cannot be taken up");
    return !failed;
}
