/* /v1/embeddings: the mean of the hidden states of an input's tokens, scaled to length 1. */
#include "api/exchange.h"
#include "api/internal.h"
#include "api/model_use.h"
#include "api/preparer.h"
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
    struct api_server *server;
    struct exchange *exchange; /* NULL: answered, or the client is gone */
    struct embeddings_request request;
    struct model_use use;
    struct preparer_job preparation;
    bool preparing, busy;
    struct api_error err;
    struct token_list *prompts;
    struct embedding *embeddings;
    uint32_t n_running;
};

static void embeddings_job_free(struct embeddings_job *job)
{
    struct api_server *server = job->server;
    for (uint32_t i = 0; i < job->request.n_inputs; i++) {
        if (job->embeddings)
            inbox_item_deinit(&job->embeddings[i].item);
        if (job->prompts)
            token_list_deinit(&job->prompts[i]);
    }
    mem_free(job->embeddings);
    mem_free(job->prompts);
    inbox_item_deinit(&job->preparation.item);
    model_use_end(&job->use);
    embeddings_request_deinit(&job->request);
    mem_free(job);
    server_job_end(server);
}

static void embeddings_free_when_over(struct embeddings_job *job)
{
    if (!job->exchange && !job->preparing && !job->n_running && !job->busy)
        embeddings_job_free(job);
}

static void cancel_all(struct embeddings_job *job)
{
    for (uint32_t i = 0; i < job->request.n_inputs; i++) {
        if (job->embeddings[i].running)
            generator_cancel(job->use.model->generator, job->embeddings[i].driver_id);
    }
}

static void embeddings_gone(void *owner)
{
    struct embeddings_job *job = owner;
    job->exchange = NULL;
    job->server->metrics.cancelled++;
    cancel_all(job);
    embeddings_free_when_over(job);
}

static void embeddings_fail(struct embeddings_job *job, const struct api_error *err)
{
    struct exchange *exchange = job->exchange;
    job->exchange = NULL;
    cancel_all(job);
    exchange_fail(exchange, err);
}

static void embeddings_prepare(struct preparer_job *preparation)
{
    struct embeddings_job *job = preparation->item.owner;
    for (uint32_t i = 0; i < job->request.n_inputs; i++) {
        struct error cause;
        if (server_encode_prompt(job->use.model, &job->request.inputs[i], &job->prompts[i],
                                 &cause) != ERROR_NONE) {
            api_error_from(&job->err, &cause);
            return;
        }
        if (job->prompts[i].count == 0) {
            api_error_field(&job->err, "input", "element %u of 'input' has no tokens", i);
            return;
        }
        if (!server_check_length(job->use.model, job->prompts[i].count, &job->err))
            return;
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

static void embeddings_answer(struct embeddings_job *job)
{
    uint32_t n = job->request.n_inputs, n_embd = n_embd_of(job);
    struct api_error err;
    struct buffer body = {0};
    uint64_t prompt_tokens = 0;
    float *vectors = mem_new_array((size_t)n * n_embd, sizeof *vectors);
    for (uint32_t i = 0; i < n && vectors; i++) {
        embeddings_normalise(&job->embeddings[i], vectors + (size_t)i * n_embd, n_embd);
        prompt_tokens += job->prompts[i].count;
    }
    job->server->metrics.prompt_tokens += prompt_tokens;
    if (vectors)
        response_embeddings(job->use.model->id, vectors, n, n_embd, job->request.base64,
                            prompt_tokens, &body);
    if (!vectors || body.failed) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the answer");
        embeddings_fail(job, &err);
    } else {
        struct exchange *exchange = job->exchange;
        job->exchange = NULL;
        exchange_answer_json(exchange, &body);
    }
    mem_free(vectors);
    buffer_deinit(&body);
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
        if (job->exchange && err.status)
            embeddings_fail(job, &err);
        else if (job->exchange && !job->n_running)
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
    access_count(job->server->access, job->use.grant.id, prompt->count, server_wall_ms());
    embedding->running = true;
    job->n_running++;
    return true;
}

static void embeddings_prepared(struct inbox_item *item)
{
    struct embeddings_job *job = item->owner;
    struct api_error err = job->err;
    job->preparing = false;
    job->busy = true;
    for (uint32_t i = 0; i < job->request.n_inputs && job->exchange && !err.status; i++)
        submit_one(&job->embeddings[i], &job->prompts[i], &err);
    if (job->exchange && err.status)
        embeddings_fail(job, &err);
    job->busy = false;
    embeddings_free_when_over(job);
}

static void embeddings_opened(struct model_use *use)
{
    struct embeddings_job *job = use->owner;
    struct api_error err = use->err;
    if (err.status || !embeddings_request_check(
                          &job->request, model_hyperparameters(use->model->model)->n_vocab, &err)) {
        embeddings_fail(job, &err);
        embeddings_free_when_over(job);
        return;
    }
    job->preparing = true;
    preparer_submit(job->server->preparer, &job->preparation);
}

static struct embeddings_job *embeddings_job_new(struct api_server *server,
                                                 struct embeddings_request *request)
{
    struct embeddings_job *job = mem_new(sizeof *job);
    if (!job) {
        embeddings_request_deinit(request);
        return NULL;
    }
    server_job_begin(server);
    job->server = server;
    job->request = *request;
    job->prompts = mem_new_array(request->n_inputs, sizeof *job->prompts);
    job->embeddings = mem_new_array(request->n_inputs, sizeof *job->embeddings);
    if (!job->prompts || !job->embeddings) {
        embeddings_job_free(job);
        return NULL;
    }
    for (uint32_t i = 0; i < request->n_inputs; i++) {
        struct embedding *embedding = &job->embeddings[i];
        embedding->job = job;
        embedding->item = (struct inbox_item){
            .inbox = &server->inbox, .ready = embeddings_ready, .owner = embedding};
    }
    job->preparation = (struct preparer_job){
        .item = {.inbox = &server->inbox, .ready = embeddings_prepared, .owner = job},
        .run = embeddings_prepare};
    return job;
}

void embeddings_handle(struct exchange *exchange)
{
    struct api_server *server = exchange_server(exchange);
    struct text body = exchange_body(exchange);
    struct embeddings_request request;
    struct api_error err;
    if (!embeddings_request_parse(body.data, body.size, &request, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    struct embeddings_job *job = embeddings_job_new(server, &request);
    if (!job) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    job->exchange = exchange;
    exchange_set_owner(exchange, embeddings_gone, job);
    job->use.owner = job;
    job->use.opened = embeddings_opened;
    model_use_begin(&job->use, exchange, job->request.model);
}
