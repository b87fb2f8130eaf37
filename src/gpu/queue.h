/* A device's thread and the jobs that wait for it, first in first out.
 *
 * Any thread may submit, the queue's own thread (a job that queues the next) included.
 * queue_close() runs all that is queued, also what those jobs still queue, then joins.
 * Nobody else may submit once queue_close() has been called. */
#pragma once

#include "gpu/gpu.h"

#include <pthread.h>

struct queue {
    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    struct device_job *first;
    struct device_job *last;
    bool closing;
};

enum error_code queue_open(struct queue *queue, const char *thread_name, struct error *err);
void queue_submit(struct queue *queue, struct device_job *job);
void queue_close(struct queue *queue);
