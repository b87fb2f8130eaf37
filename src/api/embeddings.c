/* /v1/embeddings: the mean of the hidden states of an input's tokens, scaled to length 1. */
#include "api/exchange.h"
#include "api/internal.h"
#include "api/model_use.h"
#include "api/request_work.h"
#include "api/response_json.h"
#include "base/mem.h"
#include "model/model.h"
#include "request/generator.h"

#include <math.h>
#include <string.h>

struct embedding {
    struct inbox_item item;
    struct embeddings_job *job;
    uint64_t driver_id;
    bool running;
};

struct embeddings_job {
    struct request_work work;
    struct embeddings_request request;
    struct model_use use;
    size_t n_body; /* bytes */
    bool busy;     /* a function up the stack uses it: do not free */
    struct token_list *prompts;
    struct embedding *embeddings;
    uint32_t n_made; /* embeddings that there are */
    uint32_t n_running;
    uint64_t prompt_tokens;
    struct buffer answer;
};

static struct embeddings_job *embeddings_job_of(struct request_work *work)
{
    return (struct embeddings_job *)(void *)work;
}

/* All that may be much; any thread. */
static void embeddings_release(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    for (uint32_t i = 0; job->prompts && i < job->request.n_inputs; i++)
        token_list_deinit(&job->prompts[i]);
    mem_free(job->embeddings);
    mem_free(job->prompts);
    buffer_deinit(&job->work.body);
    buffer_deinit(&job->answer);
    embeddings_request_deinit(&job->request);
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
    const uint32_t n = job->request.n_inputs;
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
    if (embeddings_request_parse(body, work->body.size, &job->request, &work->err))
        embeddings_make(job);
    buffer_deinit(&work->body);
}

static void embeddings_prepare(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    const struct api_model *model = job->use.model;
    if (!embeddings_request_check(&job->request, model_hyperparameters(model->model)->n_vocab,
                                  &work->err))
        return;
    for (uint32_t i = 0; i < job->request.n_inputs; i++) {
        if (!server_encode_prompt(model, &job->request.inputs[i], &job->prompts[i], &work->err))
            return;
        if (job->prompts[i].count == 0) {
            api_error_field(&work->err, "input", "element %u of 'input' has no tokens", i);
            return;
        }
    }
}

static uint32_t n_embd_of(const struct embeddings_job *job)
{
    return model_hyperparameters(job->use.model->model)->n_embd;
}

/* The norm is taken in double: squares of hidden states may leave a float's range. */
static void embeddings_normalise(const struct embedding *embedding, float *out, uint32_t n)
{
    double squares = 0;
    for (uint32_t k = 0; k < n; k++)
        squares += (double)embedding->item.sum[k] * (double)embedding->item.sum[k];
    double scale = squares > 0 ? 1 / sqrt(squares) : 0; /* the mean's divisor falls out */
    for (uint32_t k = 0; k < n; k++)
        out[k] = (float)(embedding->item.sum[k] * scale);
}

/* A step: the driver is done with all. */
static void embeddings_write(struct request_work *work)
{
    struct embeddings_job *job = embeddings_job_of(work);
    uint32_t n = job->request.n_inputs, n_embd = n_embd_of(job);
    float *vectors = mem_new_array((size_t)n * n_embd, sizeof *vectors);
    for (uint32_t i = 0; i < n && vectors; i++)
        embeddings_normalise(&job->embeddings[i], vectors + (size_t)i * n_embd, n_embd);
    if (vectors)
        response_embeddings(job->use.model->id, vectors, n, n_embd, job->request.base64,
                            job->prompt_tokens, &job->answer);
    if (!vectors || job->answer.failed)
        api_error_set(&work->err, 503, "server_error", "no_memory",
                      "not enough memory for the answer");
    mem_free(vectors);
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
    const uint32_t n = job->request.n_inputs;
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
    model_use_begin(&job->use, work->exchange, job->request.model);
}

void embeddings_handle(struct exchange *exchange)
{
    struct embeddings_job *job = mem_new(sizeof *job);
    struct api_error err;
    if (!job) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    request_work_begin(&job->work, exchange, embeddings_gone, job);
    job->n_body = job->work.body.size;
    request_work_step(&job->work, &(struct request_step){.bytes = job->n_body,
                                                         .here_if_small = true,
                                                         .run = embeddings_parse,
                                                         .ready = embeddings_parsed});
}
