/* This node as a party to what the cluster agrees on: replica and state (cluster/), its own events
 * on their way into the log, those of others where it leads, and who replicates. A machine without
 * clock, disk, network or thread: agreement.h drives it on a libuv loop, the simulator under a heap
 * of timed events.
 *
 *     party_new(&options, &party, &err);
 *     party_begin(party, now_ms, member, &saved, &err);      // from what the store holds
 *     for (;;) {
 *         struct party_effect effect;
 *         while (party_next(party, &effect))
 *             carry_out(&effect);                             // below
 *         wait for party_timer(), a message, a finished write, a wish;
 *         party_receive() / party_written() / party_propose() …; party_tick(party, now_ms);
 *     }
 *
 * Rules for the owner
 *  1. Inputs note what came, or hand it to the replica; what follows from it is found out in
 *     party_next(), after party_tick(). They may be called while an effect is carried out.
 *  2. Effects are carried out in order. What they point to is good until the next party_next().
 *  3. Writes may be done elsewhere, one after the other; party_written() follows when they are
 *     durable. After PARTY_FAILED, party_forget() and party_stop() those that were not begun are
 *     dropped, and the one under way is acknowledged to nobody: party_begin() is not called before
 *     it has ended.
 *  4. Time is milliseconds of a clock that does not go backwards.
 *
 * The state that is shown never goes back, see agreement.h. Not thread-safe: one thread at a
 * time. */
#pragma once

#include "base/log.h"
#include "cluster/replica.h"
#include "cluster/state.h"
#include "trust/identity.h"

struct party;

/* The state after an entry follows from the log alone, so parties in one process may share it: a
 * simulator of a thousand nodes does. NULL is the empty state, which nobody holds. */
struct party_states {
    /* The state after that entry, if somebody holds it: `old` is given back for it. NULL: nobody
     * does, and `old` stays. */
    struct state *(*find)(void *self, struct state *old, struct lineage lineage, uint64_t index);
    /* `old` for its holder alone, to be made the state after that entry. NULL: no memory, and
     * `old` stays. */
    struct state *(*own)(void *self, struct state *old, struct lineage lineage, uint64_t index);
    void (*give_back)(void *self, struct state *state);
    void *self;
};

struct party_options {
    const char *node; /* this node's id, for an event's `by`; NULL: the proposer sets it; copied */
    const struct identity
        *signer;   /* of what needs an admin; NULL: nothing is signed. Outlives it */
    uint64_t seed; /* of nonces; random */
    struct replica_options replica; /* zero fields: the defaults. The id is party_begin()'s */
    uint32_t proposal_ms;           /* 0: LIMIT_PROPOSAL_MS */
    uint32_t step_ms;         /* 0: 1000; an event is sent again, and the members are looked at */
    uint32_t reopen_ms;       /* 0: 5000; after a failure, up to 12 times that */
    uint32_t frame_bytes_max; /* 0: LIMIT_FRAME_CONTROL_BYTES */
    const struct party_states *states;                               /* NULL: its own */
    void (*say)(void *self, enum log_level level, const char *text); /* NULL: silence */
    void *self;
};

/* What becomes of a proposal; `outcome` is NULL unless `code` is ERROR_NONE. */
typedef void (*party_done_fn)(void *arg, enum error_code code, const struct state_outcome *outcome,
                              const struct error *err);

enum party_effect_type {
    PARTY_SEND = 1, /* FRAME_RAFT `bytes` to member `to`; lossy. party_skip_frames() if it cannot be
                       sent */
    PARTY_FORWARD,  /* FRAME_PROPOSE, likewise */
    PARTY_WRITE,    /* `write`, which is the owner's to take, to the store; then party_written() */
    PARTY_REOPEN,   /* open the store anew; then party_begin() or party_fail() */
    PARTY_ENTRY,    /* `entry` counts. `event`, if it is one, and `outcome` say what it has done;
                       no outcome: the state was shared and is ahead. `seen`: the state that is
                       shown has it already */
    PARTY_RESTORED, /* the state is now that of a snapshot, of `index` */
    PARTY_DROPPED,  /* the log was given up for a higher lineage */
    PARTY_DONE,     /* call `done` */
    PARTY_FAILED,   /* this node takes no part any more, see `err`; known: it was told before */
    PARTY_CHANGED,  /* another state, leader or lineage */
};

struct party_effect {
    enum party_effect_type type;
    uint64_t to, index;
    const uint8_t *bytes;
    size_t size;
    struct log_write *write;
    const struct replica_effect *entry;
    const Cluster__Event *event;
    const struct state_outcome *outcome;
    bool seen, known;
    party_done_fn done;
    void *arg;
    struct error err; /* DONE, FAILED */
};

/* Without a log. ERROR_NO_MEMORY. */
enum error_code party_new(const struct party_options *options, struct party **out,
                          struct error *err);
void party_free(struct party *party); /* NULL is fine; proposals end without a word */

/* A replica begins, from what the store of that member holds; one that is there ends. After a
 * failure the node goes on with all that it had promised. On errors it takes no part. */
enum error_code party_begin(struct party *party, uint64_t now_ms, uint64_t member,
                            const struct log_saved *saved, struct error *err);
/* The store could not write, or could not be opened. */
enum party_failing {
    PARTY_RETRIES,      /* it is opened again after a while, if that may help */
    PARTY_GIVES_UP,     /* not without a person */
    PARTY_RETRIES_TOLD, /* as PARTY_RETRIES; whoever must know does: no PARTY_FAILED */
};
void party_fail(struct party *party, uint64_t now_ms, const struct error *why,
                enum party_failing how);
/* The node leaves its cluster: nobody is heard and the state is empty until party_begin(). */
void party_forget(struct party *party);
void party_stop(struct party *party); /* takes no part any more; proposals are cancelled */

void party_tick(struct party *party, uint64_t now_ms);
uint64_t party_timer(const struct party *party); /* UINT64_MAX: nothing is waited for */
bool party_next(struct party *party, struct party_effect *out); /* false: nothing more for now */
void party_skip_frames(struct party *party); /* of the message that PARTY_SEND is of */

/* FRAME_RAFT, FRAME_PROPOSE. What makes no sense is said and dropped. True: party_tick() is due. */
bool party_receive(struct party *party, uint64_t now_ms, uint64_t from_member, const void *bytes,
                   size_t size);
bool party_receive_proposal(struct party *party, const void *bytes, size_t size);
void party_written(struct party *party, uint64_t now_ms, uint64_t sequence);

/* See agreement_propose(). ERROR_NO_MEMORY, and `done` is not called; else it is, later. */
enum error_code party_propose(struct party *party, uint64_t now_ms, uint64_t wall_ms,
                              Cluster__Event *event, party_done_fn done, void *arg,
                              struct error *err);
/* See agreement_set_members(). */
void party_set_members(struct party *party, const struct member_view *views, uint32_t n);

const struct state *party_state(const struct party *party);   /* that is shown */
const struct state *party_applied(const struct party *party); /* the log's */
uint64_t party_member(const struct party *party);
struct replica_status party_status(const struct party *party);
const struct error *party_failure(const struct party *party);         /* NULL: it takes part */
bool party_takes_part(const struct party *party);                     /* there is a replica */
bool party_has_agreed_on(const struct party *party, uint64_t member); /* as the replica */
