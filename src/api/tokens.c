/* /tokenize and /detokenize. */
#include "api/exchange.h"
#include "api/internal.h"
#include "api/json_out.h"
#include "api/preparer.h"
#include "api/response_json.h"
#include "base/mem.h"

struct tokenize_job {
    struct api_server *server;
    struct exchange *exchange; /* NULL: the client is gone */
    struct tokenize_request request;
    struct preparer_job preparation;
    struct token_list tokens;
    struct error err;
    enum error_code failed;
};

static void gone(void *owner)
{
    ((struct tokenize_job *)owner)->exchange = NULL;
}

static void run(struct preparer_job *preparation)
{
    struct tokenize_job *job = preparation->item.owner;
    unsigned flags = (job->request.add_special ? TOKENIZE_ADD_SPECIAL : 0u) |
                     (job->request.parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    job->failed = tokenizer_encode(job->server->model.tokenizer, job->request.content.data, job->request.content.size,
                                   flags, &job->tokens, &job->err);
}

static void answer(struct exchange *exchange, const struct tokenize_job *job)
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

static void ready(struct inbox_item *item)
{
    struct tokenize_job *job = item->owner;
    struct api_server *server = job->server;
    if (job->exchange)
        answer(job->exchange, job);
    inbox_item_deinit(&job->preparation.item);
    token_list_deinit(&job->tokens);
    tokenize_request_deinit(&job->request);
    mem_free(job);
    server_job_end(server);
}

void tokenize_handle(struct exchange *exchange)
{
    struct api_server *server = exchange_server(exchange);
    struct text body = exchange_body(exchange);
    struct tokenize_request request;
    struct api_error err;
    if (!tokenize_request_parse(body.data, body.size, &request, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    struct tokenize_job *job = mem_new(sizeof *job);
    if (!job) {
        tokenize_request_deinit(&request);
        api_error_set(&err, 503, "server_error", "no_memory", "no memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    server_job_begin(server);
    job->server = server;
    job->exchange = exchange;
    job->request = request;
    job->preparation =
        (struct preparer_job){.item = {.inbox = &server->inbox, .ready = ready, .owner = job}, .run = run};
    exchange_set_owner(exchange, gone, job);
    preparer_submit(server->preparer, &job->preparation);
}

void detokenize_handle(struct exchange *exchange)
{
    struct api_server *server = exchange_server(exchange);
    struct text body = exchange_body(exchange);
    struct detokenize_request request;
    struct api_error err;
    if (!detokenize_request_parse(body.data, body.size, server->n_vocab, &request, &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    struct buffer text = {0}, answer_body = {0};
    tokenizer_decode(server->model.tokenizer, request.tokens, request.n_tokens, false, true, &text);
    buffer_text(&answer_body, "{\"content\":");
    json_out_string(&answer_body, text.data, text.size);
    buffer_text(&answer_body, "}");
    answer_body.failed |= text.failed;
    buffer_deinit(&text);
    detokenize_request_deinit(&request);
    exchange_answer_json(exchange, &answer_body);
}
