/* A lane's caches, read and written in its device's process (children.h). */
#include "pipeline/children_impl.h"

#include "base/bytes.h"
#include "pipeline/child_cache.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { PIECES = 4 * CACHE_WINDOW }; /* of rows that may wait in a ring at the same time */

uint64_t lane_cache_bytes_max(const struct driver_options *options)
{
    const uint64_t n_tokens = (uint64_t)options->n_slots * options->context;
    const uint64_t rows =
        (uint64_t)PIECES / 2 * (LIMIT_CACHE_ROWS_BYTES + CACHE_ROWS_BYTES + CHILD_CACHE_HEAD_BYTES);
    const uint64_t offer = 4 * (n_tokens < LIMIT_CACHE_TOKENS ? n_tokens : LIMIT_CACHE_TOKENS) +
                           8 * (uint64_t)options->n_slots + CACHE_HEADER_BYTES + 8 +
                           CHILD_CACHE_HEAD_BYTES;
    return rows > offer ? rows : offer;
}

uint64_t lane_row_bytes(struct lane *lane, uint32_t stage)
{
    pthread_mutex_lock(&lane->child->lock);
    const uint64_t bytes = stage < lane->options.n_stages ? lane->stages[stage].row_bytes : 0;
    pthread_mutex_unlock(&lane->child->lock);
    return bytes;
}

/* ---- asking ------------------------------------------------------------------------------ */

static uint64_t lane_job_enlist(struct lane *lane, struct lane_job *job)
{
    pthread_mutex_lock(&lane->jobs_lock);
    assert(job->done);
    const uint64_t number = job->number = ++lane->last_number;
    job->next = lane->jobs;
    lane->jobs = job;
    pthread_mutex_unlock(&lane->jobs_lock);
    return number;
}

static struct lane_job *lane_job_take(struct lane *lane, uint64_t number)
{
    pthread_mutex_lock(&lane->jobs_lock);
    struct lane_job **at = &lane->jobs, *job;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    job = *at;
    if (job)
        *at = job->next;
    pthread_mutex_unlock(&lane->jobs_lock);
    return job;
}

/* From then on the job may be over at any time. */
static enum error_code lane_job_put(struct lane *lane, struct lane_job *job, struct buffer *record,
                                    struct error *err)
{
    const char *device = lane->child->device;
    if (!lane->is_up)
        return error_set(err, ERROR_IO, "device %s: its process is not there", device);
    const uint64_t number = lane_job_enlist(lane, job);
    bytes_store((unsigned char *)record->data + CHILD_CACHE_NUMBER_AT, 8, number);
    work_begins(lane, 0);
    if (!lane_put(lane, RECORD_CACHE, record->data, record->size)) {
        work_is_undone(lane);
        lane_job_take(lane, number);
        return error_set(err, ERROR_BUSY, "device %s: too many messages for its ring", device);
    }
    return ERROR_NONE;
}

static void lane_job_submit(struct lane *lane, struct lane_job *job, enum child_cache_kind kind,
                            uint32_t stage, const struct buffer *body)
{
    struct error err = {0};
    struct buffer record = {0};
    child_cache_write_head(kind, stage, 0, &record);
    buffer_append(&record, body->data, body->size);
    if (body->failed || record.failed)
        error_set(&err, ERROR_NO_MEMORY, "device %s: not enough memory for a piece of a cache",
                  lane->child->device);
    else if (record.size > lane->ring_bytes / 2 - RING_RECORD_BYTES)
        error_set(&err, ERROR_UNSUPPORTED,
                  "device %s: a piece of %zu bytes of a cache is too large", lane->child->device,
                  record.size);
    pthread_mutex_lock(&lane->write_lock);
    if (!err.code)
        lane_job_put(lane, job, &record, &err);
    pthread_mutex_unlock(&lane->write_lock);
    buffer_deinit(&record);
    if (err.code)
        job->done(job->arg, NULL, 0, &err);
}

void lane_read(struct lane *lane, struct lane_job *job, uint32_t stage, const struct kv_run *run)
{
    struct buffer body = {0};
    child_cache_write_run(run, &body);
    job->n_bytes = (size_t)(run->n_rows * lane_row_bytes(lane, stage));
    lane_job_submit(lane, job, CHILD_CACHE_READ, stage, &body);
    buffer_deinit(&body);
}

void lane_write(struct lane *lane, struct lane_job *job, uint32_t stage,
                const struct buffer *message)
{
    job->n_bytes = 0;
    lane_job_submit(lane, job, CHILD_CACHE_WRITE, stage, message);
}

void lane_settle(struct lane *lane, struct lane_job *job, uint32_t stage,
                 const struct buffer *message)
{
    job->n_bytes = 0;
    lane_job_submit(lane, job, CHILD_CACHE_SETTLE, stage, message);
}

/* ---- answers ----------------------------------------------------------------------------- */

static void lane_job_fail(const struct lane *lane, struct lane_job *job,
                          const struct child_answer *answer)
{
    struct error why = {0};
    const int size = answer->size < ERROR_TEXT_MAX / 2 ? (int)answer->size : ERROR_TEXT_MAX / 2;
    error_set(&why, answer->code, "device %s: %.*s", lane->child->device, size,
              (const char *)answer->bytes);
    job->done(job->arg, NULL, 0, &why);
}

enum error_code lane_take_answer(struct lane *lane, struct error *err)
{
    struct child_answer answer;
    enum error_code code = child_answer_read(lane->message.data, lane->message.size, &answer, err);
    struct lane_job *job = code ? NULL : lane_job_take(lane, answer.number);
    if (code)
        return code;
    if (!job)
        return error_set(err, ERROR_INVALID, "an unexpected answer");
    work_ends(lane, 0);
    if (answer.code) {
        lane_job_fail(lane, job, &answer);
    } else if (answer.size != job->n_bytes) {
        code = error_set(err, ERROR_INVALID, "got %zu bytes of a cache, not %zu", answer.size,
                         job->n_bytes);
        job->done(job->arg, NULL, 0, err);
    } else {
        job->done(job->arg, answer.bytes, answer.size, NULL);
    }
    return code;
}

void lane_fail_jobs(struct lane *lane)
{
    struct error why = {0};
    error_set(&why, ERROR_IO, "device %s: its process has ended", lane->child->device);
    pthread_mutex_lock(&lane->jobs_lock);
    struct lane_job *jobs = lane->jobs;
    lane->jobs = NULL;
    pthread_mutex_unlock(&lane->jobs_lock);
    for (struct lane_job *next; jobs; jobs = next) {
        next = jobs->next;
        jobs->done(jobs->arg, NULL, 0, &why);
    }
}
