#include "gpu/queue.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The next job, or NULL when the queue is closing and empty. */
static struct device_job *take(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (!queue->first && !queue->closing)
        pthread_cond_wait(&queue->wake, &queue->lock);
    struct device_job *job = queue->first;
    if (job) {
        queue->first = job->next;
        if (!queue->first)
            queue->last = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    return job;
}

static void *run(void *argument)
{
    struct queue *queue = argument;
    struct device_job *job;
    while ((job = take(queue)))
        job->run(job);
    return NULL;
}

enum error_code queue_open(struct queue *queue, const char *thread_name, struct error *err)
{
    *queue = (struct queue){0};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->wake, NULL);
    int failure = pthread_create(&queue->thread, NULL, run, queue);
    if (failure) {
        pthread_cond_destroy(&queue->wake);
        pthread_mutex_destroy(&queue->lock);
        return error_set(err, ERROR_IO, "device %s: no thread for its queue: %s", thread_name, strerror(failure));
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
    /* The thread sleeps only on an empty queue, so only the first job must wake it. */
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
