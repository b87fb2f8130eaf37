#include "api/preparer.h"

#include "base/mem.h"

#include <pthread.h>

struct preparer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct preparer_job *first, *last;
    bool closing;
};

/* NULL: closing, and nothing is left to do. */
static struct preparer_job *next_job(struct preparer *preparer)
{
    pthread_mutex_lock(&preparer->lock);
    while (!preparer->first && !preparer->closing)
        pthread_cond_wait(&preparer->changed, &preparer->lock);
    struct preparer_job *job = preparer->first;
    if (job)
        preparer->first = job->next;
    pthread_mutex_unlock(&preparer->lock);
    return job;
}

static void *preparer_work(void *arg)
{
    struct preparer_job *job;
    while ((job = next_job(arg))) {
        job->run(job);
        inbox_post_done(&job->item);
    }
    return NULL;
}

enum error_code preparer_open(struct preparer **out, struct error *err)
{
    struct preparer *preparer = mem_new(sizeof *preparer);
    if (!preparer)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the preparer");
    pthread_mutex_init(&preparer->lock, NULL);
    pthread_cond_init(&preparer->changed, NULL);
    if (pthread_create(&preparer->thread, NULL, preparer_work, preparer) != 0) {
        mem_free(preparer);
        return error_set(err, ERROR_BUSY, "cannot start a thread");
    }
    *out = preparer;
    return ERROR_NONE;
}

void preparer_close(struct preparer *preparer)
{
    if (!preparer)
        return;
    pthread_mutex_lock(&preparer->lock);
    preparer->closing = true;
    pthread_cond_signal(&preparer->changed);
    pthread_mutex_unlock(&preparer->lock);
    pthread_join(preparer->thread, NULL);
    pthread_cond_destroy(&preparer->changed);
    pthread_mutex_destroy(&preparer->lock);
    mem_free(preparer);
}

void preparer_submit(struct preparer *preparer, struct preparer_job *job)
{
    pthread_mutex_lock(&preparer->lock);
    job->next = NULL;
    if (preparer->first)
        preparer->last->next = job;
    else
        preparer->first = job;
    preparer->last = job;
    pthread_cond_signal(&preparer->changed);
    pthread_mutex_unlock(&preparer->lock);
}
