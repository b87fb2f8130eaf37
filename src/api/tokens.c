/* /tokenize and /detokenize. */
#include "api/exchange.h"
#include "api/internal.h"
#include "api/json_out.h"
#include "api/model_use.h"
#include "api/request_work.h"
#include "api/response_json.h"
#include "base/mem.h"
#include "model/model.h"

/* One request of either; what the other needs is empty. */
struct tokens_job {
    struct request_work work;
    struct model_use use;
    struct text model;
    struct tokenize_request text;
    struct detokenize_request ids;
    void (*write)(struct request_work *work);
    size_t n_body; /* bytes */
    struct buffer answer;
};

static struct tokens_job *tokens_job_of(struct request_work *work)
{
    return (struct tokens_job *)(void *)work;
}

static void api_tokens_release(struct request_work *work)
{
    struct tokens_job *job = tokens_job_of(work);
    tokenize_request_deinit(&job->text);
    detokenize_request_deinit(&job->ids);
    buffer_deinit(&job->work.body);
    buffer_deinit(&job->answer);
    mem_free(job);
}

static void api_tokens_job_free(struct tokens_job *job)
{
    model_use_end(&job->use);
    request_work_end(&job->work, api_tokens_release);
}

static void api_tokens_gone(void *owner)
{
    struct tokens_job *job = owner;
    request_work_gone(&job->work);
    if (!job->work.running)
        api_tokens_job_free(job);
}

static void api_tokens_end(struct tokens_job *job, const struct api_error *err)
{
    if (job->work.exchange && err->status)
        request_work_fail(&job->work, err);
    else if (job->work.exchange)
        request_work_answer(&job->work, &job->answer);
    api_tokens_job_free(job);
}

/* ---- steps on the preparer ---- */

static void api_tokens_parse_text(struct request_work *work)
{
    struct tokens_job *job = tokens_job_of(work);
    const char *body = work->body.data ? work->body.data : "";
    tokenize_request_parse(body, work->body.size, &job->text, &work->err);
    job->model = job->text.model;
    buffer_deinit(&work->body);
}

static void api_tokens_parse_ids(struct request_work *work)
{
    struct tokens_job *job = tokens_job_of(work);
    const char *body = work->body.data ? work->body.data : "";
    detokenize_request_parse(body, work->body.size, &job->ids, &work->err);
    job->model = job->ids.model;
    buffer_deinit(&work->body);
}

static void api_tokens_check_answer(struct tokens_job *job)
{
    if (job->answer.failed)
        api_error_set(&job->work.err, 503, "server_error", "no_memory",
                      "not enough memory for the answer");
}

static void api_tokens_write_ids(struct request_work *work)
{
    struct tokens_job *job = tokens_job_of(work);
    struct token_list tokens = {0};
    struct error err;
    unsigned flags = (job->text.add_special ? TOKENIZE_ADD_SPECIAL : 0u) |
                     (job->text.parse_special ? TOKENIZE_PARSE_SPECIAL : 0u);
    if (tokenizer_encode(job->use.model->tokenizer, job->text.content.data, job->text.content.size,
                         flags, &tokens, &err) != ERROR_NONE)
        api_error_from(&work->err, &err);
    else
        response_tokens(tokens.ids, tokens.count, &job->answer);
    token_list_deinit(&tokens);
    api_tokens_check_answer(job);
}

static void api_tokens_write_text(struct request_work *work)
{
    struct tokens_job *job = tokens_job_of(work);
    struct buffer text = {0};
    if (!detokenize_request_check(&job->ids, model_hyperparameters(job->use.model->model)->n_vocab,
                                  &work->err))
        return;
    tokenizer_decode(job->use.model->tokenizer, job->ids.tokens, job->ids.n_tokens, false, true,
                     &text);
    buffer_text(&job->answer, "{\"content\":");
    json_out_string(&job->answer, text.data, text.size);
    buffer_text(&job->answer, "}");
    job->answer.failed |= text.failed;
    buffer_deinit(&text);
    api_tokens_check_answer(job);
}

/* ---- on the loop ---- */

static void api_tokens_written(struct request_work *work)
{
    api_tokens_end(tokens_job_of(work), &work->err);
}

static void api_tokens_opened(struct model_use *use)
{
    struct tokens_job *job = use->owner;
    if (use->err.status) {
        api_tokens_end(job, &use->err);
        return;
    }
    request_work_step(&job->work, &(struct request_step){.bytes = job->n_body,
                                                         .run = job->write,
                                                         .ready = api_tokens_written});
}

static void api_tokens_parsed(struct request_work *work)
{
    struct tokens_job *job = tokens_job_of(work);
    if (!work->exchange || work->err.status) {
        api_tokens_end(job, &work->err);
        return;
    }
    job->use.owner = job;
    job->use.opened = api_tokens_opened;
    model_use_begin(&job->use, work->exchange, job->model);
}

static void api_tokens_handle(struct exchange *exchange, void (*parse)(struct request_work *work),
                              void (*write)(struct request_work *work))
{
    struct tokens_job *job = mem_new(sizeof *job);
    struct api_error err;
    if (!job) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    request_work_begin(&job->work, exchange, api_tokens_gone, job);
    job->n_body = job->work.body.size;
    job->write = write;
    request_work_step(&job->work, &(struct request_step){.bytes = job->n_body,
                                                         .here_if_small = true,
                                                         .run = parse,
                                                         .ready = api_tokens_parsed});
}

void tokenize_handle(struct exchange *exchange)
{
    api_tokens_handle(exchange, api_tokens_parse_text, api_tokens_write_ids);
}

void detokenize_handle(struct exchange *exchange)
{
    api_tokens_handle(exchange, api_tokens_parse_ids, api_tokens_write_text);
}
