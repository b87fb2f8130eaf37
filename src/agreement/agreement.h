/* This node's part in what the cluster agrees on: store, replica and state (cluster/), on a libuv
 * loop.
 *
 *     agreement_open(&options, &agreement, err);         // from STATE/cluster.db, which is made if
 *                                                        it is missing
 *     agreement_found(agreement, err);                   // the first node; others wait until a
 *                                                        leader speaks to them
 *     agreement_propose(agreement, &event, on_done, arg);
 *     ... events ...
 *     agreement_close(agreement, on_closed, arg);
 *
 * Everything is on the loop's thread. Events and `done` are raised from the loop only, never from
 * within a call of this header, but may call anything here, also agreement_close(). What is written
 * goes to libuv's thread pool, one write after the other: whoever fills all of the pool for long
 * stops the log. agreement_open() and agreement_found() touch the disk themselves; they are for a
 * node's start.
 *
 * The state that is shown never goes back. After a failure (below) it is read from the disk anew,
 * and what came after the last snapshot is applied again; after the log was dropped for a higher
 * lineage (replica.h) the leader sends it. Until then agreement_state() is the one before, so that
 * nothing that runs is stopped for that, and the members that are in it can be spoken to. Only
 * after agreement_open() it is what the store can answer for: a node that does not vote alone
 * learns from a leader which of its last entries count.
 *
 * Failing. A write that fails (disk full, I/O) or memory that runs out ends the replica: `failed`
 * is raised and the node takes no part; agreement_status().failed. Every 5 s, and less often if
 * that fails, the store is opened again; then the node goes on with all that it had promised. A
 * damaged file is not tried again (agreement_forget() gives a new one), nor is a log with an event
 * of a kind that this version does not know.
 *
 * Versions. An event whose kind not all admitted nodes know (event_level(), state_level()) is not
 * proposed, and a leader does not take it up from others. */
#pragma once

#include "cluster/replica.h"
#include "cluster/state.h"

#include <uv.h>

struct agreement;

struct agreement_events {
    /* Another state, leader or lineage; at most once a turn of the loop. */
    void (*changed)(void *self);
    /* An event of the log counts, or was found to make no sense (outcome->applied). Raised again
     * after a restart for what came after the last snapshot; not raised for what is part of a
     * snapshot that a leader sent. */
    void (*applied)(void *self, uint64_t index, const Cluster__Event *event,
                    const struct state_outcome *outcome);
    /* FRAME_RAFT to a member, at most LIMIT_FRAME_CONTROL_BYTES; copied. False: there is no link,
     * or its queue is full.
     */
    bool (*send)(void *self, uint64_t member, const void *bytes, size_t size);
    bool (*forward)(void *self, uint64_t member, const void *event,
                    size_t size); /* FRAME_PROPOSE, likewise */
    void (*failed)(void *self, const struct error *why);
    void *self;
};

struct agreement_options {
    uv_loop_t *loop;
    const char *path;              /* of the store, in a folder that exists */
    const char *node;              /* this node's id, for an event's `by`; NULL: the caller of
                                      agreement_propose() sets it */
    const struct identity *signer; /* of what needs an admin (cluster/proof.h); NULL: nothing is
                                      signed. The caller's until it is closed */
    struct agreement_events events;
    /* What was applied is about to be replaced by a snapshot of it, on the disk: whoever keeps
     * something of each event makes it last now. On the thread pool, with events.self; may take its
     * time. NULL: nobody does. */
    void (*before_snapshot)(void *self);
    struct replica_options replica; /* zero fields: the defaults. The id is the store's */
    uint32_t proposal_ms;           /* 0: LIMIT_PROPOSAL_MS */
    uint32_t step_ms;         /* 0: 1000; an event is sent again, and the members are looked at */
    uint32_t reopen_ms;       /* 0: 5000; after a failure, up to 12 times that */
    uint32_t frame_bytes_max; /* 0: LIMIT_FRAME_CONTROL_BYTES; for tests */
};

/* ERROR_BUSY: another process has the file open. ERROR_INVALID: it is damaged, or of a later
 * version; it is left as it is. ERROR_IO, ERROR_NO_MEMORY. */
enum error_code agreement_open(const struct agreement_options *options, struct agreement **out,
                               struct error *err);

/* What is under way on the disk ends; then `closed` is called. What waits to be applied ends with
 * ERROR_CANCELLED at once. NULL is not fine. */
void agreement_close(struct agreement *agreement, void (*closed)(void *arg), void *arg);

/* This node is the first of a new cluster. ERROR_INVALID: it is in one. ERROR_BUSY: it has failed,
 * or is forgetting. Else it could not be written: a failure of the agreement, told here. */
enum error_code agreement_found(struct agreement *agreement, struct error *err);

/* The node leaves its cluster: the store is kept as PATH.left, in place of an older one, and a new
 * one is made, with another member id. From now on the state is empty and nobody is heard; `done`
 * (NULL is fine) is called when it is so on the disk. A failure then is a failure of the agreement,
 * too. At once, ERROR_BUSY: it is forgetting already. */
typedef void (*agreement_forgotten_fn)(void *arg, enum error_code code, const struct error *err);
enum error_code agreement_forget(struct agreement *agreement, agreement_forgotten_fn done,
                                 void *arg, struct error *err);

/* Good until the next turn of the loop. */
const struct state *agreement_state(const struct agreement *agreement);
uint64_t agreement_member(const struct agreement *agreement); /* 0 while it is forgetting */
struct replica_status
agreement_status(const struct agreement *agreement); /* of a replica that is not there: zeroed */
bool agreement_has_agreed_on(const struct agreement *agreement, uint64_t member); /* replica.h */
const struct error *
agreement_failure(const struct agreement *agreement); /* why it takes no part; NULL: it does */

/* FRAME_RAFT from a member. What makes no sense is logged and dropped. */
void agreement_receive(struct agreement *agreement, uint64_t from_member, const void *bytes,
                       size_t size);

/* An event for the log, wherever the leader is: submitted here, or forwarded. Sets nonce, and time
 * and `by` where they are not set; the event stays the caller's, and may go when this returns. It
 * is sent again every second and whenever the leader changes, until it was applied: then `done` is
 * called with ERROR_NONE and what became of it. Else `outcome` is NULL: ERROR_BUSY: not within 10 s
 * (which does not mean that it never will be), or LIMIT_PROPOSALS wait already;
 *   ERROR_INVALID: larger than LIMIT_CLUSTER_ENTRY_BYTES; ERROR_UNSUPPORTED: an admitted node does
 *   not know its kind; ERROR_CANCELLED: closed or forgotten; ERROR_NO_MEMORY.
 * `done` may be NULL. Want of memory for the proposal itself alone is told before this returns. */
typedef void (*agreement_done_fn)(void *arg, enum error_code code,
                                  const struct state_outcome *outcome, const struct error *err);
void agreement_propose(struct agreement *agreement, Cluster__Event *event, agreement_done_fn done,
                       void *arg);

/* FRAME_PROPOSE. Submitted if this node leads and does not have the event in its log, else
 * dropped. */
void agreement_receive_proposal(struct agreement *agreement, const void *bytes, size_t size);

/* Who should be a member, this node included: call it whenever that changes, on every node.
 * `caught_up` is found out here. The list is kept; while this node leads, members and votes are
 * moved there a step at a time (members.h). None at all: nothing is moved. */
void agreement_set_members(struct agreement *agreement, const struct member_view *views,
                           uint32_t n);
