/* A device's thread and the jobs that wait for it, first in first out.
 *
 * Any thread may submit, the queue's own thread (a job that queues the next) included.
 * queue_close() runs all that is queued, also what those jobs still queue, then joins.
 * Nobody else may submit once queue_close() has been called.
 *
 * Duty: the share of time that jobs may take, 0 to 1. With a duty d below 1 the thread owes
 * a rest of t (1 - d) / d for a job that ran for t; it takes it before the next job,
 * once 2 ms or more have come together, so that many short jobs rest as accurately as one long one,
 * and a rest that lasted too long is taken off the next. Time without work counts as rest. Duty 0
 * is a pause: nothing starts until another duty is set (or the queue closes). A new duty holds at
 * once, also for a rest under way, whose remainder is then reckoned anew. A job that runs is never
 * interrupted. Closing ignores duty. At full duty no clock is read. */
#pragma once

#include "gpu/gpu.h"

#include <pthread.h>
#include <stdatomic.h>

struct queue {
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    struct device_job *first;
    struct device_job *last;
    bool closing;
    _Atomic double
        rest; /* 1 - duty, so that a zeroed queue has full duty; written under the lock */

    /* the queue's thread alone */
    double owed_ns;       /* work that has not been rested for yet; negative: rested ahead */
    uint64_t reckoned_ns; /* when that was reckoned … */
    double reckoned_rest; /* … and the rest in force from then on; 0: nothing is owed */
};

enum error_code queue_open(struct queue *queue, const char *thread_name, struct error *err);
void queue_submit(struct queue *queue, struct device_job *job);
void queue_set_duty(struct queue *queue, double duty); /* any thread, until queue_close() */
void queue_close(struct queue *queue);
