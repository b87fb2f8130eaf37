/* The inside of an agreement, for agreement*.c alone: a party (party.h) and what it lives on, a
 * libuv loop and a store.
 *
 * Whatever comes in goes to the party and wakes the turn; effects are carried out, events raised
 * and the timer set in agreement_turn() alone.
 *
 * Invariant, between two turns: one job runs at a time; it owns `store`, and what it was given,
 * until it is back. Another replica begins only when no job runs, so a write that is done is
 * acknowledged to the replica that asked for it, or to none. */
#pragma once

#include "agreement/agreement.h"
#include "agreement/party.h"
#include "cluster/store.h"

struct waiting_write {
    struct waiting_write *next;
    struct log_write write;
};

enum store_job_type { JOB_NONE, JOB_WRITE, JOB_REOPEN, JOB_FORGET, JOB_CLOSE };

struct store_job { /* on the thread pool */
    uv_work_t work;
    enum store_job_type type; /* NONE: none runs */
    const char *path;
    struct store *store;
    struct waiting_write *writes;
    void (*before_snapshot)(void *self); /* NULL: none is among them, or nobody wants to know */
    void *self;
    uint64_t sequence;      /* of the last of them */
    struct log_saved saved; /* REOPEN, FORGET: what was loaded */
    enum error_code code;
    struct error err;
};

struct agreement {
    uv_loop_t *loop;
    struct agreement_events events;
    void (*before_snapshot)(void *self);
    char *path;
    uv_async_t wake;
    uv_timer_t timer;
    uint32_t n_handles; /* open */
    bool closing, handles_closing;
    void (*closed)(void *arg);
    void *closed_arg;

    struct party *party;
    struct store *store; /* NULL while a job has it */
    struct store_job job;
    struct waiting_write *first_write, **last_write;
    bool reopens; /* the party wants the store opened anew */
    bool forgetting;
    agreement_forgotten_fn forgotten;
    void *forgotten_arg;
};

/* ---- agreement.c ---- */
uint64_t agreement_now_ms(void);
void agreement_wake(struct agreement *a);
void agreement_turn(struct agreement *a);
void agreement_carry_out(struct agreement *a);

/* ---- agreement_open.c ---- */
void agreement_end(
    struct agreement *a); /* closing: the handles, when nothing is under way any more */

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
