#include "api/completion.h"

#include "api/dialect.h"
#include "api/exchange.h"
#include "base/clock.h"
#include "base/mem.h"
#include "model/model.h"
#include "request/generator.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* All that may be much; any thread. */
static void completion_release(struct request_work *work)
{
    struct completion *completion = completion_of(work);
    for (uint32_t i = 0; i < completion->n_choices; i++) {
        choice_deinit(&completion->choices[i].text);
        buffer_deinit(&completion->choices[i].whole);
        chat_reply_deinit(&completion->choices[i].reply);
    }
    for (uint32_t i = 0; completion->prompts && i < completion->request.n_prompts; i++)
        token_list_deinit(&completion->prompts[i]);
    for (uint32_t i = 0; completion->echoes && i < completion->request.n_prompts; i++)
        buffer_deinit(&completion->echoes[i]);
    for (uint32_t i = 0; completion->shown && i < completion->shown->n; i++)
        prompt_picture_release(completion->shown->pictures[i]);
    mem_free(completion->shown);
    constraint_release(completion->constraint);
    tool_table_deinit(&completion->tools);
    mem_free(completion->choices);
    mem_free(completion->prompts);
    mem_free(completion->echoes);
    buffer_deinit(&completion->work.body);
    buffer_deinit(&completion->answer);
    buffer_deinit(&completion->arguments);
    buffer_deinit(&completion->history);
    buffer_deinit(&completion->rendered);
    buffer_deinit(&completion->opening);
    token_batch_deinit(&completion->batch);
    buffer_deinit(&completion->out);
    buffer_deinit(&completion->json);
    buffer_deinit(&completion->event_id);
    generation_request_deinit(&completion->request);
    mem_free(completion);
}

void completion_end_record(struct completion *completion, enum record_outcome outcome)
{
    struct request_record *record = completion->record;
    completion->record = NULL;
    /* While a step runs the choices are its own; and until its driver is done, a choice's item is
     * the driver's. */
    for (uint32_t i = 0; record && !completion->work.running && i < completion->n_choices; i++) {
        const struct completion_choice *choice = &completion->choices[i];
        if (!choice->running && choice->item.usage.prompt_tokens)
            api_record_usage(record, &choice->item.usage);
    }
    server_end_record(completion->work.server, record, outcome);
}

static void completion_begin_record(struct completion *completion, const struct exchange *exchange)
{
    struct api_server *server = completion->work.server;
    const uint64_t ago_ms = (clock_now_ns() - completion->started_ns) / 1000000;
    completion->record =
        api_record_begin(&server->records, completion->id, exchange_grant(exchange)->name,
                         completion->started_ns, server_wall_ms() - ago_ms);
    if (completion->record && server->traces) {
        completion->record->trace = *exchange_trace(exchange);
        trace_context_make(&completion->record->trace);
    }
    server_watch_records(server);
}

static void completion_free(struct completion *completion)
{
    completion_end_record(completion, RECORD_CANCELLED);
    for (uint32_t i = 0; i < completion->n_choices; i++)
        inbox_item_deinit(&completion->choices[i].item);
    model_use_end(&completion->use);
    request_work_end(&completion->work, completion_release);
}

void completion_free_when_over(struct completion *completion)
{
    if (!completion->work.exchange && !completion->work.running && !completion->n_running &&
        !completion->busy)
        completion_free(completion);
}

void completion_cancel_choice(struct completion_choice *choice)
{
    if (choice->running)
        generator_cancel(choice->completion->use.model->generator, choice->driver_id);
}

/* The client has left, reads too slowly, or the server stops. */
static void completion_gone(void *owner)
{
    struct completion *completion = owner;
    completion_end_record(completion,
                          completion->work.server->stopping ? RECORD_STOPPED : RECORD_CANCELLED);
    request_work_gone(&completion->work);
    /* While a step runs the choices are its own, and the driver has none of them. */
    for (uint32_t i = 0; !completion->work.running && i < completion->n_choices; i++)
        completion_cancel_choice(&completion->choices[i]);
    completion_free_when_over(completion);
}

/* With echo and logprobs the prompt's tokens have logprobs too. */
static bool prepare_scoring(struct completion_choice *choice, const struct token_list *prompt,
                            struct api_error *err)
{
    const struct completion *completion = choice->completion;
    struct inbox_item *item = &choice->item;
    struct error cause;
    item->n_vocab = model_hyperparameters(completion->use.model->model)->n_vocab;
    if (sampler_new(item->n_vocab, &item->scorer, &cause) != ERROR_NONE)
        return api_error_from(err, &cause);
    item->prompt = prompt->ids;
    item->n_prompt = (uint32_t)prompt->count;
    item->n_top = completion->request.n_top_logprobs;
    return true;
}

static bool submit_choice(struct completion_choice *choice, struct api_error *err)
{
    struct completion *completion = choice->completion;
    const struct api_model *model = completion->use.model;
    const struct generation_request *asked = &completion->request;
    const struct token_list *prompt = &completion->prompts[choice->prompt];
    uint32_t context = generator_context(model->generator);
    uint32_t room = context > prompt->count ? context - (uint32_t)prompt->count : 1;
    uint32_t standard =
        asked->kind == GENERATION_CHAT ? room : 16; /* what OpenAI's API does without max_tokens */
    struct request request = {
        .prompt = prompt->ids,
        .n_prompt = (uint32_t)prompt->count,
        .n_predict = asked->has_max_tokens ? asked->max_tokens : standard,
        .sampler = asked->sampler,
        .stop_tokens = model->stop_tokens.ids,
        .n_stop_tokens = (uint32_t)model->stop_tokens.count,
        .logprobs = asked->logprobs,
        .n_top_logprobs = asked->n_top_logprobs,
        .cache_key = completion->work.server->shares_prefixes ? 0 : completion->use.grant.id,
        .n_vocab = model_hyperparameters(model->model)->n_vocab,
        .constraint = completion->constraint,
        .pictures = completion->shown ? completion->shown->at : NULL,
        .n_pictures = completion->shown ? completion->shown->n : 0,
        .handlers = inbox_token_handlers,
        .arg = &choice->item,
    };
    request.sampler.seed += choice->index % asked->n;
    if (asked->echo && asked->logprobs) {
        if (!prepare_scoring(choice, prompt, err))
            return false;
        request.want_all_logits = true;
        request.handlers = inbox_scoring_handlers;
    }
    struct error cause;
    if (generator_submit(model->generator, &request, &choice->driver_id, &cause) != ERROR_NONE)
        return api_error_from(err, &cause);
    access_count(completion->work.server->access, completion->use.grant.id, prompt->count,
                 server_wall_ms());
    choice->running = true;
    completion->n_running++;
    return true;
}

/* All or none: when the queue takes only some of the choices, those are taken back. */
static void completion_submit(struct completion *completion)
{
    struct api_error err;
    uint64_t n_prompt = 0;
    for (uint32_t i = 0; i < completion->request.n_prompts; i++)
        n_prompt += completion->prompts[i].count;
    api_record_submitted(completion->record, (uint32_t)n_prompt, clock_now_ns());
    for (uint32_t i = 0; i < completion->n_choices; i++) {
        if (submit_choice(&completion->choices[i], &err))
            continue;
        completion_fail(completion, &err);
        return;
    }
    completion_begin_answer(completion);
}

static void completion_prepared(struct request_work *work)
{
    struct completion *completion = completion_of(work);
    const bool was_busy = completion->busy; /* a step that is refused ends here at once */
    completion->busy = true;
    if (work->exchange && work->err.status)
        completion_fail(completion, &work->err);
    else if (work->exchange && completion->dialect && completion->dialect->prepared)
        completion_answer_prepared(completion);
    else if (work->exchange)
        completion_submit(completion);
    completion->busy = was_busy;
    completion_free_when_over(completion);
}

/* Tokens have come, or the driver is done with the choice, or both. */
void completion_choice_ready(struct inbox_item *item)
{
    struct completion_choice *choice = item->owner;
    struct completion *completion = choice->completion;
    completion->busy = true;
    if (completion->work.exchange)
        exchange_hold(completion->work.exchange);
    bool done = inbox_collect(item, &completion->batch);
    access_count(completion->work.server->access, completion->use.grant.id,
                 completion->batch.n_records, server_wall_ms());
    if (completion->work.exchange && !choice->finish_reason)
        completion_take_tokens(choice, &completion->batch);
    if (done && choice->running) {
        choice->running = false;
        completion->n_running--;
        if (completion->work.exchange && !choice->finish_reason)
            completion_end_choice(choice);
    }
    if (done && completion->work.exchange && !completion->n_running && !completion->work.running)
        completion_end_answer(completion);
    exchange_release_held(completion->work.server);
    completion->busy = false;
    completion_free_when_over(completion);
}

/* On the loop: the model is open, or cannot be had. */
static void completion_opened(struct model_use *use)
{
    struct completion *completion = use->owner;
    const struct request_step step = {.bytes = completion->n_body,
                                      .exclusive = completion->kind == GENERATION_CHAT && use->model
                                                       ? use->model->chat_template
                                                       : NULL,
                                      .run = completion_prepare,
                                      .ready = completion_prepared};
    if (use->err.status) {
        completion_fail(completion, &use->err);
        completion_free_when_over(completion);
        return;
    }
    api_record_opened(completion->record, use->model->id);
    completion->figures = metrics_model(&completion->work.server->metrics, use->model->id);
    for (uint32_t i = 0; i < completion->n_choices; i++)
        completion->choices[i].text.tokenizer = use->model->tokenizer;
    request_work_step(&completion->work, &step);
}

enum { PURPOSE_SEED, PURPOSE_NAME, PURPOSE_NAME_TOO }; /* of a request id's numbers */

/* All that is not the request's comes from its id, so that the same may be had again elsewhere. */
static void use_request_id(struct completion *completion, const char *id)
{
    if (!completion->request.has_seed)
        completion->request.sampler.seed = request_id_number(id, PURPOSE_SEED);
    snprintf(completion->id, sizeof completion->id, "%s-%016" PRIx64 "%08" PRIx32,
             completion->dialect                   ? completion->dialect->id
             : completion->kind == GENERATION_CHAT ? "chatcmpl"
                                                   : "cmpl",
             request_id_number(id, PURPOSE_NAME),
             (uint32_t)request_id_number(id, PURPOSE_NAME_TOO));
}

/* Where the client's stream broke off. */
static bool read_positions(struct completion *completion, struct exchange *exchange,
                           struct api_error *err)
{
    static const char name[] = "Last-Event-ID";
    struct stream_position before[LIMIT_REQUEST_CHOICES] = {0};
    const struct generation_request *request = &completion->request;
    const struct text last = exchange_last_event_id(exchange);
    bool has_id;
    use_request_id(completion, exchange_request_id(exchange, &has_id));
    if (!last.size)
        return true;
    if (completion->dialect)
        return api_error_field(err, name, "Last-Event-ID is not supported by this interface");
    if (!request->stream)
        return api_error_field(err, name,
                               "Last-Event-ID continues a stream, but 'stream' is not true");
    if (!has_id && !request->has_seed)
        return api_error_field(
            err, name, "Last-Event-ID needs the x-request-id of the stream that it continues");
    if (!stream_positions_read(last.data, last.size, before, completion->n_choices, err))
        return false;
    for (uint32_t i = 0; i < completion->n_choices; i++)
        completion->choices[i].before = before[i];
    return true;
}

static void completion_parsed(struct request_work *work)
{
    struct completion *completion = completion_of(work);
    struct exchange *exchange = work->exchange;
    completion->busy = true;
    if (exchange && (work->err.status || !read_positions(completion, exchange, &work->err))) {
        completion_fail(completion, &work->err);
    } else if (exchange) {
        completion_begin_record(completion, exchange);
        completion->use.owner = completion;
        completion->use.opened = completion_opened;
        const struct text *model = &completion->request.model;
        model_use_begin(&completion->use, work->exchange,
                        completion->dialect && !model->size ? (struct text){0} : *model);
        const bool lines = completion->dialect && completion->dialect->lines;
        if (completion->use.asking && completion->request.stream && !lines)
            exchange_stream_wait(exchange, "loading model");
    }
    completion->busy = false;
    completion_free_when_over(completion);
}

void completion_handle_dialect(struct exchange *exchange, enum generation_kind kind,
                               const struct dialect *dialect)
{
    struct completion *completion = mem_new(sizeof *completion);
    struct api_error err;
    if (!completion) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
        return;
    }
    completion->kind = kind;
    completion->dialect = dialect;
    completion->grant = exchange_grant(exchange)->id;
    completion->created = (uint64_t)time(NULL);
    completion->started_ns = exchange_started_ns(exchange);
    request_work_begin(&completion->work, exchange, completion_gone, completion);
    completion->n_body = completion->work.body.size;
    request_work_step(&completion->work, &(struct request_step){.bytes = completion->n_body,
                                                                .here_if_small = true,
                                                                .run = completion_parse,
                                                                .ready = completion_parsed});
}

void completion_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_COMPLETION, NULL);
}

void chat_completion_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_CHAT, NULL);
}
