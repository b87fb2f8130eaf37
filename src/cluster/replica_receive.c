/* Messages: what libraft may be given, and in what pieces. */
#include "cluster/replica_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Of libraft 0.22.1's messages; from 2 on a vote's result says whether it is of a pre-vote. */
enum { VOTE_VERSION = 2, VOTE_RESULT_VERSION = 2, APPEND_RESULT_VERSION = 2 };

static int receive(struct replica *r, uint64_t from, struct raft_message *message)
{
    char address[24];
    snprintf(address, sizeof address, "%llu", (unsigned long long)from);
    message->server_id = from;
    message->server_address = address;
    struct raft_event event = {.type = RAFT_RECEIVE, .receive = {.message = message}};
    const int failed = replica_step(r, &event);
    if (failed)
        replica_fail(r, failed == RAFT_NOMEM ? ERROR_NO_MEMORY : ERROR_INTERNAL,
                     failed == RAFT_SHUTDOWN ? "a leader contradicts what is committed here"
                                             : raft_strerror(failed));
    return failed;
}

/* ---- entries ---- */

uint64_t replica_term_of(const struct replica *r, uint64_t index)
{
    const struct log_entry *entry = log_at(&r->log, index);
    return entry ? entry->term : index == r->snapshot.index ? r->snapshot.term : 0;
}

/* A list of members is about to follow another that is not known to be committed. There is never
 * more than one that is not, so the older one is committed, if the two logs agree up to here.
 * libraft assumes the same when it starts, but not here. */
static void commit_older_members(struct replica *r, uint64_t index, uint64_t prev_term)
{
    const uint64_t older = r->raft.configuration_uncommitted_index;
    if (older == 0 || older >= index || log_at(&r->log, index) ||
        replica_term_of(r, index - 1) != prev_term)
        return;
    const struct log_entry *entry = log_at(&r->log, older);
    struct raft_event event = {.type = RAFT_CONFIGURATION, .configuration = {.index = older}};
    if (!entry)
        return;
    if (!replica_members_decode(r, entry->bytes, entry->size, &event.configuration.conf))
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for the members");
    else
        replica_step(r, &event);
}

/* libraft's own copy of entries first to end - 1 of the message. It frees the batch when it does
 * not keep it. */
static struct raft_entry *raft_entries(const struct log_entry *from, uint32_t n)
{
    assert(n);
    size_t size = 1;
    for (uint32_t i = 0; i < n; i++)
        size += from[i].size;
    struct raft_entry *entries = raft_calloc(n, sizeof *entries);
    uint8_t *batch = raft_malloc(size);
    if (!entries || !batch) {
        raft_free(entries);
        raft_free(batch);
        return NULL;
    }
    uint8_t *at = batch;
    for (uint32_t i = 0; i < n; i++) {
        entries[i] = (struct raft_entry){
            .term = from[i].term, .type = (enum raft_entry_type)from[i].type, .batch = batch};
        entries[i].buf.base = at;
        entries[i].buf.len = from[i].size;
        memcpy(at, from[i].bytes, from[i].size);
        at += from[i].size;
    }
    return entries;
}

/* A part of the message: entries [first, first + n) of it. */
static bool append_part(struct replica *r, uint64_t from, const struct wire_append *append,
                        uint32_t first, uint32_t n)
{
    assert(first + n <= append->entries.n);
    const struct log_entry *list = append->entries.entries;
    const uint64_t prev_term = first ? list[first - 1].term : append->prev_term;
    struct raft_message message = {.type = RAFT_APPEND_ENTRIES};
    struct raft_append_entries *args = &message.append_entries;
    args->term = append->term;
    args->prev_log_index = append->prev_index + first;
    args->prev_log_term = prev_term;
    /* No further than what this message speaks of (Ongaro, figure 3.1, AppendEntries, 5): what is
     * here behind it may be another leader's. */
    const uint64_t spoken_of = args->prev_log_index + n;
    args->leader_commit = append->commit < spoken_of ? append->commit : spoken_of;
    if (n && list[first].type == LOG_MEMBERS)
        commit_older_members(r, args->prev_log_index + 1, prev_term);
    if (r->failed)
        return false;
    args->entries = n ? raft_entries(list + first, n) : NULL;
    args->n_entries = n;
    if (n && !args->entries) {
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for entries");
        return false;
    }
    void *batch = n ? args->entries[0].batch : NULL;
    const uint32_t writes = r->n_pending;
    r->rejects_term = append->term < r->raft.current_term;
    const bool good = receive(r, from, &message) == 0;
    r->rejects_term = false;
    /* With something to write the batch is ours again; else libraft has freed it. */
    if (n && good && r->n_pending > writes && r->pending[writes].type == PENDING_ENTRIES)
        raft_free(batch);
    raft_free(args->entries);
    return good;
}

/* A message that begins before what our snapshot has swallowed. All of that is committed, so every
 * leader has it, and the message may as well begin behind it. libraft would refuse it for ever (a
 * leader that has no older entries, and knows that we had those, cannot come to terms with us); or,
 * if it begins with entry 1, append it to the end. */
static struct wire_append behind_snapshot(const struct replica *r, const struct wire_append *append)
{
    struct wire_append rest = *append;
    const struct log_snapshot *snapshot = &r->snapshot;
    if (append->prev_index >= snapshot->index || log_at(&r->log, append->prev_index))
        return rest;
    const uint64_t skipped = snapshot->index - append->prev_index;
    const uint32_t n = skipped < append->entries.n ? (uint32_t)skipped : append->entries.n;
    rest.prev_index = snapshot->index;
    rest.prev_term = snapshot->term;
    rest.entries.entries = n ? rest.entries.entries + n : rest.entries.entries;
    rest.entries.n -= n;
    return rest;
}

/* A leader that speaks in our own term while we lead is not for libraft. */
static void deliver_append(struct replica *r, uint64_t from, const struct wire_append *whole)
{
    const struct wire_append rest = behind_snapshot(r, whole), *append = &rest;
    if (append->term == r->raft.current_term && r->raft.state == RAFT_LEADER)
        return;
    if (append->term >= r->raft.current_term)
        r->leader_heard_ms = r->now_ms;
    const uint32_t n = append->entries.n;
    for (uint32_t first = 0; first < n || first == 0;) {
        uint32_t end = first + 1;
        while (end < n && append->entries.entries[end].type != LOG_MEMBERS)
            end++;
        if (end > n)
            end = n;
        if (!append_part(r, from, append, first, end - first))
            return;
        first = end + (n == 0);
    }
    replica_note_leader(r, from, append->term);
}

static void deliver_append_result(struct replica *r, uint64_t from,
                                  const struct wire_append_result *result)
{
    raft_index match = 0;
    if (r->raft.state == RAFT_LEADER && result->rejected && result->term == r->raft.current_term &&
        raft_match_index(&r->raft, from, &match) == 0 && result->rejected <= match)
        return; /* stale: it has them by now */
    struct raft_message message = {.type = RAFT_APPEND_ENTRIES_RESULT};
    message.append_entries_result.version = APPEND_RESULT_VERSION;
    message.append_entries_result.term = result->term;
    message.append_entries_result.rejected = result->rejected;
    message.append_entries_result.last_log_index = result->last_index;
    receive(r, from, &message);
}

/* ---- votes ---- */

/* A vote is counted by the candidate's members, so a node votes whether or not its own list, which
 * may be the older one, says that it does (Ongaro, section 4.1). libraft denies it then; and a
 * follower without a vote never forgets its leader there, and denies every vote for that leader's
 * sake. So it is told that it votes, for this one step. */
static void vote_in_any_case(struct replica *r, uint64_t from, struct raft_message *message)
{
    assert(!r->resets);
    struct raft_server self = {.id = r->options.id, .address = r->raft.address, .role = RAFT_VOTER};
    const struct raft_configuration own = r->raft.configuration;
    if (r->raft.state == RAFT_FOLLOWER && r->now_ms - r->leader_heard_ms > r->options.election_ms) {
        raft_free(r->raft.follower_state.current_leader.address);
        r->raft.follower_state.current_leader.address = NULL;
        r->raft.follower_state.current_leader.id = 0;
    }
    r->raft.configuration = (struct raft_configuration){.servers = &self, .n = 1};
    receive(r, from, message);
    r->raft.configuration = own;
}

static void deliver_vote(struct replica *r, uint64_t from, const struct wire_vote *vote)
{
    struct raft_message message = {.type = RAFT_REQUEST_VOTE};
    message.request_vote.version = VOTE_VERSION;
    message.request_vote.term = vote->term;
    message.request_vote.candidate_id = from;
    message.request_vote.last_log_index = vote->last_index;
    message.request_vote.last_log_term = vote->last_term;
    message.request_vote.disrupt_leader = vote->disrupt;
    message.request_vote.pre_vote = vote->pre_vote;
    if (raft_role(&r->raft) == RAFT_VOTER || r->raft.state != RAFT_FOLLOWER)
        receive(r, from, &message);
    else
        vote_in_any_case(r, from, &message);
}

/* raft_step() looks at the candidate's arm before it has checked the role. And nobody grants a vote
 * of a term that was not asked for. */
static void deliver_vote_result(struct replica *r, uint64_t from,
                                const struct wire_vote_result *result)
{
    if (r->raft.state != RAFT_CANDIDATE ||
        (result->granted &&
         result->term > r->raft.current_term + r->raft.candidate_state.in_pre_vote))
        return;
    struct raft_message message = {.type = RAFT_REQUEST_VOTE_RESULT};
    message.request_vote_result.version = VOTE_RESULT_VERSION;
    message.request_vote_result.term = result->term;
    message.request_vote_result.vote_granted = result->granted;
    message.request_vote_result.pre_vote = result->pre_vote;
    receive(r, from, &message);
}

/* ---- snapshots, hand-over ---- */

/* While one is being written another would be leaked; the leader asks again. */
static void deliver_install(struct replica *r, uint64_t from, const struct wire_install *install)
{
    assert(install->snapshot.index);
    const struct log_snapshot *snapshot = &install->snapshot;
    if (r->installing.index ||
        (install->term == r->raft.current_term && r->raft.state == RAFT_LEADER))
        return;
    if (install->term >= r->raft.current_term)
        r->leader_heard_ms = r->now_ms;
    struct raft_message message = {.type = RAFT_INSTALL_SNAPSHOT};
    struct raft_install_snapshot *args = &message.install_snapshot;
    args->term = install->term;
    args->last_index = snapshot->index;
    args->last_term = snapshot->term;
    args->conf_index = snapshot->members_index;
    args->data.base = raft_malloc(snapshot->state_size + 1);
    args->data.len = snapshot->state_size;
    if (!args->data.base ||
        !replica_members_decode(r, snapshot->members, snapshot->members_size, &args->conf)) {
        raft_free(args->data.base);
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a snapshot");
        return;
    }
    memcpy(args->data.base, snapshot->state, snapshot->state_size);
    r->rejects_term = install->term < r->raft.current_term;
    receive(r, from, &message);
    r->rejects_term = false;
    replica_note_leader(r, from, install->term);
}

static void deliver_timeout_now(struct replica *r, uint64_t from,
                                const struct wire_timeout_now *now)
{
    struct raft_message message = {.type = RAFT_TIMEOUT_NOW};
    message.timeout_now.term = now->term;
    message.timeout_now.last_log_index = now->last_index;
    message.timeout_now.last_log_term = now->last_term;
    receive(r, from, &message);
}

void replica_deliver(struct replica *r, uint64_t from, struct wire_message *message)
{
    switch (message->type) {
    case WIRE_VOTE:
        deliver_vote(r, from, &message->vote);
        break;
    case WIRE_VOTE_RESULT:
        deliver_vote_result(r, from, &message->vote_result);
        break;
    case WIRE_APPEND:
        deliver_append(r, from, &message->append);
        break;
    case WIRE_APPEND_RESULT:
        deliver_append_result(r, from, &message->append_result);
        break;
    case WIRE_INSTALL:
        deliver_install(r, from, &message->install);
        break;
    case WIRE_TIMEOUT_NOW:
        deliver_timeout_now(r, from, &message->timeout_now);
        break;
    case WIRE_STATUS:
    case WIRE_UNKNOWN:
        break;
    }
}
