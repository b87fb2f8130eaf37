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

static void replica_adopt(struct replica *r, struct lineage lineage)
{
    assert(lineage_compare(lineage, r->lineage) > 0 && !r->founding);
    r->resets = true;
    r->sets_aside = log_last(&r->log) > 0;
    r->lineage = lineage;
    log_clear(&r->log, 1);
    log_snapshot_clear(&r->snapshot);
    forget_under_way(r);
    replica_start_raft(r, 0, 0);
    r->leader_heard_ms = r->now_ms;
}

/* Whose lineage it is: the founder and who brings it are members, by our list or by the one that
 * came. After long silence everybody we knew may be gone. Who has no log takes the first that
 * comes: its first entries may be older than the leader's own membership. */
static enum error_code check_lineage(struct replica *r, uint64_t from, struct lineage lineage,
                                     const uint8_t *list, size_t size, struct error *err)
{
    enum { SILENT_ELECTIONS = 30 };
    struct members *members = &r->scratch;
    const bool empty = !log_last(&r->log);
    const uint64_t founder = lineage.founder;
    if (!empty && lineage.generation - r->lineage.generation > LIMIT_CLUSTER_TERM_LEAP)
        return replica_refuse(err, from, "its generation is too far ahead");
    if (!list || members_decode(list, size, members, NULL))
        return replica_refuse(err, from, "its log has no members");
    if (empty || replica_is_silent(r, SILENT_ELECTIONS))
        return ERROR_NONE;
    if (!members_find(members, from) && !replica_is_listed(r, from))
        return replica_turn_away(err, from, "it leads a log in which it is not");
    if (!members_find(members, founder) && !replica_is_listed(r, founder))
        return replica_turn_away(err, from, "nobody knows the founder of its log");
    return ERROR_NONE;
}

/* A log from its first entry on: its founder's first list of members (replica_found()). A log that
 * was founded anew begins with a snapshot; and one of the same generation is another cluster's. */
static enum error_code check_first_entries(struct replica *r, uint64_t from,
                                           const struct wire_message *message, struct error *err)
{
    const struct log *entries = &message->append.entries;
    const struct log_entry *list = &entries->entries[0];
    assert(entries->n && !message->append.prev_index);
    if (message->lineage.generation != 1 || log_last(&r->log))
        return replica_refuse(err, from, "a log that was founded anew begins with a snapshot");
    if (list->type != LOG_MEMBERS || members_decode(list->bytes, list->size, &r->scratch, NULL) ||
        !members_find(&r->scratch, message->lineage.founder))
        return replica_refuse(err, from, "its log does not begin with its founder");
    for (uint32_t i = 1; i < entries->n; i++)
        list = entries->entries[i].type == LOG_MEMBERS ? &entries->entries[i] : list;
    return check_lineage(r, from, message->lineage, list->bytes, list->size, err);
}

static enum error_code check_first_snapshot(struct replica *r, uint64_t from,
                                            const struct wire_message *message, struct error *err)
{
    const struct log_snapshot *snapshot = &message->install.snapshot;
    const enum error_code code =
        check_lineage(r, from, message->lineage, snapshot->members, snapshot->members_size, err);
    return code ? code : replica_check_snapshot(r, from, message->lineage, snapshot, err);
}

/* A rejection promises nothing, so it needs no log: the leader sends all of its own then. */
static void ask_for_all(struct replica *r, uint64_t from, const struct wire_message *message)
{
    struct wire_message answer = {
        .type = WIRE_APPEND_RESULT,
        .append_result = {.term = message->append.term, .rejected = message->append.prev_index}};
    replica_send_in(r, from, message->lineage, &answer);
}

/* That there is a higher lineage is anybody's word. What is here goes on, and is given up in one
 * write with the whole of the other: its snapshot, or for a node without a log its first entries.
 * So whoever speaks of a lineage and dies, or lies, costs nobody a log. */
enum error_code replica_hear_higher(struct replica *r, uint64_t from, struct wire_message *message,
                                    struct error *err)
{
    enum error_code code = ERROR_NONE;
    assert(lineage_compare(message->lineage, r->lineage) > 0);
    if (message->type == WIRE_APPEND && message->append.prev_index) {
        ask_for_all(r, from, message);
        return ERROR_NONE;
    }
    if (message->type == WIRE_APPEND && message->append.entries.n)
        code = check_first_entries(r, from, message, err);
    else if (message->type == WIRE_INSTALL)
        code = check_first_snapshot(r, from, message, err);
    else
        return ERROR_NONE;
    if (code)
        return code;
    replica_adopt(r, message->lineage);
    if (!r->failed)
        replica_deliver(r, from, message);
    if (r->resets && !r->failed)
        replica_fail(r, ERROR_INTERNAL, "a log that was found good was not taken");
    return ERROR_NONE;
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

/* The list that a new generation begins with, as its own entry: the state has the list too. */
static void emit_founding_members(struct replica *r)
{
    assert(r->founding && members_find(&r->scratch, r->options.id));
    for (uint32_t i = 0; i < r->scratch.n; i++)
        r->scratch.list[i].votes = r->scratch.list[i].id == r->options.id;
    if (!replica_members_encode(r, &r->scratch, &r->taking.members, &r->taking.members_size))
        return;
    const struct replica_effect effect = {.type = REPLICA_APPLY,
                                          .index = r->taking.index,
                                          .term = r->taking.term,
                                          .lineage = {r->lineage.generation + 1, r->options.id},
                                          .entry = LOG_MEMBERS};
    if (replica_emit_bytes(r, effect, r->taking.members, r->taking.members_size))
        replica_emit(r, &r->effects,
                     &(struct replica_effect){.type = REPLICA_SNAPSHOT, .index = r->taking.index});
}

/* Everything that is stored counts from now on, and who votes; then the state is asked for. */
static void found_anew(struct replica *r)
{
    assert(!r->founding && !r->resets && !r->taking.index);
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
    r->taking = (struct log_snapshot){.index = last + 1,
                                      .term = entry ? entry->term : r->snapshot.term,
                                      .members_index = last + 1};
    if (!r->failed)
        emit_founding_members(r);
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
