#include "cluster/replica_impl.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* Elections: a leader is missed after 0.8 to 1.6 s. Two small messages and two answers a follower
 * and heartbeat. */
struct replica_options replica_options_default(void)
{
    return (struct replica_options){.election_ms = 1000,
                                    .heartbeat_ms = 350,
                                    .snapshot_after = 512,
                                    .trailing = 128,
                                    .status_ms = 1000,
                                    .grace_ms = 30 * 1000,
                                    .minority_grace_ms = 10 * 60 * 1000};
}

enum error_code replica_found(uint64_t id, struct log_write *out, struct error *err)
{
    struct members *members = mem_new(sizeof *members);
    struct log_entry entry = {.term = 1, .type = LOG_MEMBERS};
    *out = (struct log_write){.reset = true, .has_term = true, .lineage = {1, id}, .term = 1};
    enum error_code code = ERROR_NO_MEMORY;
    if (members) {
        members->n = 1;
        members->list[0] = (struct member){id, true};
        if (replica_members_encode(NULL, members, &entry.bytes, &entry.size))
            code = log_append(&out->log, &entry, err);
        else
            code =
                error_set(err, ERROR_NO_MEMORY, "replica: not enough memory for a list of members");
    }
    mem_free(entry.bytes);
    mem_free(members);
    if (code)
        log_write_clear(out);
    return code;
}

/* ---- opening ---- */

static enum error_code check_members(const struct log_saved *saved, struct members *scratch,
                                     struct error *err)
{
    if (saved->snapshot.index &&
        members_decode(saved->snapshot.members, saved->snapshot.members_size, scratch, err))
        return error_wrap(err, "replica: the snapshot");
    for (uint32_t i = 0; i < saved->log.n; i++) {
        const struct log_entry *entry = &saved->log.entries[i];
        if (entry->type == LOG_MEMBERS && members_decode(entry->bytes, entry->size, scratch, err))
            return error_wrap(err, "replica: entry %llu",
                              (unsigned long long)(saved->log.first + i));
    }
    return ERROR_NONE;
}

static enum error_code check_saved(const struct replica_options *options,
                                   const struct log_saved *saved, struct members *scratch,
                                   struct error *err)
{
    if (!options->id || !options->heartbeat_ms || options->election_ms <= options->heartbeat_ms)
        return error_set(err, ERROR_INVALID,
                         "replica: no id, or elections of %u ms with heartbeats of %u ms",
                         options->election_ms, options->heartbeat_ms);
    const enum error_code code = log_saved_check(saved, err);
    return code ? code : check_members(saved, scratch, err);
}

static bool copy_saved(struct replica *r, const struct log_saved *saved)
{
    assert(!r->log.n && !r->snapshot.index);
    struct log_saved copy;
    if (log_saved_copy(&copy, saved, NULL))
        return false;
    r->lineage = copy.lineage;
    r->snapshot = copy.snapshot;
    r->log = copy.log;
    if (!r->log.n)
        log_clear(&r->log, r->snapshot.index + 1);
    return true;
}

/* Whether the latest list makes this the only voter. */
static bool sole_voter(struct replica *r)
{
    struct members *members = &r->scratch;
    const uint8_t *bytes = r->snapshot.members;
    size_t size = r->snapshot.members_size;
    for (uint32_t i = 0; i < r->log.n; i++) {
        if (r->log.entries[i].type == LOG_MEMBERS)
            bytes = r->log.entries[i].bytes, size = r->log.entries[i].size;
    }
    if (!bytes || members_decode(bytes, size, members, NULL))
        return false;
    const struct member *self = members_find(members, r->options.id);
    return self && self->votes && members_voters(members) == 1;
}

void replica_start(struct replica *r, uint64_t term, uint64_t vote)
{
    assert(!r->founding && !r->resets);
    if (sole_voter(r)) {
        struct log_write write = {.has_term = true, .term = term + 1, .vote = r->options.id};
        term = write.term, vote = write.vote;
        replica_emit_write(r, &write, PENDING_NONE);
    }
    if (!r->failed)
        replica_start_raft(r, term, vote);
}

enum error_code replica_open(const struct replica_options *options, const struct log_saved *saved,
                             uint64_t now_ms, struct replica **out, struct error *err)
{
    *out = NULL;
    replica_set_heap();
    struct replica *r = mem_new(sizeof *r);
    if (!r)
        return error_set(err, ERROR_NO_MEMORY, "replica: not enough memory");
    r->options = *options;
    r->now_ms = r->leader_heard_ms = now_ms;
    r->status_due_ms = now_ms + options->status_ms;
    r->effects.list =
        mem_new_array(16, sizeof *r->effects.list); /* so that a failure can always be said */
    r->effects.capacity = r->effects.list ? 16 : 0;
    enum error_code code = ERROR_NO_MEMORY;
    if (!r->effects.list)
        error_set(err, code, "replica: not enough memory");
    else
        code = check_saved(options, saved, &r->scratch, err);
    if (!code && !copy_saved(r, saved))
        code = error_set(err, ERROR_NO_MEMORY, "replica: not enough memory for the log");
    if (!code) {
        if (r->snapshot.index)
            replica_emit_bytes(
                r, (struct replica_effect){.type = REPLICA_RESTORE, .index = r->snapshot.index},
                r->snapshot.state, r->snapshot.state_size);
        replica_start(r, saved->term, saved->vote);
        replica_settle(r);
        if (r->failed) {
            code = r->effects.list[0].failure.code;
            error_set(err, code, "%s", r->effects.list[0].failure.text);
        }
    }
    if (code)
        replica_close(r);
    else
        *out = r;
    return code;
}

void replica_close(struct replica *r)
{
    if (!r)
        return;
    if (r->raft_open)
        raft_close(&r->raft, NULL);
    log_deinit(&r->log);
    log_snapshot_clear(&r->snapshot);
    log_snapshot_clear(&r->installing);
    log_snapshot_clear(&r->taking);
    effect_queue_deinit(&r->effects);
    effect_queue_deinit(&r->held);
    mem_free(r->pending);
    mem_free(r->peers);
    mem_free(r);
}

/* ---- inputs ---- */

uint64_t replica_timer(const struct replica *r)
{
    return r->failed || r->founding ? UINT64_MAX : r->timer_ms;
}

/* A candidate that won no election asks anew whether it could win one before it takes another term
 * (Ongaro, section 9.6). libraft asks once, and then takes a term with every timeout. Who has lost
 * its vote meanwhile would count up for ever, ahead of the leader that it has to follow. */
static void ask_before_next_election(struct replica *r)
{
    if (r->raft.state == RAFT_CANDIDATE && !r->raft.candidate_state.disrupt_leader)
        r->raft.candidate_state.in_pre_vote = true;
}

void replica_tick(struct replica *r, uint64_t now_ms)
{
    assert(r->raft_open || r->failed);
    replica_clock(r, now_ms);
    if (r->failed || r->founding)
        return;
    if (raft_timeout(&r->raft) <= r->now_ms) {
        struct raft_event event = {.type = RAFT_TIMEOUT};
        ask_before_next_election(r);
        if (replica_step(r, &event))
            replica_fail(r, ERROR_NO_MEMORY, "not enough memory for an election");
    }
    if (!r->failed)
        replica_watch(r);
    replica_settle(r);
}

enum error_code replica_receive(struct replica *r, uint64_t now_ms, uint64_t from,
                                const uint8_t *bytes, size_t size, struct error *err)
{
    struct wire_message message;
    enum error_code refused = ERROR_NONE;
    replica_clock(r, now_ms);
    if (r->failed || r->founding)
        return ERROR_NONE;
    if (from == 0 || from == r->options.id)
        return error_set(err, ERROR_INVALID, "replica: the message has no foreign sender");
    const enum error_code code = wire_decode(bytes, size, &message, err);
    if (code)
        return code;
    const int order = lineage_compare(message.lineage, r->lineage);
    if (!message.lineage.generation && message.type != WIRE_STATUS) {
        wire_clear(&message);
        return replica_refuse(err, from, "it speaks of no log");
    }
    if (order > 0) {
        refused = replica_hear_higher(r, from, &message, err);
    } else if (order < 0) {
        replica_send_status(r, from, false);
    } else if (message.type == WIRE_STATUS) {
        replica_on_status(r, from, &message);
    } else if (!r->failed) {
        refused = replica_check_sender(r, from, &message, err);
        if (!refused)
            replica_deliver(r, from, &message);
    }
    wire_clear(&message);
    replica_settle(r);
    return refused;
}

/* ---- what is durable ---- */

static void entries_written(struct replica *r, uint64_t last)
{
    assert(!r->failed);
    if (last <= r->raft.last_stored || r->installing.index)
        return;
    struct raft_event event = {.type = RAFT_PERSISTED_ENTRIES,
                               .persisted_entries = {.index = last}};
    if (replica_step(r, &event))
        replica_fail(r, ERROR_NO_MEMORY, "no memory after a write");
}

static bool metadata_of(struct replica *r, const struct log_snapshot *snapshot,
                        struct raft_snapshot_metadata *out)
{
    *out = (struct raft_snapshot_metadata){.index = snapshot->index,
                                           .term = snapshot->term,
                                           .configuration_index = snapshot->members_index};
    return replica_members_decode(r, snapshot->members, snapshot->members_size,
                                  &out->configuration);
}

static void install_written(struct replica *r)
{
    assert(r->installing.index && !r->founding);
    struct raft_event event = {.type = RAFT_PERSISTED_SNAPSHOT,
                               .persisted_snapshot = {.last = true}};
    if (!metadata_of(r, &r->installing, &event.persisted_snapshot.metadata)) {
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a snapshot");
        return;
    }
    log_snapshot_clear(&r->snapshot);
    r->snapshot = r->installing;
    r->installing = (struct log_snapshot){0};
    r->applied = r->members_seen = r->snapshot.index;
    if (r->commit < r->snapshot.index)
        r->commit = r->snapshot.index;
    if (replica_emit_bytes(
            r, (struct replica_effect){.type = REPLICA_RESTORE, .index = r->snapshot.index},
            r->snapshot.state, r->snapshot.state_size) &&
        replica_step(r, &event))
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a snapshot");
}

/* Our own snapshot is durable: libraft may forget what came before. Not if a leader's has overtaken
 * it. */
static void taken_written(struct replica *r)
{
    assert(r->taking_written && r->taking.index);
    struct log_snapshot taken = r->taking;
    struct raft_event event = {.type = RAFT_SNAPSHOT,
                               .snapshot = {.trailing = r->options.trailing}};
    const struct log_entry *entry = log_at(&r->log, taken.index);
    r->taking = (struct log_snapshot){0};
    r->taking_written = false;
    if (r->installing.index || taken.index <= r->snapshot.index || !entry ||
        entry->term != taken.term) {
        log_snapshot_clear(&taken);
        return;
    }
    log_snapshot_clear(&r->snapshot);
    r->snapshot = taken;
    if (!metadata_of(r, &taken, &event.snapshot.metadata) || replica_step(r, &event)) {
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a snapshot");
        return;
    }
    log_drop_before(&r->log, r->raft.trail.offset + 1);
}

static void one_written(struct replica *r, const struct pending *pending)
{
    assert(pending->sequence <= r->written_sequence);
    switch (pending->type) {
    case PENDING_ENTRIES:
        if (pending->first <= pending->last)
            entries_written(r, pending->last);
        break;
    case PENDING_INSTALL:
        install_written(r);
        break;
    case PENDING_TAKEN:
        taken_written(r);
        break;
    case PENDING_FOUND:
        replica_found_written(r);
        break;
    case PENDING_NONE:
        break;
    }
}

void replica_written(struct replica *r, uint64_t now_ms, uint64_t sequence)
{
    assert(sequence <= r->last_sequence); /* it was asked for */
    replica_clock(r, now_ms);
    if (r->failed || sequence <= r->written_sequence)
        return;
    r->written_sequence = sequence;
    replica_release_held(r);
    while (r->n_pending && r->pending[0].sequence <= sequence && !r->failed) {
        const struct pending pending = r->pending[0];
        memmove(r->pending, r->pending + 1, --r->n_pending * sizeof *r->pending);
        one_written(r, &pending);
    }
    replica_settle(r);
}

void replica_snapshot(struct replica *r, uint64_t now_ms, uint64_t index, const uint8_t *state,
                      size_t size)
{
    replica_clock(r, now_ms);
    if (r->failed || r->taking.index != index || r->taking_written)
        return; /* of a log that was dropped since */
    if (r->founding) {
        replica_found_write(r, state, size);
        return;
    }
    struct log_snapshot whole = r->taking;
    whole.state = (uint8_t *)(uintptr_t)state;
    whole.state_size = size;
    const uint64_t keep = index > r->options.trailing ? index - r->options.trailing + 1 : 1;
    struct log_write write = {.has_snapshot = true, .keep_from = keep};
    struct log_snapshot copy;
    if (log_snapshot_copy(&write.snapshot, &whole, NULL) ||
        log_snapshot_copy(&copy, &whole, NULL)) {
        log_write_clear(&write);
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a snapshot");
        return;
    }
    log_snapshot_clear(&r->taking);
    r->taking = copy;
    r->taking_written = replica_emit_write(r, &write, PENDING_TAKEN);
    replica_settle(r);
}

/* ---- wishes ---- */

static enum error_code submit_entry(struct replica *r, enum log_type type, const uint8_t *bytes,
                                    size_t size, struct error *err)
{
    assert(replica_leads(r));
    const int failed = replica_append(r, type, bytes, size);
    replica_settle(r);
    return failed ? error_set(err, ERROR_BUSY, "replica: not now: %s", raft_strerror(failed))
                  : ERROR_NONE;
}

enum error_code replica_submit(struct replica *r, uint64_t now_ms, const uint8_t *bytes,
                               size_t size, uint64_t *index, struct error *err)
{
    replica_clock(r, now_ms);
    if (size > LIMIT_CLUSTER_ENTRY_BYTES)
        return error_set(err, ERROR_INVALID,
                         "replica: an event of %zu bytes; at most %d are possible", size,
                         LIMIT_CLUSTER_ENTRY_BYTES);
    if (!replica_leads(r))
        return error_set(err, ERROR_BUSY, "replica: this node does not lead");
    if (r->log.n >= LIMIT_CLUSTER_LOG_ENTRIES)
        return error_set(err, ERROR_BUSY, "replica: %u entries wait for a majority", r->log.n);
    *index = raft_last_index(&r->raft) + 1;
    return submit_entry(r, LOG_EVENT, bytes, size, err);
}

enum error_code replica_change_members(struct replica *r, uint64_t now_ms,
                                       const struct members *members, struct error *err)
{
    replica_clock(r, now_ms);
    if (!replica_leads(r))
        return error_set(err, ERROR_BUSY, "replica: this node does not lead");
    /* A leader commits an entry of its own term before it changes who votes (Ongaro, "bug in
     * single-server membership changes", raft-dev, 2015): until then an older change may still be
     * undecided elsewhere. */
    const struct log_entry *committed = log_at(&r->log, r->commit);
    const uint64_t committed_term = committed                        ? committed->term
                                    : r->commit == r->snapshot.index ? r->snapshot.term
                                                                     : 0;
    raft_members(&r->raft.configuration, &r->scratch);
    if (members_voters(&r->scratch) > 1 && committed_term != r->raft.current_term)
        return error_set(err, ERROR_BUSY, "replica: nothing is committed in this term yet");
    const enum error_code code = members_check_step(&r->scratch, members, r->options.id, err);
    struct log_entry entry = {0};
    if (code)
        return code;
    if (!replica_members_encode(r, members, &entry.bytes, &entry.size))
        return error_set(err, ERROR_NO_MEMORY, "replica: not enough memory for a list of members");
    const enum error_code submitted = submit_entry(r, LOG_MEMBERS, entry.bytes, entry.size, err);
    mem_free(entry.bytes);
    return submitted;
}

enum error_code replica_hand_over(struct replica *r, uint64_t now_ms, uint64_t to,
                                  struct error *err)
{
    replica_clock(r, now_ms);
    if (!replica_leads(r))
        return error_set(err, ERROR_BUSY, "replica: this node does not lead");
    struct raft_event event = {.type = RAFT_TRANSFER, .transfer = {.server_id = to}};
    const int failed = replica_step(r, &event);
    replica_settle(r);
    if (failed)
        return error_set(err, failed == RAFT_BADID ? ERROR_INVALID : ERROR_BUSY,
                         "replica: cannot hand over: %s", raft_strerror(failed));
    return ERROR_NONE;
}

/* ---- questions ---- */

struct replica_status replica_status(const struct replica *r)
{
    struct replica_status status = {.lineage = r->lineage,
                                    .failed = r->failed,
                                    .leads = replica_leads(r),
                                    .commit = r->commit,
                                    .applied = r->applied,
                                    .last = log_last(&r->log),
                                    .snapshot = r->snapshot.index};
    if (!r->raft_open)
        return status;
    raft_id leader = 0;
    const char *address = NULL;
    raft_leader((struct raft *)(uintptr_t)&r->raft, &leader, &address);
    const bool lately = r->now_ms - r->leader_heard_ms <= 2 * (uint64_t)r->options.election_ms;
    status.term = r->raft.current_term;
    status.leader = lately ? leader : 0;
    status.members_pending = r->raft.configuration_uncommitted_index != 0;
    return status;
}

void replica_members(const struct replica *r, struct members *out)
{
    out->n = 0;
    if (r->raft_open)
        raft_members(&r->raft.configuration, out);
}

bool replica_has_agreed_on(const struct replica *r, uint64_t id)
{
    const struct raft_configuration *list = &r->raft.configuration_committed;
    const uint64_t index = r->raft_open ? r->raft.configuration_committed_index : 0;
    for (unsigned i = 0; index && index <= r->applied && i < list->n; i++) {
        if (list->servers[i].id == id)
            return true;
    }
    return false;
}

uint64_t replica_match(const struct replica *r, uint64_t id)
{
    raft_index match = 0;
    if (!replica_leads(r) || raft_match_index(&r->raft, id, &match))
        return 0;
    return match;
}
