/* The inside of an agreement, for agreement*.c alone.
 *
 * Whatever comes in (messages, proposals, members) goes to the replica or into a list, and wakes
 * the turn; effects are carried out, events raised and the timer set in agreement_turn() alone.
 *
 * Invariants, between two turns:
 *  1. One job runs at a time; it owns `store`, and what it was given, until it is back. 2.
 *  `replica` is NULL while the agreement has failed, is forgetting or closing. Another one begins
 *  only when no
 *     job runs, so a write that is done is acknowledged to the replica that asked for it, or to
 *     none.
 *  3. While `keeps`, `kept` is shown, and `state` is behind it. */
#pragma once

#include "agreement/agreement.h"
#include "agreement/nonces.h"
#include "agreement/pieces.h"
#include "base/buffer.h"
#include "cluster/store.h"

struct proposal { /* of this node */
    struct proposal *next;
    uint64_t nonce, deadline_ms, again_ms;
    struct buffer event;
    uint32_t level;       /* of the event */
    struct error refused; /* a code: what to say in the next turn */
    agreement_done_fn done;
    void *arg;
};

struct foreign { /* a proposal of another node, for a leader that has not caught up with its own log
                    yet */
    struct foreign *next;
    uint64_t nonce;
    uint32_t level;
    size_t size;
    uint8_t bytes[];
};

struct queued_write {
    struct queued_write *next;
    struct log_write write;
};

enum job_type { JOB_NONE, JOB_WRITE, JOB_REOPEN, JOB_FORGET, JOB_CLOSE };

struct job { /* on the thread pool */
    uv_work_t work;
    enum job_type type; /* NONE: none runs */
    const char *path;
    struct store *store;
    struct queued_write *writes;
    uint64_t sequence;      /* of the last of them */
    struct log_saved saved; /* REOPEN, FORGET: what was loaded */
    enum error_code code;
    struct error err;
};

struct agreement {
    struct agreement_options options; /* with the defaults */
    char *path, *node;
    uv_async_t wake;
    uv_timer_t timer;
    uint32_t n_handles; /* open */
    bool closing, handles_closing;
    void (*closed)(void *arg);
    void *closed_arg;

    struct store *store; /* NULL while a job has it */
    uint64_t member;
    struct replica *replica;
    struct job job;
    struct queued_write *first_write, **last_write;

    struct state state, kept;
    bool keeps;
    uint64_t applied, kept_until; /* indices */
    bool changed;

    bool failed, may_reopen, wrote; /* wrote: since the last failure */
    struct error failure;           /* the last */
    uint64_t reopen_at_ms, reopen_wait_ms;
    bool forgetting;
    agreement_forgotten_fn forgotten;
    void *forgotten_arg;

    struct pieces pieces;
    struct buffer frame;
    uint32_t message_number;

    struct proposal *proposals;
    uint32_t n_proposals;
    struct foreign *first_foreign, **last_foreign;
    uint32_t n_foreign;
    size_t foreign_bytes;
    struct nonces nonces;
    uint64_t nonce_seed, n_nonces;

    struct replica_status last; /* as of the last turn */
    bool ready;                 /* leads, and all that was in its log before is applied */
    uint64_t lead_from, ready_by_ms;

    struct members members, members_wanted;
    struct member_view *views;
    uint32_t n_views;
    bool members_due;
    uint64_t members_ms, members_pause_ms; /* not before */
};

/* ---- agreement.c ---- */
uint64_t agreement_now_ms(void);
void agreement_wake(struct agreement *a);
void agreement_turn(struct agreement *a);
/* The replica ends; the state stays. */
void agreement_fail(struct agreement *a, const struct error *why);
void agreement_note_failure(struct agreement *a,
                            const struct error *why); /* the same without the event */
void agreement_end_replica(struct agreement *a);

/* ---- agreement_open.c ---- */
void agreement_end(
    struct agreement *a); /* closing: the handles, when nothing is under way any more */
enum error_code agreement_begin_replica(struct agreement *a, const struct log_saved *saved,
                                        struct error *err);

/* ---- agreement_effects.c ---- */
void agreement_carry_out(struct agreement *a);
void agreement_keep_state(struct agreement *a, uint64_t until);
void agreement_drop_state(struct agreement *a);

/* ---- agreement_store.c ---- */
enum error_code agreement_open_store(const char *path, struct store **store,
                                     struct log_saved *saved, struct error *err);
/* What is there is kept as PATH.left; another member's takes its place. */
enum error_code agreement_replace_store(const char *path, struct store **store,
                                        struct log_saved *saved, struct error *err);
void agreement_queue_write(struct agreement *a, struct log_write *write); /* takes it over */
void agreement_drop_writes(struct agreement *a);
void agreement_next_job(
    struct agreement *a); /* begins what is to be done, if nothing is under way */

/* ---- agreement_propose.c ---- */
void agreement_proposals(struct agreement *a); /* sends, submits and gives up what is due */
void agreement_proposals_now(struct agreement *a);
void agreement_proposal_applied(struct agreement *a, uint64_t nonce,
                                const struct state_outcome *outcome);
void agreement_proposals_end(struct agreement *a, enum error_code code, const char *why);
void agreement_drop_foreign(struct agreement *a);
uint64_t agreement_proposals_timer(const struct agreement *a);

/* ---- agreement_members.c ---- */
void agreement_step_members(struct agreement *a);
uint64_t agreement_members_timer(const struct agreement *a);
