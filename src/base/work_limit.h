/* What one piece of work may take: memory, processor time, and whether anybody still wants it.
 *
 * While a thread is between work_limit_enter() and work_limit_leave(), all that it allocates and
 * frees through mem.h is charged to that limit and to the total which many of them share. What
 * would go beyond fails as if there were no memory: every caller copes with that already, so no
 * allocation can be forgotten. Long loops ask work_limit_goes_on() as well.
 *
 * Afterwards `stop` says why the work was not done. What it keeps stays charged until
 * work_limit_end(), which whoever frees it calls.
 *
 * One thread at a time is inside; any may cancel. Without malloc_usable_size() nothing is charged.
 *
 *     struct work_limit limit = {.total = &total, .bytes_max = …, .cpu_ns_max = …};
 *     work_limit_enter(&limit);
 *     … parse, tokenise …
 *     work_limit_leave();
 *     if (limit.stop == WORK_TOO_LARGE) … */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory_total { /* any thread */
    uint64_t limit;
    atomic_int_least64_t used, peak;
};

enum work_stop {
    WORK_GOES_ON,
    WORK_CANCELLED,
    WORK_TOO_LONG,  /* more than cpu_ns_max in one stay inside */
    WORK_TOO_LARGE, /* more than bytes_max */
    WORK_NO_ROOM,   /* the total is used up by others */
};

struct work_limit {
    struct memory_total *total; /* NULL: no limit of memory */
    uint64_t bytes_max;
    uint64_t cpu_ns_max; /* 0: none */
    int64_t bytes;       /* charged now */
    enum work_stop stop;
    atomic_bool cancelled;
    uint64_t cpu_end_ns;
    uint32_t n_asked;
};

void work_limit_enter(struct work_limit *limit);
void work_limit_leave(void);
/* For a thread that works for another, which waits meanwhile: the other's limit, or NULL. */
struct work_limit *work_limit_current(void);
void work_limit_join(struct work_limit *limit); /* enters without a new measure of time */
/* For a moment between two measured stays, on whatever thread: what is allocated counts, time does
 * not, since the end of the last stay is a time of its own thread's clock. */
void work_limit_enter_untimed(struct work_limit *limit);

/* False: end what you do with an error; `stop` has the reason. True outside of any limit. */
bool work_limit_goes_on(void);
void work_limit_cancel(struct work_limit *limit); /* any thread */

/* Charges what is not allocated through mem.h, or returns it (from > to). False: it is too much,
 * and was not charged. */
bool work_limit_charge(size_t from, size_t to);
/* The same, where it has happened already. */
void work_limit_correct(int64_t bytes);

/* Memory that was allocated elsewhere comes into the work's hands, or leaves them for others. Both
 * say how many bytes that is; the total is the same after leaving: its new owner charges it. */
size_t work_limit_adopt(struct work_limit *limit, void *memory);
size_t work_limit_hand_over(struct work_limit *limit, void *memory);
/* All that the work kept was freed. */
void work_limit_end(struct work_limit *limit);

void memory_total_add(struct memory_total *total, int64_t bytes);
uint64_t memory_total_used(const struct memory_total *total);
size_t work_limit_size_of(void *memory); /* of a block from mem.h; 0 where it cannot be known */
