/* The inside of a replica, for replica*.c alone.
 *
 * Invariants, between two calls:
 *  1. `log` has exactly the entries of libraft's trail: from raft.trail.offset + 1 to
 *  raft_last_index(). 2. pending writes are in the order of their sequence; an entries write's
 *  range never reaches beyond what a later
 *     write of entries begins with, so that its acknowledgement speaks of entries that are still
 *     there.
 *  3. applied <= commit, applied <= raft.last_stored while nothing is being installed. 4. A message
 *  in `held` waits for a write with sequence `held.after`; those in `effects` may leave. */
#pragma once

#include "base/buffer.h"
#include "cluster/replica.h"
#include "cluster/wire.h"

#include <raft.h>

enum pending_type { PENDING_NONE, PENDING_ENTRIES, PENDING_INSTALL, PENDING_TAKEN, PENDING_FOUND };

struct pending {
    uint64_t sequence;
    enum pending_type type;
    uint64_t first, last; /* ENTRIES; empty when first > last */
};

struct effect_queue {
    struct replica_effect *list;
    size_t first, n, capacity;
};

enum { TELL_MEMBERS_MAX = 32 }; /* in larger clusters the heartbeat tells what is committed */

struct surveyed_member {
    uint64_t id, heard_ms;
    struct wire_status status;
};

struct replica {
    struct replica_options options;
    struct raft raft;
    bool raft_open;
    struct lineage lineage;
    struct log log;
    struct log_snapshot snapshot;   /* durable, and the one that libraft stands on */
    struct log_snapshot installing; /* from a leader; being written when its index is not 0 */
    struct log_snapshot taking;     /* asked for (no state yet), then being written */
    bool taking_written;            /* its write is under way */
    bool founding;                  /* re-founding is under way: nothing else counts */
    uint64_t now_ms, timer_ms;
    uint64_t commit, applied, members_seen;
    /* the leader's: what members were told to be committed, by their place in the list */
    struct {
        uint64_t id, commit;
    } told[TELL_MEMBERS_MAX];
    uint64_t told_all; /* all of them */
    uint64_t leader_heard_ms, status_due_ms;
    uint64_t last_sequence, hold_sequence, written_sequence;
    struct pending *pending;
    uint32_t n_pending, pending_capacity;
    struct effect_queue effects, held;
    struct surveyed_member *peers;
    uint32_t n_peers, peers_capacity;
    struct members scratch, step_scratch;
    bool resets;     /* the next write begins another lineage; within one input only */
    bool sets_aside; /* and there was a log before */
    struct {
        uint64_t term, id;
    } leader;           /* of a term: who spoke first in it, or this node; 0: none yet */
    uint64_t raised_ms; /* when a leader last took a higher term from one without a vote */
    uint64_t leapt_ms;  /* when a term far ahead was last taken from anybody */
    bool rejects_term;  /* entries or a snapshot of an older term are being rejected */
    bool failed;
};

/* ---- replica_heap.c ---- */
void replica_set_heap(
    void); /* of all replicas of the process; before the first call of libraft that allocates */

/* ---- replica_effects.c ---- */
void replica_fail(struct replica *r, enum error_code code, const char *what);
/* `effect` and what it owns go to the queue; false: the replica has failed for want of memory. */
bool replica_emit(struct replica *r, struct effect_queue *queue, struct replica_effect *effect);
bool replica_emit_bytes(struct replica *r, struct replica_effect effect, const uint8_t *bytes,
                        size_t size);
bool replica_emit_write(struct replica *r, struct log_write *write, enum pending_type type);
void replica_send(struct replica *r, uint64_t to, struct wire_message *message);
void replica_send_in(struct replica *r, uint64_t to, struct lineage lineage,
                     struct wire_message *message);
void replica_release_held(struct replica *r);
void effect_queue_deinit(struct effect_queue *queue);

/* ---- replica_step.c ---- */
int replica_step(struct replica *r,
                 struct raft_event *event); /* raft_step() and all that follows from it */
void replica_settle(struct replica *r);     /* applies what may be, sets the timer */
bool replica_start_raft(struct replica *r, uint64_t term, uint64_t vote);
/* An entry of our own, for a leader's log; libraft's error. */
int replica_append(struct replica *r, enum log_type type, const uint8_t *bytes, size_t size);
bool replica_members_encode(struct replica *r, const struct members *members, uint8_t **bytes,
                            size_t *size);
/* A list that was accepted once, as libraft's. False: no memory. */
bool replica_members_decode(struct replica *r, const uint8_t *bytes, size_t size,
                            struct raft_configuration *out);
bool raft_members(const struct raft_configuration *from, struct members *to);
bool replica_leads(const struct replica *r);
void replica_clock(struct replica *r, uint64_t now_ms);

/* ---- replica.c ---- */
/* From r->snapshot and r->log, in a new term where this is the only voter. */
void replica_start(struct replica *r, uint64_t term, uint64_t vote);

/* ---- replica_receive.c ---- */
uint64_t replica_term_of(const struct replica *r, uint64_t index); /* 0: it is not here */
void replica_deliver(struct replica *r, uint64_t from, struct wire_message *message);

/* ---- replica_sender.c ---- */
/* Whether it may say that; of our own lineage. ERROR_INVALID, ERROR_BUSY: it goes no further. */
enum error_code replica_check_sender(struct replica *r, uint64_t from,
                                     const struct wire_message *message, struct error *err);
enum error_code replica_check_snapshot(const struct replica *r, uint64_t from,
                                       struct lineage lineage, const struct log_snapshot *snapshot,
                                       struct error *err);
enum error_code replica_refuse(struct error *err, uint64_t from, const char *why);
enum error_code replica_turn_away(struct error *err, uint64_t from, const char *why);
void replica_note_leader(struct replica *r, uint64_t from, uint64_t term);
bool replica_is_listed(const struct replica *r, uint64_t id);        /* in our latest list */
bool replica_is_silent(const struct replica *r, unsigned elections); /* no leader for so long */

/* ---- replica_found.c ---- */
/* Of a higher lineage. With evidence of it our log is given up, else nothing is. */
enum error_code replica_hear_higher(struct replica *r, uint64_t from, struct wire_message *message,
                                    struct error *err);
void replica_on_status(struct replica *r, uint64_t from, const struct wire_message *message);
void replica_send_status(struct replica *r, uint64_t to, bool asks);
void replica_watch(struct replica *r); /* asks around, re-founds */
void replica_found_write(struct replica *r, const uint8_t *state, size_t size);
void replica_found_written(struct replica *r);
