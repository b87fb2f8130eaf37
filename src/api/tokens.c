/* /tokenize and /detokenize. */
#include "api/exchange.h"
#include "api/internal.h"
#include "api/json_out.h"
#include "api/model_use.h"
#include "api/preparer.h"
#include "api/response_json.h"
#include "base/mem.h"
#include "model/model.h"

/* One request of either; what the other needs is empty. */
struct tokens_job {
    struct api_server *server;
    struct exchange *exchange; /* NULL: the client is gone */
    struct model_use use;
    struct tokenize_request text;
    struct detokenize_request ids;
    struct preparer_job preparation;
    bool preparing;
    struct token_list tokens;
    struct error err;
    enum error_code failed;
};

static void api_tokens_job_free(struct tokens_job *job)
{
    struct api_server *server = job->server;
    inbox_item_deinit(&job->preparation.item);
    model_use_end(&job->use);
    token_list_deinit(&job->tokens);
    tokenize_request_deinit(&job->text);
    detokenize_request_deinit(&job->ids);
    mem_free(job);
    server_job_end(server);
}

static void api_tokens_gone(void *owner)
{
    struct tokens_job *job = owner;
    job->exchange = NULL;
    if (!job->preparing)
        api_tokens_job_free(job);
}

/* ---- text to tokens, on the preparer's thread ---- */

static void api_tokens_run(struct preparer_job *preparation)
{
    struct tokens_job *job = preparation->item.owner;
    unsigned flags = (job->text.add_special ? TOKENIZE_ADD_SPECIAL : 0u) |
                     (job->text.parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    job->failed = tokenizer_encode(job->use.model->tokenizer, job->text.content.data,
                                   job->text.content.size, flags, &job->tokens, &job->err);
}

static void answer_tokens(struct exchange *exchange, const struct tokens_job *job)
{
    struct api_error err = {0};
    struct buffer body = {0};
    if (job->failed)
        api_error_from(&err, &job->err);
    else
        response_tokens(job->tokens.ids, job->tokens.count, &body);
    if (err.status)
        exchange_fail(exchange, &err);
    else
        exchange_answer_json(exchange, &body);
}

static void api_tokens_prepared(struct inbox_item *item)
{
    struct tokens_job *job = item->owner;
    if (job->exchange)
        answer_tokens(job->exchange, job);
    api_tokens_job_free(job);
}

static void api_tokens_tokenize(struct model_use *use)
{
    struct tokens_job *job = use->owner;
    if (use->err.status) {
        exchange_fail(job->exchange, &use->err);
        api_tokens_job_free(job);
        return;
    }
    job->preparing = true;
    preparer_submit(job->server->preparer, &job->preparation);
}

/* ---- tokens to text, on the loop ---- */

static void answer_text(struct exchange *exchange, const struct tokens_job *job)
{
    struct buffer text = {0}, body = {0};
    tokenizer_decode(job->use.model->tokenizer, job->ids.tokens, job->ids.n_tokens, false, true,
                     &text);
    buffer_text(&body, "{\"content\":");
    json_out_string(&body, text.data, text.size);
    buffer_text(&body, "}");
    body.failed |= text.failed;
    buffer_deinit(&text);
    exchange_answer_json(exchange, &body);
}

static void api_tokens_detokenize(struct model_use *use)
{
    struct tokens_job *job = use->owner;
    struct api_error err = use->err;
    if (err.status || !detokenize_request_check(
                          &job->ids, model_hyperparameters(use->model->model)->n_vocab, &err))
        exchange_fail(job->exchange, &err);
    else
        answer_text(job->exchange, job);
    api_tokens_job_free(job);
}

/* ---- both ---- */

/* NULL: there was no memory, and the client has been told. */
static struct tokens_job *api_tokens_job_new(struct exchange *exchange,
                                             void (*opened)(struct model_use *use))
{
    struct api_server *server = exchange_server(exchange);
    struct tokens_job *job = mem_new(sizeof *job);
    if (!job) {
        struct api_error err;
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return NULL;
    }
    server_job_begin(server);
    job->server = server;
    job->exchange = exchange;
    job->use.owner = job;
    job->use.opened = opened;
    job->preparation = (struct preparer_job){
        .item = {.inbox = &server->inbox, .ready = api_tokens_prepared, .owner = job},
        .run = api_tokens_run};
    exchange_set_owner(exchange, api_tokens_gone, job);
    return job;
}

void tokenize_handle(struct exchange *exchange)
{
    struct text body = exchange_body(exchange);
    struct tokenize_request request;
    struct api_error err;
    if (!tokenize_request_parse(body.data, body.size, &request, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    struct tokens_job *job = api_tokens_job_new(exchange, api_tokens_tokenize);
    if (!job) {
        tokenize_request_deinit(&request);
        return;
    }
    job->text = request;
    model_use_begin(&job->use, exchange, request.model);
}

void detokenize_handle(struct exchange *exchange)
{
    struct text body = exchange_body(exchange);
    struct detokenize_request request;
    struct api_error err;
    if (!detokenize_request_parse(body.data, body.size, &request, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    struct tokens_job *job = api_tokens_job_new(exchange, api_tokens_detokenize);
    if (!job) {
        detokenize_request_deinit(&request);
        return;
    }
    job->ids = request;
    model_use_begin(&job->use, exchange, request.model);
}
