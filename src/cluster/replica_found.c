/* Lineages: finding out who is left, founding the log anew, giving one's own up for a higher
 * one. */
#include "cluster/replica_impl.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* A leader was heard so lately that there is no reason to ask. */
static bool led(const struct replica *r)
{
    return r->now_ms - r->leader_heard_ms <= 2 * (uint64_t)r->options.election_ms;
}

void replica_send_status(struct replica *r, uint64_t to, bool asks)
{
    const uint64_t last = log_last(&r->log);
    const struct log_entry *entry = log_at(&r->log, last);
    struct wire_message wire = {.type = WIRE_STATUS};
    wire.status = (struct wire_status){.last_index = last, .led = led(r), .asks = asks};
    wire.status.last_term = entry ? entry->term : r->snapshot.term;
    replica_send(r, to, &wire);
}

static struct surveyed_member *peer_of(struct replica *r, uint64_t id)
{
    assert(id && id != r->options.id);
    for (uint32_t i = 0; i < r->n_peers; i++) {
        if (r->peers[i].id == id)
            return &r->peers[i];
    }
    if (r->n_peers == LIMIT_CLUSTER_NODES)
        r->n_peers = 0; /* strangers; members answer again within a second */
    if (r->n_peers == r->peers_capacity) {
        const uint32_t capacity = r->peers_capacity ? 2 * r->peers_capacity : 8;
        struct surveyed_member *peers = mem_resize(r->peers, capacity, sizeof *peers);
        if (!peers)
            return NULL;
        r->peers = peers;
        r->peers_capacity = capacity;
    }
    struct surveyed_member *peer = &r->peers[r->n_peers++];
    *peer = (struct surveyed_member){.id = id};
    return peer;
}

/* Of our own lineage: higher ones were adopted, lower ones answered. */
void replica_on_status(struct replica *r, uint64_t from, const struct wire_message *message)
{
    struct surveyed_member *peer = replica_is_listed(r, from) ? peer_of(r, from) : NULL;
    if (replica_is_listed(r, from) && !peer) {
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a peer");
        return;
    }
    if (peer) {
        peer->heard_ms = r->now_ms;
        peer->status = message->status;
    }
    if (message->status.asks)
        replica_send_status(r, from, false);
}

/* ---- giving up ---- */

void replica_drop_former(struct replica *r)
{
    log_deinit(&r->former.log);
    log_snapshot_clear(&r->former.snapshot);
    r->former = (struct former){0};
}

/* What is under way for one log means nothing to another. */
static void forget_under_way(struct replica *r)
{
    log_snapshot_clear(&r->installing);
    log_snapshot_clear(&r->taking);
    r->taking_written = false;
    r->n_pending = 0;
    r->n_peers = 0;
    for (size_t i = 0; i < r->held.n; i++)
        replica_effect_clear(&r->held.list[r->held.first + i]);
    r->held.first = r->held.n = 0;
    memset(r->told, 0, sizeof r->told);
    r->told_all = 0;
}

/* What is durable once the writes that were handed out are. */
static void keep_former(struct replica *r)
{
    struct log_snapshot *snapshot = r->installing.index ? &r->installing : &r->snapshot;
    assert(!r->former.kept && !r->founding);
    r->former = (struct former){.kept = true,
                                .lineage = r->lineage,
                                .term = r->raft.current_term,
                                .vote = r->raft.voted_for,
                                .commit = r->commit,
                                .applied = r->applied,
                                .log = r->log,
                                .snapshot = *snapshot};
    *snapshot = (struct log_snapshot){0};
    r->log = (struct log){0};
}

/* The log is given up for a higher lineage, whose word is all that is known of it. It may come from
 * a node that has died since, with the only copy: so what is here stays on the disk until the first
 * of the other has come (replace_former()). */
void replica_adopt(struct replica *r, struct lineage lineage)
{
    assert(lineage_compare(lineage, r->lineage) > 0);
    if (log_last(&r->log) && !r->former.kept)
        keep_former(r);
    r->lineage = lineage;
    log_clear(&r->log, 1);
    log_snapshot_clear(&r->snapshot);
    forget_under_way(r);
    if (!r->former.kept) {
        struct log_write write = {.reset = true, .lineage = lineage};
        if (!replica_emit_write(r, &write, PENDING_NONE))
            return;
    }
    replica_start_raft(r, 0, 0);
    r->leader_heard_ms = r->now_ms;
}

/* Nobody who leads the higher lineage speaks to us: three times as long as libraft's leader waits
 * for the answer to a snapshot. We go on where we were. Whoever has the higher one will say so
 * again. */
static bool return_to_former(struct replica *r)
{
    enum { FORMER_ELECTIONS = 30 };
    struct former *former = &r->former;
    const uint64_t silent_ms = r->now_ms - r->leader_heard_ms;
    if (!former->kept || silent_ms < (uint64_t)FORMER_ELECTIONS * r->options.election_ms ||
        r->written_sequence < r->last_sequence)
        return false;
    const struct former was = *former;
    assert(was.applied <= was.commit);
    *former = (struct former){0};
    log_deinit(&r->log);
    log_snapshot_clear(&r->snapshot);
    forget_under_way(r);
    r->lineage = was.lineage;
    r->log = was.log;
    r->snapshot = was.snapshot;
    replica_start(r, was.term, was.vote);
    r->commit = r->commit < was.commit ? was.commit : r->commit;
    if (was.applied >= r->snapshot.index)
        r->applied = was.applied;
    else /* it was being installed */
        replica_emit_bytes(
            r, (struct replica_effect){.type = REPLICA_RESTORE, .index = r->snapshot.index},
            r->snapshot.state, r->snapshot.state_size);
    r->leader_heard_ms = r->now_ms;
    return true;
}

/* ---- founding anew ---- */

/* What a member, or we ourselves, can offer: the higher, the better a founder. Negative: a is
 * behind b. */
static int compare_offers(uint64_t a_id, const struct wire_status *a, uint64_t b_id,
                          const struct wire_status *b)
{
    if (a->last_term != b->last_term)
        return a->last_term < b->last_term ? -1 : 1;
    if (a->last_index != b->last_index)
        return a->last_index < b->last_index ? -1 : 1;
    return (a_id < b_id) - (a_id > b_id);
}

struct survey {
    uint32_t members, voters, reached, voters_reached;
    bool led, best; /* someone hears a leader; nobody has more than we have */
};

static struct survey survey(struct replica *r, const struct members *members)
{
    assert(members_find(members, r->options.id));
    const struct log_entry *entry = log_at(&r->log, log_last(&r->log));
    const struct wire_status own = {.last_index = log_last(&r->log),
                                    .last_term = entry ? entry->term : r->snapshot.term};
    struct survey found = {.members = members->n, .voters = members_voters(members), .best = true};
    for (uint32_t i = 0; i < members->n; i++) {
        const struct member *member = &members->list[i];
        const bool self = member->id == r->options.id;
        const struct surveyed_member *peer = self ? NULL : peer_of(r, member->id);
        if (!self &&
            (!peer || !peer->heard_ms || r->now_ms - peer->heard_ms > 3 * r->options.status_ms))
            continue;
        found.reached++;
        found.voters_reached += member->votes;
        if (peer) {
            found.led |= peer->status.led;
            found.best &= compare_offers(r->options.id, &own, member->id, &peer->status) > 0;
        }
    }
    return found;
}

/* Everything that is stored counts from now on; then the state is asked for. */
static void found_anew(struct replica *r)
{
    assert(!r->founding && !r->former.kept && !r->taking.index);
    assert(r->raft.last_stored == log_last(&r->log));
    const uint64_t last = log_last(&r->log);
    const struct log_entry *entry = log_at(&r->log, last);
    for (uint64_t index = r->applied + 1; index <= last && !r->failed; index++) {
        const struct log_entry *one = log_at(&r->log, index);
        const struct replica_effect effect = {.type = REPLICA_APPLY,
                                              .index = index,
                                              .term = one->term,
                                              .lineage = {r->lineage.generation + 1, r->options.id},
                                              .entry = one->type};
        if (one->type != LOG_BARRIER)
            replica_emit_bytes(r, effect, one->bytes, one->size);
    }
    r->applied = r->commit = last;
    r->founding = true;
    log_snapshot_clear(&r->taking);
    r->taking = (struct log_snapshot){
        .index = last, .term = entry ? entry->term : r->snapshot.term, .members_index = last};
    for (uint32_t i = 0; i < r->scratch.n; i++)
        r->scratch.list[i].votes = r->scratch.list[i].id == r->options.id;
    struct replica_effect effect = {.type = REPLICA_SNAPSHOT, .index = last};
    if (replica_members_encode(r, &r->scratch, &r->taking.members, &r->taking.members_size))
        replica_emit(r, &r->effects, &effect);
}

/* The state has come: it and the new lineage become durable in one write. */
void replica_found_write(struct replica *r, const uint8_t *state, size_t size)
{
    assert(r->founding && r->taking.index && !r->taking_written);
    struct log_snapshot whole = r->taking;
    whole.state = (uint8_t *)(uintptr_t)state;
    whole.state_size = size;
    struct log_snapshot copy = {0};
    struct log_write write = {.reset = true,
                              .lineage = {r->lineage.generation + 1, r->options.id},
                              .has_term = true,
                              .term = r->raft.current_term + 1,
                              .vote = r->options.id,
                              .has_snapshot = true,
                              .clear_log = true};
    if (log_snapshot_copy(&copy, &whole, NULL) ||
        log_snapshot_copy(&write.snapshot, &whole, NULL)) {
        log_snapshot_clear(&copy);
        replica_fail(r, ERROR_NO_MEMORY, "not enough memory for a snapshot");
        return;
    }
    log_snapshot_clear(&r->taking);
    r->taking = copy;
    r->taking_written = true;
    replica_emit_write(r, &write, PENDING_FOUND);
}

void replica_found_written(struct replica *r)
{
    assert(r->founding && r->taking_written);
    const uint64_t term = r->raft.current_term + 1, index = r->taking.index;
    r->lineage = (struct lineage){r->lineage.generation + 1, r->options.id};
    log_snapshot_clear(&r->snapshot);
    r->snapshot = r->taking;
    r->taking = (struct log_snapshot){0};
    r->taking_written = r->founding = false;
    r->n_pending = 0;
    log_clear(&r->log, index + 1);
    replica_start_raft(r, term, r->options.id);
    r->status_due_ms = r->now_ms + r->options.status_ms;
}

/* Asks around while no leader is heard, and founds the log anew when that has lasted. */
void replica_watch(struct replica *r)
{
    if (r->now_ms < r->status_due_ms)
        return;
    /* Whoever stood still (SIGSTOP, a closed lid) has not asked, nor could it hear: its grace
     * begins now. Else it would found the log anew before it has heard those who went on. */
    if (r->now_ms - r->status_due_ms > 3 * r->options.status_ms)
        r->leader_heard_ms = r->now_ms;
    r->status_due_ms = r->now_ms + r->options.status_ms;
    if (return_to_former(r))
        return;
    struct members *members = &r->scratch;
    raft_members(&r->raft.configuration, members);
    if (led(r) || replica_leads(r) || !members_find(members, r->options.id))
        return;
    const struct survey found = survey(r, members);
    for (uint32_t i = 0; i < members->n; i++) {
        if (members->list[i].id != r->options.id)
            replica_send_status(r, members->list[i].id, true);
    }
    const uint64_t grace =
        2 * found.reached >= found.members ? r->options.grace_ms : r->options.minority_grace_ms;
    /* A snapshot of the old log that is being written would take the place of the new one's. */
    const bool settled = r->raft.last_stored == log_last(&r->log) && !r->installing.index &&
                         !r->taking.index && log_last(&r->log) > 0;
    if (r->options.grace_ms && settled && !found.led && found.best &&
        2 * found.voters_reached <= found.voters && r->now_ms - r->leader_heard_ms >= grace)
        found_anew(r);
}
