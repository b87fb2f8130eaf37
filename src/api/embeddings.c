/* Requests of many texts: reading, submitting each, and the answer when all are there. */
#include "api/embeddings.h"

#include "base/clock.h"
#include "base/mem.h"
#include "request/generator.h"
#include "request/text_vector.h"

static struct embeddings_job *embeddings_job_of(struct request_work *work)
{
    return (struct embeddings_job *)(void *)work;
}

/* All that may be much; any thread. */
static void embeddings_release(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    for (uint32_t i = 0; job->prompts && i < job->n_texts; i++)
        token_list_deinit(&job->prompts[i]);
    mem_free(job->embeddings);
    mem_free(job->prompts);
    buffer_deinit(&job->work.body);
    buffer_deinit(&job->answer);
    embeddings_request_deinit(&job->request);
    rerank_request_deinit(&job->rerank);
    mem_free(job);
}

static void embeddings_job_free(struct embeddings_job *job)
{
    for (uint32_t i = 0; i < job->n_made; i++)
        inbox_item_deinit(&job->embeddings[i].item);
    model_use_end(&job->use);
    request_work_end(&job->work, embeddings_release);
}

static void embeddings_free_when_over(struct embeddings_job *job)
{
    if (!job->work.exchange && !job->work.running && !job->n_running && !job->busy)
        embeddings_job_free(job);
}

static void cancel_all(struct embeddings_job *job)
{
    for (uint32_t i = 0; i < job->n_made; i++) {
        if (job->embeddings[i].running)
            generator_cancel(job->use.model->generator, job->embeddings[i].driver_id);
    }
}

static void embeddings_gone(void *owner)
{
    struct embeddings_job *job = owner;
    request_work_gone(&job->work);
    if (!job->work.running) /* a step has all to itself */
        cancel_all(job);
    embeddings_free_when_over(job);
}

static void embeddings_fail(struct embeddings_job *job, const struct api_error *err)
{
    cancel_all(job);
    request_work_fail(&job->work, err);
}

static bool embeddings_no_memory(struct embeddings_job *job)
{
    return api_error_set(&job->work.err, 503, "server_error", "no_memory",
                         "not enough memory for the request");
}

static void embeddings_ready(struct inbox_item *item);

static void embeddings_make(struct embeddings_job *job)
{
    const uint32_t n = job->n_texts;
    job->prompts = mem_new_array(n, sizeof *job->prompts);
    job->embeddings = mem_new_array(n, sizeof *job->embeddings);
    if (!job->prompts || !job->embeddings) {
        embeddings_no_memory(job);
        return;
    }
    job->n_made = n;
    for (uint32_t i = 0; i < n; i++) {
        struct embedding *embedding = &job->embeddings[i];
        embedding->job = job;
        embedding->item = (struct inbox_item){
            .inbox = &job->work.server->inbox, .ready = embeddings_ready, .owner = embedding};
    }
}

static void embeddings_parse(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    const char *body = work->body.data ? work->body.data : "";
    if (job->kind->parse(job, body, work->body.size))
        embeddings_make(job);
    buffer_deinit(&work->body);
}

static void embeddings_prepare(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    job->kind->prepare(job);
}

const struct hyperparameters *embeddings_hyperparameters(const struct embeddings_job *job)
{
    return model_hyperparameters(job->use.model->model);
}

bool embeddings_too_long(struct embeddings_job *job, const char *field, uint32_t index)
{
    const bool whole = embeddings_hyperparameters(job)->reads_whole;
    return api_error_set(&job->work.err, 400, "invalid_request_error", "context_length_exceeded",
                         "element %u of '%s' has more tokens than this model's context here, which "
                         "is %u tokens%s",
                         index, field, generator_context(job->use.model->generator),
                         whole ? "; it reads a text at once: shorten or split it" : "");
}

static uint32_t n_embd_of(const struct embeddings_job *job)
{
    return embeddings_hyperparameters(job)->n_embd;
}

/* A step: the driver is done with all. */
static void embeddings_write(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    job->kind->write(job);
    if (job->answer.failed && !work->err.status)
        embeddings_no_memory(job);
}

static void embeddings_written(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    if (work->exchange && work->err.status)
        embeddings_fail(job, &work->err);
    else if (work->exchange)
        request_work_answer(work, &job->answer);
    embeddings_free_when_over(job);
}

static void embeddings_answer(struct embeddings_job *job)
{
    enum { NUMBER_BYTES = 16 }; /* and a microsecond or two: a number is tried in several lengths */
    const uint32_t n = job->n_texts;
    for (uint32_t i = 0; i < n; i++)
        job->prompt_tokens += job->prompts[i].count;
    job->work.server->metrics.embedded_tokens += job->prompt_tokens;
    request_work_step(&job->work,
                      &(struct request_step){.bytes = (size_t)n * n_embd_of(job) * NUMBER_BYTES,
                                             .here_if_small = true,
                                             .run = embeddings_write,
                                             .ready = embeddings_written});
}

static void embeddings_ready(struct inbox_item *item)
{
    struct embedding *embedding = item->owner;
    struct embeddings_job *job = embedding->job;
    struct token_batch none = {0};
    job->busy = true;
    if (inbox_collect(item, &none) && embedding->running) {
        struct api_error err = {0};
        embedding->running = false;
        job->n_running--;
        if (item->reason == FINISH_ERROR)
            api_error_from(&err, &item->err);
        else if (item->reason == FINISH_CANCELLED)
            api_error_set(&err, 503, "server_error", "cancelled", "the server is stopping");
        else if (item->sum_rows == 0)
            api_error_set(&err, 400, "invalid_request_error", NULL,
                          "this model does not give embeddings");
        if (job->work.exchange && err.status)
            embeddings_fail(job, &err);
        else if (job->work.exchange && !job->n_running)
            embeddings_answer(job);
    }
    token_batch_deinit(&none);
    job->busy = false;
    embeddings_free_when_over(job);
}

static bool submit_one(struct embedding *embedding, const struct token_list *prompt,
                       struct api_error *err)
{
    struct embeddings_job *job = embedding->job;
    struct error cause;
    embedding->item.sum_size = n_embd_of(job);
    embedding->item.sum = mem_new_array(embedding->item.sum_size, sizeof *embedding->item.sum);
    text_vector_rows(embeddings_hyperparameters(job), (uint32_t)prompt->count,
                     &embedding->item.first_row, &embedding->item.last_row);
    if (!embedding->item.sum)
        return api_error_set(err, 503, "server_error", "no_memory",
                             "not enough memory for the request");
    struct request request = {.prompt = prompt->ids,
                              .n_prompt = (uint32_t)prompt->count,
                              .sampler = sampler_off(),
                              .embeddings = true,
                              .n_embd = embedding->item.sum_size,
                              .handlers = inbox_embedding_handlers,
                              .arg = &embedding->item};
    if (generator_submit(job->use.model->generator, &request, &embedding->driver_id, &cause) !=
        ERROR_NONE)
        return api_error_from(err, &cause);
    access_count(job->work.server->access, job->use.grant.id, prompt->count, server_wall_ms());
    embedding->running = true;
    job->n_running++;
    return true;
}

static void embeddings_prepared(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    job->busy = true;
    for (uint32_t i = 0; i < job->n_made && work->exchange && !work->err.status; i++)
        submit_one(&job->embeddings[i], &job->prompts[i], &work->err);
    if (work->exchange && work->err.status)
        embeddings_fail(job, &work->err);
    job->busy = false;
    embeddings_free_when_over(job);
}

static void embeddings_opened(struct model_use *use)
{
    struct embeddings_job *job = use->owner;
    if (use->err.status) {
        embeddings_fail(job, &use->err);
        embeddings_free_when_over(job);
        return;
    }
    request_work_step(&job->work, &(struct request_step){.bytes = job->n_body,
                                                         .run = embeddings_prepare,
                                                         .ready = embeddings_prepared});
}

static void embeddings_parsed(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    if (work->exchange && work->err.status)
        embeddings_fail(job, &work->err);
    if (!work->exchange) {
        embeddings_free_when_over(job);
        return;
    }
    job->use.owner = job;
    job->use.opened = embeddings_opened;
    model_use_begin(&job->use, work->exchange, job->model);
}

void embeddings_begin(struct exchange *exchange, const struct embeddings_kind *kind)
{
    struct embeddings_job *job = mem_new(sizeof *job);
    struct api_error err;
    if (!job) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    job->kind = kind;
    job->begun_ns = clock_now_ns();
    request_work_begin(&job->work, exchange, embeddings_gone, job);
    job->n_body = job->work.body.size;
    request_work_step(&job->work, &(struct request_step){.bytes = job->n_body,
                                                         .here_if_small = true,
                                                         .run = embeddings_parse,
                                                         .ready = embeddings_parsed});
}
