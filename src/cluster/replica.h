/* One node's copy of the cluster's log: consensus (libraft's raft_step()) as a machine without
 * clock, disk, network or thread. Whoever owns it puts events in and carries out the effects that
 * come out, in their order; the daemon does it with sockets and SQLite, the simulator with a heap
 * of timed events.
 *
 *     replica_open(&options, &saved, now_ms, &replica, &err);
 *     for (;;) {
 *         struct replica_effect effect;
 *         while (replica_next(replica, &effect)) {
 *             carry_out(&effect);                  // below
 *             replica_effect_clear(&effect);
 *         }
 *         wait for the timer, a message, a finished write, a wish;
 *         replica_tick() / replica_receive() / replica_written() / replica_submit() …
 *     }
 *
 * Rules for the owner
 *  1. Effects are carried out in order. Writes may be done elsewhere, one after the other;
 *  replica_written() follows
 *     when they are durable (fsync), never before.
 *  2. A message may be lost, doubled, delayed and overtaken, but not changed, and `from` is who
 *  sent it. 3. Time is milliseconds of a clock that does not go backwards (if it does, it is taken
 *  to stand still). 4. A write that fails ends the replica: close it, and open it from what the
 *  store holds. So does REPLICA_FAILED.
 *
 * What it sees to beyond libraft (0.22.1; found by reading it and by the random worlds of the
 * tests)
 *  - A vote result reaches raft_step() only in the role of a candidate (it reads the candidate's
 *    arm of a union before
 * it checks), a message of its own term's leader never reaches a leader, a stale rejection never
 * lowers what is known to match: the library's assertions on these are compiled out.
 *  - Who says it: replica_sender.c.
 *  - A candidate that lost its election asks beforehand again; libraft takes a term with every
 *    timeout from then on, and one that has lost its vote would be ahead of its leader for ever.
 *  - Lists of members are checked before it decodes them (it reads past their end).
 *  - Entries of one message are handed over so that a list of members is always the first: libraft
 *    notes the index of the first entry for any list in the batch. A list that has another behind
 *    it counts as committed.
 *  - A node answers a request for its vote also when its own list gives it none (libraft denies),
 *    since the candidate's list may be the newer one: else a leader that crashes while it gives a
 *    second node the vote never returns.
 *  - Entries that begin before what the own snapshot has swallowed are handed over from there on.
 *  - A message leaves only when the term and vote that it speaks for are durable.
 *  - A sole voter that starts takes a new term. libraft leads on in the old one, in which others
 *    may already have entries that the voter lost with its last write.
 *  - A leader changes who votes only after an entry of its own term is committed (raft-dev, "bug in
 *    single-server membership changes", 2015).
 *  - An answer to entries or a snapshot of an older term says the term alone: libraft leaves its
 *    indices unset, and whatever was in memory would go out.
 *  - A pre-vote of an older term is denied with our own: libraft echoes the one that was asked for,
 *    so a node with the longest log and an older term never learned of the newer one, and no other
 *    could win without it.
 *  - A leader begins its term with an entry of it. libraft leaves that out where all that it has is
 *    committed; then a follower's leftovers of another leader stayed until somebody proposed
 *    something.
 *  - The commit index never falls (a late message makes libraft's fall). Only what is durable here
 *    is applied.
 *
 * Membership: everybody else replicates without a vote; see members.h for who votes. A new node has
 * no members and waits until a leader speaks to it.
 *
 * Re-founding. A node that has heard no leader for `grace_ms` asks all members who is there. If no
 * majority of the voters answers and nobody hears a leader, the one with the most advanced log
 * (ties: the lowest id) founds the log anew: it applies all that it holds (what the lost voters may
 * have committed is in nobody's power to know; a superset is kept), and begins the next generation
 * with itself as the only voter and the rest as members without a vote. If less than half of the
 * members answer it waits for `minority_grace_ms`. A node that meets a higher lineage joins it when
 * the whole of it has come: a snapshot (or, for a node without a log, the log from its first entry)
 * whose sender and founder are members, and whose state is one. Until then its own log goes on.
 * Then log, snapshot, term and vote are replaced in one write, which keeps the old ones aside; what
 * only the lower lineage had agreed on is no part of the cluster's state any more. A node that was
 * removed must not be let in (its certificate is refused): the replica trusts who may speak to it.
 *
 * Ownership: effects are the caller's once taken. Not thread-safe: one thread at a time. */
#pragma once

#include "cluster/log.h"
#include "cluster/members.h"

struct replica_options {
    uint64_t id;             /* of this log: random, made with the store, never 0 */
    uint64_t seed;           /* for election timeouts */
    uint32_t election_ms;    /* without a leader for 1 to 2 of these: an election */
    uint32_t heartbeat_ms;   /* well below */
    uint32_t snapshot_after; /* entries applied since the last snapshot */
    uint32_t trailing;  /* entries kept before a snapshot, for nodes that are a little behind */
    uint64_t status_ms; /* between questions who is there, while no leader is heard */
    uint64_t grace_ms;  /* 0: never re-found */
    uint64_t minority_grace_ms; /* at least grace_ms */
    /* Whether the bytes can be the state of that lineage: asked before a snapshot takes the place
     * of anything. NULL: everything can. */
    enum error_code (*check_state)(void *self, struct lineage lineage, const uint8_t *bytes,
                                   size_t size, struct error *err);
    void *self;
    bool believes_anybody; /* planted by the simulator's tests; never in the product */
};
struct replica_options replica_options_default(void); /* without id and seed */

enum replica_effect_type {
    REPLICA_SEND = 1, /* `bytes` to member `to`; lossy */
    REPLICA_WRITE,    /* `write`: to the store, then replica_written(write.sequence) */
    REPLICA_APPLY,    /* `entry` with `index` and `term` is committed: an event to the state, or
                         members */
    REPLICA_RESTORE,  /* the state is now what `bytes` say, as of `index` (state_decode()) */
    REPLICA_SNAPSHOT, /* answer with replica_snapshot(): the state as it is after the effects so
                         far, of `index` */
    REPLICA_EMPTY,    /* the log was dropped for a higher lineage: the state is empty again */
    REPLICA_FAILED,   /* `failure` says why; nothing more will come */
};

struct replica_effect {
    enum replica_effect_type type;
    uint64_t to, index, term;
    struct lineage lineage; /* APPLY: that it counts in */
    enum log_type entry;
    uint8_t *bytes;
    size_t size;
    struct log_write write;
    struct error failure;
};
void replica_effect_clear(struct replica_effect *effect);

struct replica;

/* The write that makes `id` the first node of a new cluster, its only voter. For an empty store;
 * then load and open. */
enum error_code replica_found(uint64_t id, struct log_write *out, struct error *err);

/* From what the store holds; zeroed: a node that waits to be taken in. `saved` stays the caller's.
 * ERROR_INVALID: that cannot be a log. ERROR_NO_MEMORY. */
enum error_code replica_open(const struct replica_options *options, const struct log_saved *saved,
                             uint64_t now_ms, struct replica **out, struct error *err);
void replica_close(struct replica *replica); /* NULL is fine */

bool replica_next(struct replica *replica,
                  struct replica_effect *out);         /* false: nothing more for now */
uint64_t replica_timer(const struct replica *replica); /* call replica_tick() then */

/* What cannot be a message, or what no honest member says, is refused (ERROR_INVALID) and changes
 * nothing; nor does what is not its sender's to say as far as is known here (ERROR_BUSY). */
enum error_code replica_receive(struct replica *replica, uint64_t now_ms, uint64_t from,
                                const uint8_t *bytes, size_t size, struct error *err);
void replica_tick(struct replica *replica, uint64_t now_ms);
void replica_written(struct replica *replica, uint64_t now_ms,
                     uint64_t sequence); /* that and all before it */
void replica_snapshot(struct replica *replica, uint64_t now_ms, uint64_t index,
                      const uint8_t *state, size_t size);

/* An event for the log. *index is where it stands if it is ever committed; it may still be lost
 * with the leader, and comes back as REPLICA_APPLY otherwise. ERROR_BUSY: not the leader (ask
 * replica_status()), or too much is under way. ERROR_INVALID: larger than
 * LIMIT_CLUSTER_ENTRY_BYTES. */
enum error_code replica_submit(struct replica *replica, uint64_t now_ms, const uint8_t *bytes,
                               size_t size, uint64_t *index, struct error *err);
/* The next list of members; see members_check_step(). ERROR_BUSY also while the last one is not
 * committed. */
enum error_code replica_change_members(struct replica *replica, uint64_t now_ms,
                                       const struct members *members, struct error *err);
/* Hands leadership to another voter, which takes over once it has the whole log. ERROR_BUSY,
 * ERROR_INVALID. */
enum error_code replica_hand_over(struct replica *replica, uint64_t now_ms, uint64_t to,
                                  struct error *err);

struct replica_status {
    struct lineage lineage;
    uint64_t term, leader; /* leader 0: none is known */
    bool leads, failed, members_pending;
    uint64_t commit, applied, last, snapshot;
};
struct replica_status replica_status(const struct replica *replica);
/* The latest list in the log, committed or not; empty: none. */
void replica_members(const struct replica *replica, struct members *out);
/* In the list that was agreed on last, and the entries up to it are applied: so the state has, or
 * had, a record of that member. */
bool replica_has_agreed_on(const struct replica *replica, uint64_t id);
/* How far a member's log is known to be the leader's; 0: unknown, or this is no leader. */
uint64_t replica_match(const struct replica *replica, uint64_t id);
