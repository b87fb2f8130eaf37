#include "api/request_work.h"

#include "api/access.h"
#include "api/exchange.h"
#include "base/mem.h"

#include <assert.h>
#include <stddef.h>

enum {
    HERE_BYTES = 16 * 1024,          /* of this the loop may take care itself: well below 1 ms */
    LARGE_BYTES = 64 * 1024,         /* beyond it a job waits with the large ones */
    RELEASE_HERE_BYTES = 256 * 1024, /* of memory */
};

/* Why the step ended early, where its own error is only that. */
static void request_work_explain(struct request_work *work)
{
    const struct api_limits *limits = &work->server->limits;
    struct api_error *err = &work->err;
    switch (work->job.limit.stop) {
    case WORK_GOES_ON:
        break;
    case WORK_CANCELLED:
        api_error_set(err, 503, "server_error", "cancelled", "the request was cancelled");
        break;
    case WORK_TOO_LONG:
        API_LIMIT_ERROR(err, 413, limits, prepare_time,
                        "the request takes too much time to prepare");
        break;
    case WORK_TOO_LARGE:
        API_LIMIT_ERROR(err, 413, limits, request_memory, "the request takes too much memory");
        break;
    case WORK_NO_ROOM:
        API_LIMIT_ERROR(err, 503, limits, memory, "other requests take the memory that this needs");
        break;
    }
}

static void request_work_refuse(struct request_work *work, enum prepare_verdict verdict)
{
    const struct api_limits *limits = &work->server->limits;
    struct api_error *err = &work->err;
    switch (verdict) {
    case PREPARE_QUEUED:
        break;
    case PREPARE_FULL:
        API_LIMIT_ERROR(err, 503, limits, waiting, "too many requests wait");
        break;
    case PREPARE_CLIENT_FULL:
        API_LIMIT_ERROR(err, 429, limits, client_waiting, "too many of your requests wait");
        break;
    case PREPARE_NO_MEMORY:
        api_error_set(err, 503, "server_error", "no_memory", "not enough memory for the request");
        break;
    }
}

static void request_work_uncount_body(struct request_work *work)
{
    work->server->body_bytes -= work->body_counted;
    work->body_counted = 0;
}

static void request_work_over(struct request_work *work)
{
    work->running = false;
    if (!work->body.data)
        request_work_uncount_body(work);
    request_work_explain(work);
    work->ready(work);
}

static void request_work_ready(struct inbox_item *item)
{
    request_work_over(item->owner);
}

static void request_work_run(struct preparer_job *job)
{
    struct request_work *work = job->item.owner;
    work->run(work);
}

void request_work_begin(struct request_work *work, struct exchange *exchange,
                        void (*gone)(void *owner), void *owner)
{
    struct api_server *server = exchange_server(exchange);
    server_job_begin(server);
    work->server = server;
    work->exchange = exchange;
    const uint64_t token = exchange_grant(exchange)->id;
    work->client = token ? api_client_of_token(token) : *exchange_client(exchange);
    work->job = (struct preparer_job){
        .item = {.inbox = &server->inbox, .ready = request_work_ready, .owner = work},
        .limit = {.total = &server->memory,
                  .bytes_max = server->limits.request_memory,
                  .cpu_ns_max = server->limits.prepare_time * 1000000},
        .run = request_work_run};
    exchange_take_body(exchange, &work->body);
    work->body_counted = work->body.size;
    work_limit_adopt(&work->job.limit, work->body.data);
    exchange_set_owner(exchange, gone, owner);
}

static void request_work_run_here(struct request_work *work)
{
    work_limit_enter(&work->job.limit);
    work->run(work);
    work_limit_leave();
    request_work_over(work);
}

void request_work_step(struct request_work *work, const struct request_step *step)
{
    assert(!work->running);
    work->run = step->run;
    work->ready = step->ready;
    work->running = true;
    if (step->here_if_small && step->bytes <= HERE_BYTES) {
        request_work_run_here(work);
        return;
    }
    work->job.entry =
        (struct prepare_entry){.exclusive = step->exclusive, .is_large = step->bytes > LARGE_BYTES};
    const enum prepare_verdict verdict =
        preparer_submit(work->server->preparer, &work->client, &work->job);
    if (verdict == PREPARE_QUEUED)
        return;
    request_work_refuse(work, verdict);
    request_work_over(work);
}

void request_work_gone(struct request_work *work)
{
    work->exchange = NULL;
    work->server->metrics.cancelled++;
    if (work->running)
        preparer_cancel(work->server->preparer, &work->job);
}

void request_work_answer(struct request_work *work, struct buffer *body)
{
    struct exchange *exchange = work->exchange;
    work->exchange = NULL;
    work_limit_hand_over(&work->job.limit, body->data);
    exchange_answer_json(exchange, body);
}

void request_work_fail(struct request_work *work, const struct api_error *err)
{
    struct exchange *exchange = work->exchange;
    work->exchange = NULL;
    exchange_fail(exchange, err);
}

/* What it kept is free only now, and counts until then. */
static void request_work_discard(struct preparer_job *job)
{
    struct request_work *work =
        (struct request_work *)(void *)((char *)job - offsetof(struct request_work, job));
    struct memory_total *total = job->limit.total;
    const int64_t bytes = job->limit.bytes;
    work->run(work);
    memory_total_add(total, -bytes);
}

void request_work_end(struct request_work *work, void (*release)(struct request_work *work))
{
    struct api_server *server = work->server;
    assert(!work->exchange && !work->running);
    request_work_uncount_body(work);
    inbox_item_deinit(&work->job.item);
    work->run = release;
    work->job.run = request_work_discard;
    if (work->job.limit.bytes > RELEASE_HERE_BYTES)
        preparer_discard(server->preparer, &work->job);
    else
        request_work_discard(&work->job);
    server_job_end(server);
}
