#include "gpu/queue.h"

#include "base/clock.h"
#include "base/timed_wait.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define REST_NS_MIN 2e6 /* shorter rests are put together: a sleep may last 0.1 ms too long */
#define AHEAD_NS_MAX                                                                               \
    20e6 /* work that a rest which lasted too long, or time without work, is good for */
#define FOREVER_NS UINT64_MAX /* paused */

/* ---- rests (under the lock, on the queue's thread) ------------------------------------------ */

/* How long it must rest before the next job. */
static uint64_t rest_left_ns(struct queue *queue)
{
    const double rest = atomic_load_explicit(&queue->rest, memory_order_relaxed);
    if (rest == 0) {
        queue->owed_ns = 0;
        queue->reckoned_rest = 0;
        return 0;
    }
    const uint64_t now_ns = clock_now_ns();
    const double passed_ns = (double)(now_ns - queue->reckoned_ns), before = queue->reckoned_rest;
    if (before >= 1)
        queue->owed_ns = 0; /* a pause pays for all */
    else if (before > 0)
        queue->owed_ns -= passed_ns * (1 - before) / before;
    if (queue->owed_ns < -AHEAD_NS_MAX)
        queue->owed_ns = -AHEAD_NS_MAX;
    queue->reckoned_ns = now_ns;
    queue->reckoned_rest = rest;
    if (rest >= 1)
        return FOREVER_NS;
    const double left_ns = queue->owed_ns * rest / (1 - rest);
    return left_ns < REST_NS_MIN ? 0 : (uint64_t)left_ns;
}

static void wait_for(struct queue *queue, uint64_t ns)
{
    if (ns == FOREVER_NS)
        pthread_cond_wait(&queue->wake, &queue->lock);
    else
        timed_wait(&queue->wake, &queue->lock, clock_now_ns() + ns);
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* The next job, or NULL when the queue is closing and empty. */
static struct device_job *queue_take(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (!queue->closing) {
        const uint64_t rest_ns = queue->first ? rest_left_ns(queue) : FOREVER_NS;
        if (rest_ns == 0)
            break;
        wait_for(queue, rest_ns);
    }
    struct device_job *job = queue->first;
    if (job) {
        queue->first = job->next;
        if (!queue->first)
            queue->last = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    return job;
}

static void *queue_run(void *argument)
{
    struct queue *queue = argument;
    struct device_job *job;
    while ((job = queue_take(queue))) {
        if (atomic_load_explicit(&queue->rest, memory_order_relaxed) == 0) {
            job->run(job);
            continue;
        }
        const uint64_t begin_ns = clock_now_ns();
        job->run(job); /* may free itself */
        queue->reckoned_ns = clock_now_ns();
        queue->owed_ns += (double)(queue->reckoned_ns - begin_ns);
        if (queue->reckoned_rest == 0) /* duty fell just now: what was owed counts from here */
            queue->reckoned_rest = atomic_load_explicit(&queue->rest, memory_order_relaxed);
    }
    return NULL;
}

void queue_set_duty(struct queue *queue, double duty)
{
    assert(duty >= 0 && duty <= 1);
    const double rest = 1 - duty;
    pthread_mutex_lock(&queue->lock);
    if (atomic_exchange_explicit(&queue->rest, rest, memory_order_relaxed) != rest)
        pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
}

enum error_code queue_open(struct queue *queue, const char *thread_name, struct error *err)
{
    *queue = (struct queue){0};
    pthread_mutex_init(&queue->lock, NULL);
    timed_wait_init(&queue->wake);
    int failure = pthread_create(&queue->thread, NULL, queue_run, queue);
    if (failure) {
        pthread_cond_destroy(&queue->wake);
        pthread_mutex_destroy(&queue->lock);
        return error_set(err, ERROR_IO, "device %s: no thread for its queue: %s", thread_name,
                         strerror(failure));
    }
#ifdef __linux__
    char name[16]; /* the kernel's limit */
    snprintf(name, sizeof name, "dev-%.11s", thread_name);
    pthread_setname_np(queue->thread, name);
#endif
    return ERROR_NONE;
}

void queue_submit(struct queue *queue, struct device_job *job)
{
    assert(job && job->run);
    job->next = NULL;
    pthread_mutex_lock(&queue->lock);
    bool was_empty = !queue->first;
    if (was_empty)
        queue->first = job;
    else
        queue->last->next = job;
    queue->last = job;
    /* The thread waits for jobs only on an empty queue (else it rests), so only the first job must
     * wake it. */
    if (was_empty)
        pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
}

void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closing = true;
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    assert(!queue->first);
    pthread_cond_destroy(&queue->wake);
    pthread_mutex_destroy(&queue->lock);
}
