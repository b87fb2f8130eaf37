#include "api/preparer.h"

#include "api/limits.h"
#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>

enum { WORKERS = 2, FREE_HERE_BYTES = 128 * 1024 };

struct preparer_worker {
    struct preparer *preparer;
    pthread_t thread;
    pthread_cond_t changed;
    bool small_only, waits, started;
};

/* Memory to be freed: its first bytes are the list's. */
struct preparer_rubbish {
    struct preparer_rubbish *next;
};

struct preparer {
    pthread_mutex_t lock;
    struct preparer_worker workers[WORKERS];
    struct prepare_queue queue;
    struct preparer_job *discarded;
    struct preparer_rubbish *rubbish;
    bool closing;
};

static struct preparer_job *job_of_entry(struct prepare_entry *entry)
{
    return (struct preparer_job *)(void *)((char *)entry - offsetof(struct preparer_job, entry));
}

static void preparer_clear_rubbish(struct preparer_rubbish *rubbish)
{
    while (rubbish) {
        struct preparer_rubbish *next = rubbish->next;
        mem_free(rubbish);
        rubbish = next;
    }
}

/* With the lock held, which is let go meanwhile; true: there was something. What is discarded gives
 * memory back, so it comes before anything that takes some. */
static bool preparer_run_discarded(struct preparer *preparer)
{
    struct preparer_job *job = preparer->discarded;
    struct preparer_rubbish *rubbish = preparer->rubbish;
    if (!job && !rubbish)
        return false;
    if (job)
        preparer->discarded = job->next;
    preparer->rubbish = NULL;
    pthread_mutex_unlock(&preparer->lock);
    preparer_clear_rubbish(rubbish);
    if (job)
        job->run(job);
    pthread_mutex_lock(&preparer->lock);
    return true;
}

/* With the lock held. */
static void preparer_wake_one(struct preparer *preparer, bool is_small)
{
    for (int i = WORKERS - 1; i >= 0; i--) {
        struct preparer_worker *worker = &preparer->workers[i];
        if (!worker->waits || (worker->small_only && !is_small))
            continue;
        worker->waits = false;
        pthread_cond_signal(&worker->changed);
        return;
    }
}

/* The same. */
static bool preparer_run_next(struct preparer_worker *worker)
{
    struct preparer *preparer = worker->preparer;
    struct prepare_entry *entry = prepare_queue_next(&preparer->queue, worker->small_only);
    if (!entry)
        return false;
    struct preparer_job *job = job_of_entry(entry);
    pthread_mutex_unlock(&preparer->lock);
    const uint64_t begin_ns = clock_now_ns();
    work_limit_enter(&job->limit);
    if (work_limit_goes_on())
        job->run(job);
    work_limit_leave();
    const uint64_t ns = clock_now_ns() - begin_ns;
    pthread_mutex_lock(&preparer->lock);
    prepare_queue_done(&preparer->queue, entry, ns);
    if (entry->exclusive && preparer->queue.n_waiting) /* some may have waited for the same */
        preparer_wake_one(preparer, true);
    pthread_mutex_unlock(&preparer->lock);
    inbox_post_done(&job->item); /* the loop may free the job at once */
    pthread_mutex_lock(&preparer->lock);
    return true;
}

static void *preparer_work(void *arg)
{
    struct preparer_worker *worker = arg;
    struct preparer *preparer = worker->preparer;
    pthread_mutex_lock(&preparer->lock);
    for (;;) {
        if (preparer_run_discarded(preparer) || preparer_run_next(worker))
            continue;
        if (preparer->closing)
            break;
        worker->waits = true;
        while (worker->waits)
            pthread_cond_wait(&worker->changed, &preparer->lock);
    }
    pthread_mutex_unlock(&preparer->lock);
    return NULL;
}

static bool preparer_start(struct preparer *preparer)
{
    for (int i = 0; i < WORKERS; i++) {
        struct preparer_worker *worker = &preparer->workers[i];
        worker->preparer = preparer;
        worker->small_only = i > 0;
        pthread_cond_init(&worker->changed, NULL);
        worker->started = pthread_create(&worker->thread, NULL, preparer_work, worker) == 0;
        if (!worker->started)
            return false;
    }
    return true;
}

enum error_code preparer_open(const struct api_limits *limits, struct preparer **out,
                              struct error *err)
{
    struct preparer *preparer = mem_new(sizeof *preparer);
    if (!preparer)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the preparer");
    preparer->queue.waiting_max = limits->waiting;
    preparer->queue.client_max = limits->client_waiting;
    pthread_mutex_init(&preparer->lock, NULL);
    if (!preparer_start(preparer)) {
        preparer_close(preparer);
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
    for (int i = 0; i < WORKERS; i++)
        preparer_wake_one(preparer, true);
    pthread_mutex_unlock(&preparer->lock);
    for (int i = 0; i < WORKERS && preparer->workers[i].started; i++) {
        pthread_join(preparer->workers[i].thread, NULL);
        pthread_cond_destroy(&preparer->workers[i].changed);
    }
    prepare_queue_deinit(&preparer->queue);
    pthread_mutex_destroy(&preparer->lock);
    mem_free(preparer);
}

enum prepare_verdict preparer_submit(struct preparer *preparer, const struct api_client *client,
                                     struct preparer_job *job)
{
    pthread_mutex_lock(&preparer->lock);
    enum prepare_verdict verdict = prepare_queue_add(&preparer->queue, client, &job->entry);
    if (verdict == PREPARE_QUEUED)
        preparer_wake_one(preparer, !job->entry.is_large);
    pthread_mutex_unlock(&preparer->lock);
    return verdict;
}

void preparer_cancel(struct preparer *preparer, struct preparer_job *job)
{
    work_limit_cancel(&job->limit);
    pthread_mutex_lock(&preparer->lock);
    const bool waits = job->entry.share && !job->entry.is_running;
    if (waits)
        prepare_queue_remove(&preparer->queue, &job->entry);
    pthread_mutex_unlock(&preparer->lock);
    if (waits)
        inbox_post_done(&job->item);
}

void preparer_discard(struct preparer *preparer, struct preparer_job *job)
{
    pthread_mutex_lock(&preparer->lock);
    assert(!job->entry.share);
    job->next = preparer->discarded;
    preparer->discarded = job;
    preparer_wake_one(preparer, true);
    pthread_mutex_unlock(&preparer->lock);
}

void preparer_free(struct preparer *preparer, void *memory)
{
    if (work_limit_size_of(memory) < FREE_HERE_BYTES) {
        mem_free(memory);
        return;
    }
    struct preparer_rubbish *rubbish = memory;
    pthread_mutex_lock(&preparer->lock);
    rubbish->next = preparer->rubbish;
    preparer->rubbish = rubbish;
    preparer_wake_one(preparer, true);
    pthread_mutex_unlock(&preparer->lock);
}

uint64_t preparer_waiting(struct preparer *preparer)
{
    pthread_mutex_lock(&preparer->lock);
    const uint64_t n = preparer->queue.n_waiting;
    pthread_mutex_unlock(&preparer->lock);
    return n;
}
