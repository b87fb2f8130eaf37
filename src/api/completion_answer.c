/* What a completion sends to its client. */
#include "api/completion.h"

#include "api/dialect.h"
#include "api/exchange.h"
#include "api/forced_call.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>

static struct response_head head_of(const struct completion *completion)
{
    return (struct response_head){.kind = completion->kind,
                                  .stream = completion->request.stream,
                                  .id = completion->id,
                                  .model = completion->use.model->id,
                                  .created = completion->created};
}

static struct response_usage usage_of(const struct completion *completion)
{
    struct response_usage usage = {0};
    const struct generation_request *request = &completion->request;
    for (uint32_t i = 0; i < completion->n_choices; i++) {
        const struct completion_choice *choice = &completion->choices[i];
        usage.completion_tokens += choice->text.n_tokens;
        usage.drafted_tokens += choice->item.usage.drafted_tokens;
        usage.accepted_tokens += choice->item.usage.accepted_tokens;
        if (i % request->n == 0) { /* a prompt counts once, however many choices it has */
            usage.prompt_tokens += completion->prompts[choice->prompt].count;
            usage.cached_tokens += choice->item.usage.cached_tokens;
        }
    }
    return usage;
}

void completion_answer_out_of_memory(struct completion *completion)
{
    struct api_error err;
    const struct api_limits *limits = &completion->work.server->limits;
    if (completion->work.job.limit.stop == WORK_TOO_LARGE)
        API_LIMIT_ERROR(&err, 413, limits, request_memory, "the answer takes too much memory");
    else if (completion->work.job.limit.stop == WORK_NO_ROOM)
        API_LIMIT_ERROR(&err, 503, limits, memory,
                        "other requests take the memory that the answer needs");
    else
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the answer");
    completion_fail(completion, &err);
}

void completion_fail(struct completion *completion, const struct api_error *err)
{
    for (uint32_t i = 0; i < completion->n_choices; i++)
        completion_cancel_choice(&completion->choices[i]);
    completion_end_record(completion,
                          completion->work.server->stopping ? RECORD_STOPPED : RECORD_FAILED);
    request_work_fail(&completion->work, err); /* as an event if the stream has begun */
}

/* The client's position in all choices: where this answer is, or, while that is behind, where the
 * one before was. */
static void write_event_id(struct completion *completion)
{
    buffer_clear(&completion->event_id);
    for (uint32_t i = 0; i < completion->n_choices; i++) {
        const struct completion_choice *choice = &completion->choices[i];
        const bool is_behind = choice->position.n_events < choice->before.n_events;
        stream_position_write(is_behind ? &choice->before : &choice->position,
                              &completion->event_id);
    }
}

/* What the client went on from is not what was computed now: it must not be joined with what would
 * follow. */
static void refuse_position(struct completion_choice *choice, const char *what)
{
    struct api_error err;
    api_error_set(&err, 409, "invalid_request_error", "answer_differs",
                  "this answer %s (event %u of choice %u): the request, the model or the devices "
                  "are not the same; ask "
                  "again without Last-Event-ID",
                  what, choice->before.n_events, choice->index);
    completion_fail(choice->completion, &err);
}

/* The event in `json`, unless the client has had it. */
static void send_event(struct completion_choice *choice, struct text text)
{
    struct completion *completion = choice->completion;
    const struct stream_position *before = &choice->before;
    stream_position_count(&choice->position, text);
    if (choice->position.n_events == before->n_events && before->is_checked &&
        choice->position.check != before->check)
        refuse_position(choice, "is not the one that was begun");
    if (choice->position.n_events <= before->n_events)
        return;
    write_event_id(completion);
    exchange_stream_event(completion->work.exchange, &completion->event_id, &completion->json);
}

/* One event; without text, logprobs or a reason to finish there is nothing to say, except at
 * first. */
static void completion_send_part(struct completion_choice *choice, struct response_choice shown)
{
    struct completion *completion = choice->completion;
    struct response_head head = head_of(completion);
    struct logprob_list logprobs = choice_logprobs(&choice->text);
    const struct text text = shown.text;
    if (completion->dialect) {
        if (text.size)
            completion->dialect->part(choice, &shown);
        return;
    }
    if (!shown.first && !text.size && !logprobs.n_tokens && !choice->finish_reason)
        return;
    shown.index = choice->index;
    shown.logprobs = completion->request.logprobs && logprobs.n_tokens ? &logprobs : NULL;
    shown.finish_reason = choice->finish_reason;
    buffer_clear(&completion->json);
    response_chunk(&head, &shown, completion->request.include_usage, &completion->json);
    choice_drop_logprobs(&choice->text, logprobs.n_tokens);
    if (completion->json.failed)
        completion_answer_out_of_memory(completion);
    else
        send_event(choice, text);
}

static void send_chunk(struct completion_choice *choice, struct text text, bool first)
{
    completion_send_part(choice, (struct response_choice){.text = text, .first = first});
}

/* What a request keeps of its answer is counted to it. */
static void keep_text_of(struct completion_choice *choice, const struct buffer *text)
{
    work_limit_enter_untimed(&choice->completion->work.job.limit);
    buffer_append(&choice->whole, text->data, text->size);
    work_limit_leave();
}

static void keep_event_of(struct completion_choice *choice, const struct reply_event *event)
{
    work_limit_enter_untimed(&choice->completion->work.job.limit);
    if (event->part == REPLY_CONTENT)
        buffer_append(&choice->whole, event->text, event->size);
    else
        chat_reply_keep(&choice->reply, event);
    work_limit_leave();
}

/* The model's own id of a call, or one that comes from the request's. */
static void name_call(struct completion_choice *choice, const struct reply_event *event)
{
    struct chat_reply *reply = &choice->reply;
    char purpose[LIMIT_REQUEST_ID_BYTES + 32];
    if (event->id_size && event->id_size < sizeof reply->call_id) {
        snprintf(reply->call_id, sizeof reply->call_id, "%.*s", (int)event->id_size, event->id);
        return;
    }
    snprintf(purpose, sizeof purpose, "%s.%u.%u", choice->completion->id, choice->index,
             event->call);
    chat_call_id(reply->reply.format, request_id_number(purpose, 0), reply->call_id);
}

void completion_reply_event(void *self, const struct reply_event *event)
{
    struct completion_choice *choice = self;
    const struct completion *completion = choice->completion;
    const uint32_t most = completion->request.one_call ? 1 : LIMIT_TOOLS;
    choice->enough |= event->part == REPLY_CALL && event->call >= most;
    if (choice->enough || !completion->work.exchange)
        return;
    /* a call that was cut off before its name is no text that the model says */
    if (event->part == REPLY_CONTENT && forced_call_is_wanted(&completion->request))
        return;
    if (event->part == REPLY_CALL) {
        name_call(choice, event);
        choice->reply.n_calls = event->call + 1;
    }
    if (!completion->request.stream || (completion->dialect && completion->dialect->keeps_parts))
        keep_event_of(choice, event);
    if (completion->request.stream && !choice->reply.failed)
        completion_send_part(choice, (struct response_choice){.text = {event->text, event->size},
                                                              .part = event->part,
                                                              .call = event->call,
                                                              .call_id = choice->reply.call_id});
}

static bool keep_token(struct completion_choice *choice, const struct token_record *token,
                       const struct token_logprob *tops)
{
    bool stopped = false;
    work_limit_enter_untimed(&choice->completion->work.job.limit);
    if (token->of_prompt)
        choice_push_prompt(&choice->text, token, tops);
    else
        stopped = choice_push(&choice->text, token, tops, &choice->completion->out);
    work_limit_leave();
    return stopped;
}

static void send_text(struct completion_choice *choice, const struct buffer *text)
{
    struct completion *completion = choice->completion;
    if (choice->reply.reply.format)
        reply_reader_push(&choice->reply.reply, text->data, text->size);
    else if (completion->request.stream)
        send_chunk(choice, (struct text){text->data, text->size}, false);
    else
        keep_text_of(choice, text);
}

static bool choice_ran_out_of_memory(const struct completion_choice *choice)
{
    return choice->text.failed || choice->whole.failed || choice->reply.failed ||
           choice->reply.reply.failed;
}

/* A whole answer gets it when it is written. */
static void echo_prompt(struct completion_choice *choice)
{
    struct completion *completion = choice->completion;
    const struct buffer *echo = &completion->echoes[choice->prompt];
    if (completion->request.stream)
        send_chunk(choice, (struct text){echo->data, echo->size}, false);
    if (completion->work.exchange && completion->request.logprobs) {
        struct token_record first = {.token = completion->prompts[choice->prompt].ids[0],
                                     .logprob = NAN};
        choice_begin_with(&choice->text, echo->size);
        choice_push_prompt(&choice->text, &first, NULL);
    }
}

void completion_begin_answer(struct completion *completion)
{
    const struct generation_request *request = &completion->request;
    const struct dialect *dialect = completion->dialect;
    if (request->stream && dialect && dialect->lines)
        exchange_lines_begin(completion->work.exchange, "application/x-ndjson");
    else if (request->stream)
        exchange_stream_begin(completion->work.exchange);
    if (request->stream && dialect && dialect->begin)
        dialect->begin(completion);
    for (uint32_t i = 0; i < completion->n_choices && completion->work.exchange; i++) {
        if (request->stream && completion->kind == GENERATION_CHAT)
            send_chunk(&completion->choices[i], (struct text){"", 0}, true);
        if (request->echo)
            echo_prompt(&completion->choices[i]);
        if (completion->opening.size && completion->work.exchange)
            reply_reader_push(&completion->choices[i].reply.reply, completion->opening.data,
                              completion->opening.size);
    }
}

static void measure_token(struct completion_choice *choice)
{
    struct completion *completion = choice->completion;
    struct metrics_model *figures = completion->figures;
    uint64_t now = clock_now_ns();
    if (!completion->any_token)
        histogram_add_ns(&figures->ttft, HISTOGRAM_SECONDS, now - completion->started_ns);
    if (!completion->any_token)
        completion->first_token_ns = now;
    else if (choice->last_token_ns)
        histogram_add_ns(&figures->token, HISTOGRAM_SECONDS, now - choice->last_token_ns);
    completion->any_token = true;
    choice->last_token_ns = now;
    figures->generated_tokens++;
    api_record_token(completion->record, now);
}

/* A prompt's logprobs come in pieces: one event of them all could be many MiB. */
enum { EVENT_PROMPT_TOKENS = 32 };

void completion_take_tokens(struct completion_choice *choice, const struct token_batch *batch)
{
    struct completion *completion = choice->completion;
    const struct token_logprob *tops = batch->tops;
    for (uint32_t i = 0; i < batch->n_records && completion->work.exchange; i++) {
        const struct token_record *token = &batch->records[i];
        const struct token_logprob *own_tops = tops;
        tops += token->n_top;
        if (token->of_prompt) {
            keep_token(choice, token, own_tops);
            if (completion->request.stream && choice->text.n_shown >= EVENT_PROMPT_TOKENS)
                send_chunk(choice, (struct text){"", 0}, false);
            continue;
        }
        buffer_clear(&completion->out);
        measure_token(choice);
        bool stopped = keep_token(choice, token, own_tops);
        if (choice_ran_out_of_memory(choice)) {
            completion_answer_out_of_memory(completion);
        } else {
            send_text(choice, &completion->out);
            if ((stopped || choice->enough) && completion->work.exchange) {
                completion_end_choice(choice);
                return;
            }
        }
    }
}

/* The choice has all its tokens, or has met a stop string. In the latter case the driver may not be
 * done with the item, so that it must not be read. */
void completion_end_choice(struct completion_choice *choice)
{
    struct completion *completion = choice->completion;
    const struct inbox_item *item = &choice->item;
    struct api_error err = {0};
    buffer_clear(&completion->out);
    bool stopped = choice_finish(&choice->text, &completion->out) || choice->enough;
    if (!stopped && item->reason == FINISH_ERROR)
        api_error_from(&err, &item->err);
    else if (choice->text.failed || (!stopped && item->no_memory))
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the answer");
    else if (!stopped && item->reason == FINISH_CANCELLED)
        api_error_set(&err, 503, "server_error", "cancelled", "the server is stopping");
    if (err.status) {
        completion_fail(completion, &err);
        return;
    }
    send_text(choice, &completion->out);
    if (choice->reply.reply.format)
        reply_reader_finish(&choice->reply.reply);
    if (!completion->work.exchange)
        return;
    completion_cancel_choice(choice); /* a stop string: the driver would go on */
    choice->finish_reason = !stopped && item->reason == FINISH_LENGTH ? "length"
                            : choice->reply.n_calls                   ? "tool_calls"
                                                                      : "stop";
    if (completion->request.stream)
        send_chunk(choice, (struct text){"", 0}, false);
}

/* ---- a whole answer ---- */

/* Roughly what it takes in JSON. */
static size_t whole_bytes(const struct completion *completion)
{
    enum { TOKEN_BYTES = 128 };
    size_t bytes = 0;
    for (uint32_t i = 0; i < completion->n_choices; i++) {
        const struct completion_choice *choice = &completion->choices[i];
        const struct buffer *echoes = completion->echoes;
        for (uint32_t k = 0; choice->reply.calls && k < choice->reply.n_calls; k++)
            bytes += choice->reply.calls[k].arguments.size + TOKEN_BYTES;
        bytes += choice->reply.reasoning.size + choice->whole.size +
                 (echoes ? echoes[choice->prompt].size : 0) +
                 TOKEN_BYTES * (1 + choice->text.n_shown + choice->text.n_tops);
    }
    return bytes;
}

/* The prompt comes before the text where it was asked for. */
static bool whole_text(struct completion *completion, struct completion_choice *choice,
                       struct buffer *joined, struct text *out)
{
    const struct buffer *echo = completion->echoes ? &completion->echoes[choice->prompt] : NULL;
    *out = (struct text){choice->whole.data, choice->whole.size};
    if (echo) {
        buffer_append(joined, echo->data, echo->size);
        buffer_append(joined, choice->whole.data, choice->whole.size);
        *out = (struct text){joined->data, joined->size};
    }
    return !choice->whole.failed && !joined->failed;
}

static void completion_write_choices(struct completion *completion, struct response_choice *shown,
                                     struct logprob_list *logprobs, struct buffer *joined)
{
    const struct response_usage usage = usage_of(completion);
    const struct response_head head = head_of(completion);
    for (uint32_t i = 0; i < completion->n_choices; i++) {
        struct completion_choice *choice = &completion->choices[i];
        logprobs[i] = choice_logprobs(&choice->text);
        shown[i] =
            (struct response_choice){.index = i,
                                     .reply = &choice->reply,
                                     .logprobs = completion->request.logprobs ? &logprobs[i] : NULL,
                                     .finish_reason = choice->finish_reason};
        if (!whole_text(completion, choice, &joined[i], &shown[i].text)) {
            completion->answer.failed = true;
            return;
        }
    }
    if (completion->dialect)
        completion->dialect->whole(completion, &shown[0], &usage, &completion->answer);
    else
        response_whole(&head, shown, completion->n_choices, &usage, &completion->answer);
}

/* A step: the driver is done with all choices, so that nobody else has them. */
static void completion_write(struct request_work *work)
{
    struct completion *completion = completion_of(work);
    const uint32_t n = completion->n_choices;
    struct response_choice *shown = mem_new_array(n, sizeof *shown);
    struct logprob_list *logprobs = mem_new_array(n, sizeof *logprobs);
    struct buffer *joined = mem_new_array(n, sizeof *joined);
    if (shown && logprobs && joined)
        completion_write_choices(completion, shown, logprobs, joined);
    else
        completion->answer.failed = true;
    for (uint32_t i = 0; joined && i < n; i++)
        buffer_deinit(&joined[i]);
    mem_free(joined);
    mem_free(shown);
    mem_free(logprobs);
}

static void completion_written(struct request_work *work)
{
    struct completion *completion = completion_of(work);
    const bool was_busy = completion->busy;
    completion->busy = true;
    if (work->exchange && work->err.status)
        completion_fail(completion, &work->err);
    else if (work->exchange && completion->answer.failed)
        completion_answer_out_of_memory(completion);
    else if (work->exchange)
        request_work_answer(work, &completion->answer);
    completion->busy = was_busy;
    completion_free_when_over(completion);
}

void completion_answer_prepared(struct completion *completion)
{
    completion->dialect->prepared(completion, &completion->answer);
    completion_end_record(completion, RECORD_DONE);
    if (completion->answer.failed)
        completion_answer_out_of_memory(completion);
    else
        request_work_answer(&completion->work, &completion->answer);
}

static void completion_end_dialect(struct completion *completion,
                                   const struct response_usage *usage)
{
    completion->dialect->end(completion, usage);
    struct exchange *exchange = completion->work.exchange;
    completion->work.exchange = NULL;
    if (exchange && completion->dialect->lines)
        exchange_lines_end(exchange);
    else if (exchange)
        exchange_stream_close(exchange);
}

/* Every choice has ended and the driver has let go of all. */
void completion_end_answer(struct completion *completion)
{
    struct response_usage usage = usage_of(completion);
    completion_end_record(completion, RECORD_DONE);
    if (!completion->request.stream) {
        request_work_step(&completion->work,
                          &(struct request_step){.bytes = whole_bytes(completion),
                                                 .here_if_small = true,
                                                 .run = completion_write,
                                                 .ready = completion_written});
        return;
    }
    if (completion->dialect) {
        completion_end_dialect(completion, &usage);
        return;
    }
    if (completion->request.include_usage) {
        struct response_head head = head_of(completion);
        buffer_clear(&completion->json);
        response_usage_chunk(&head, &usage, &completion->json);
        if (completion->json.failed)
            completion_answer_out_of_memory(completion);
        else
            send_event(&completion->choices[0], (struct text){"", 0});
    }
    for (uint32_t i = 0; i < completion->n_choices && completion->work.exchange; i++) {
        struct completion_choice *choice = &completion->choices[i];
        if (choice->position.n_events < choice->before.n_events)
            refuse_position(choice, "ends before the one that was begun");
    }
    struct exchange *exchange = completion->work.exchange;
    completion->work.exchange = NULL;
    if (exchange)
        exchange_stream_end(exchange);
}
