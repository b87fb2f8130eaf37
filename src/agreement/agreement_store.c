/* The disk: one job at a time on the thread pool. */
#include "agreement/agreement_impl.h"

#include "base/durable_file.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { WRITES_OF_A_JOB = 32 };

/* ---- files ---- */

static enum error_code path_beside(const char *path, const char *ending, char out[PATH_MAX],
                                   struct error *err)
{
    if (snprintf(out, PATH_MAX, "%s%s", path, ending) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "%s: the path is too long", path);
    return ERROR_NONE;
}

static enum error_code remove_store_file(const char *path, struct error *err)
{
    if (unlink(path) && errno != ENOENT)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    return ERROR_NONE;
}

static enum error_code move_store_file(const char *from, const char *to, struct error *err)
{
    if (rename(from, to) && errno != ENOENT)
        return error_set(err, ERROR_IO, "%s: %s", from, strerror(errno));
    return ERROR_NONE;
}

/* A write-ahead log without its file is worth nothing, but SQLite would take it for that of a new
 * file there. */
static enum error_code create_store_file(const char *path, struct error *err)
{
    char wal[PATH_MAX];
    uint64_t member = 0;
    enum error_code code = path_beside(path, "-wal", wal, err);
    if (!code)
        code = remove_store_file(wal, err);
    durable_sync_folder_of(path); /* before there is a file that it could be taken for the log of */
    while (!code && !member) {
        if (getrandom(&member, sizeof member, 0) != (ssize_t)sizeof member)
            code =
                error_set(err, ERROR_IO, "the system gives no random numbers: %s", strerror(errno));
    }
    return code ? code : store_create(path, member, err);
}

enum error_code agreement_open_store(const char *path, struct store **store,
                                     struct log_saved *saved, struct error *err)
{
    enum error_code code = store_open(path, store, err);
    if (code == ERROR_NOT_FOUND) {
        code = create_store_file(path, err);
        if (!code)
            code = store_open(path, store, err);
    }
    if (!code)
        code = store_load(*store, saved, err);
    if (code) {
        store_close(*store);
        *store = NULL;
    }
    return code;
}

/* The file first: its write-ahead log without it is removed before another is made
 * (create_store_file()). */
static enum error_code move_store_away(const char *path, struct error *err)
{
    char wal[PATH_MAX], left[PATH_MAX], left_wal[PATH_MAX];
    enum error_code code = path_beside(path, "-wal", wal, err);
    if (!code)
        code = path_beside(path, ".left", left, err);
    if (!code)
        code = path_beside(path, ".left-wal", left_wal, err);
    if (!code)
        code = remove_store_file(left_wal, err);
    if (!code)
        code = move_store_file(path, left, err);
    durable_sync_folder_of(path); /* never a file whose write-ahead log has gone already */
    if (!code)
        code = move_store_file(wal, left_wal, err);
    if (!code)
        durable_sync_folder_of(path);
    return code;
}

enum error_code agreement_replace_store(const char *path, struct store **store,
                                        struct log_saved *saved, struct error *err)
{
    const enum error_code code = move_store_away(path, err);
    *store = NULL;
    return code ? code : agreement_open_store(path, store, saved, err);
}

/* ---- writes ---- */

void agreement_queue_write(struct agreement *a, struct log_write *write)
{
    struct waiting_write *queued = mem_new(sizeof *queued);
    if (!queued) {
        struct error why;
        error_set(&why, ERROR_NO_MEMORY, "not enough memory for a write");
        log_write_clear(write);
        party_fail(a->party, agreement_now_ms(), &why, PARTY_RETRIES);
        return;
    }
    queued->write = *write;
    *write = (struct log_write){0};
    *a->last_write = queued;
    a->last_write = &queued->next;
}

static void free_waiting_writes(struct waiting_write *writes)
{
    while (writes) {
        struct waiting_write *next = writes->next;
        log_write_clear(&writes->write);
        mem_free(writes);
        writes = next;
    }
}

/* The first ones, in their order: what has come together while the disk was busy is acknowledged
 * together. */
static void take_waiting_writes(struct agreement *a, struct store_job *job)
{
    assert(a->first_write && !job->writes);
    struct waiting_write **end = &a->first_write;
    for (int i = 0; i < WRITES_OF_A_JOB && *end; i++) {
        job->sequence = (*end)->write.sequence;
        if ((*end)->write.has_snapshot)
            job->before_snapshot = a->before_snapshot;
        end = &(*end)->next;
    }
    job->writes = a->first_write;
    job->self = a->events.self;
    a->first_write = *end;
    *end = NULL;
    if (!a->first_write)
        a->last_write = &a->first_write;
}

void agreement_drop_writes(struct agreement *a)
{
    free_waiting_writes(a->first_write);
    a->first_write = NULL;
    a->last_write = &a->first_write;
}

/* ---- jobs: on a thread of the pool ---- */

static void store_job_write(struct store_job *job)
{
    assert(job->store && job->writes);
    if (job->before_snapshot)
        job->before_snapshot(job->self);
    for (const struct waiting_write *queued = job->writes; queued && !job->code;
         queued = queued->next)
        job->code = store_write(job->store, &queued->write, &job->err);
}

static void store_job_reopen(struct store_job *job)
{
    assert(!job->writes);
    store_close(job->store);
    job->store = NULL;
    job->code = store_open(job->path, &job->store, &job->err);
    if (!job->code)
        job->code = store_load(job->store, &job->saved, &job->err);
}

static void store_job_forget(struct store_job *job)
{
    store_close(job->store);
    job->store = NULL;
    job->code = agreement_replace_store(job->path, &job->store, &job->saved, &job->err);
}

static void run_store_job(uv_work_t *work)
{
    struct store_job *job =
        &((struct agreement *)work->data)->job; /* all that it may touch of it */
    switch (job->type) {
    case JOB_WRITE:
        store_job_write(job);
        break;
    case JOB_REOPEN:
        store_job_reopen(job);
        break;
    case JOB_FORGET:
        store_job_forget(job);
        break;
    case JOB_CLOSE:
        store_close(job->store);
        job->store = NULL;
        break;
    case JOB_NONE:
        break;
    }
}

/* ---- jobs: on the loop ---- */

static void write_job_done(struct agreement *a, const struct store_job *job)
{
    if (!party_takes_part(a->party))
        return;
    if (job->code)
        party_fail(a->party, agreement_now_ms(), &job->err, PARTY_RETRIES);
    else
        party_written(a->party, agreement_now_ms(), job->sequence);
}

static enum error_code begin_party(struct agreement *a, struct store_job *job)
{
    return party_begin(a->party, agreement_now_ms(), store_member(a->store), &job->saved,
                       &job->err);
}

static void reopen_job_done(struct agreement *a, struct store_job *job)
{
    if (a->closing || a->forgetting)
        return;
    if (!job->code)
        job->code = begin_party(a, job);
    if (job->code)
        party_fail(a->party, agreement_now_ms(), &job->err, PARTY_RETRIES);
}

static void forget_job_done(struct agreement *a, struct store_job *job)
{
    assert(a->forgetting);
    const agreement_forgotten_fn done = a->forgotten;
    a->forgotten = NULL;
    a->forgetting = false;
    if (a->closing && !job->code)
        job->code = error_set(&job->err, ERROR_CANCELLED, "it was closed");
    if (!job->code)
        job->code = begin_party(a, job);
    if (job->code && !a->closing)
        party_fail(a->party, agreement_now_ms(), &job->err, PARTY_GIVES_UP);
    if (done)
        done(a->forgotten_arg, job->code, job->code ? &job->err : NULL);
}

static void on_store_job_done(uv_work_t *work, int status)
{
    struct agreement *a = work->data;
    struct store_job job = a->job;
    (void)status; /* nobody cancels it */
    a->store = job.store;
    a->job = (struct store_job){0};
    switch (job.type) {
    case JOB_WRITE:
        write_job_done(a, &job);
        break;
    case JOB_REOPEN:
        reopen_job_done(a, &job);
        break;
    case JOB_FORGET:
        forget_job_done(a, &job);
        break;
    case JOB_CLOSE:
    case JOB_NONE:
        break;
    }
    free_waiting_writes(job.writes);
    log_saved_clear(&job.saved);
    agreement_turn(a);
}

static void begin_store_job(struct agreement *a, enum store_job_type type)
{
    assert(a->job.type == JOB_NONE && type != JOB_NONE &&
           (a->store || type == JOB_REOPEN || type == JOB_FORGET));
    struct store_job *job = &a->job;
    *job = (struct store_job){.type = type, .path = a->path, .store = a->store};
    a->store = NULL;
    if (type == JOB_WRITE)
        take_waiting_writes(a, job);
    job->work.data = a;
    const int problem = uv_queue_work(a->loop, &job->work, run_store_job, on_store_job_done);
    assert(problem == 0); /* it only fails without a function */
    (void)problem;
}

void agreement_next_job(struct agreement *a)
{
    if (a->job.type != JOB_NONE)
        return;
    if (a->closing) {
        if (a->store)
            begin_store_job(a, JOB_CLOSE);
    } else if (a->forgetting) {
        begin_store_job(a, JOB_FORGET);
    } else if (a->reopens) {
        a->reopens = false;
        begin_store_job(a, JOB_REOPEN);
    } else if (a->first_write) {
        begin_store_job(a, JOB_WRITE);
    }
}
