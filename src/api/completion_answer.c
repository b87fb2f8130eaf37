/* What a completion sends to its client. */
#include "api/completion.h"

#include "api/exchange.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>

static struct response_head head_of(const struct completion *completion)
{
    return (struct response_head){.kind = completion->request.kind,
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
        if (i % request->n == 0) { /* a prompt counts once, however many choices it has */
            usage.prompt_tokens += completion->prompts[choice->prompt].count;
            usage.cached_tokens += choice->item.usage.cached_tokens;
        }
    }
    return usage;
}

static void completion_answer_out_of_memory(struct completion *completion)
{
    struct api_error err;
    api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the answer");
    completion_fail(completion, &err);
}

void completion_fail(struct completion *completion, const struct api_error *err)
{
    struct exchange *exchange = completion->exchange;
    completion->exchange = NULL;
    for (uint32_t i = 0; i < completion->n_choices; i++)
        completion_cancel_choice(&completion->choices[i]);
    exchange_fail(exchange, err); /* as an event if the stream has begun */
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
    exchange_stream_event(completion->exchange, &completion->event_id, &completion->json);
}

/* One event; without text, logprobs or a reason to finish there is nothing to say, except at
 * first. */
static void send_chunk(struct completion_choice *choice, struct text text, bool first)
{
    struct completion *completion = choice->completion;
    struct response_head head = head_of(completion);
    struct logprob_list logprobs = choice_logprobs(&choice->text);
    if (!first && !text.size && !logprobs.n_tokens && !choice->finish_reason)
        return;
    struct response_choice shown = {
        .index = choice->index,
        .first = first,
        .text = text,
        .logprobs = completion->request.logprobs && logprobs.n_tokens ? &logprobs : NULL,
        .finish_reason = choice->finish_reason};
    buffer_clear(&completion->json);
    response_chunk(&head, &shown, completion->request.include_usage, &completion->json);
    choice_drop_logprobs(&choice->text, logprobs.n_tokens);
    if (completion->json.failed)
        completion_answer_out_of_memory(completion);
    else
        send_event(choice, text);
}

static void send_text(struct completion_choice *choice, const struct buffer *text)
{
    struct completion *completion = choice->completion;
    if (completion->request.stream)
        send_chunk(choice, (struct text){text->data, text->size}, false);
    else
        buffer_append(&choice->whole, text->data, text->size);
}

static void echo_prompt(struct completion_choice *choice)
{
    struct completion *completion = choice->completion;
    const struct prompt_input *prompt = &completion->request.prompts[choice->prompt];
    buffer_clear(&completion->out);
    if (prompt->tokens)
        tokenizer_decode(completion->use.model->tokenizer, prompt->tokens, prompt->n_tokens, false,
                         true, &completion->out);
    else
        buffer_append(&completion->out, prompt->text.data, prompt->text.size);
    send_text(choice, &completion->out);
    if (completion->request.logprobs) {
        struct token_record first = {.token = completion->prompts[choice->prompt].ids[0],
                                     .logprob = NAN};
        choice_begin_with(&choice->text, completion->out.size);
        choice_push_prompt(&choice->text, &first, NULL);
    }
}

void completion_begin_answer(struct completion *completion)
{
    const struct generation_request *request = &completion->request;
    if (request->stream)
        exchange_stream_begin(completion->exchange);
    for (uint32_t i = 0; i < completion->n_choices && completion->exchange; i++) {
        if (request->stream && request->kind == GENERATION_CHAT)
            send_chunk(&completion->choices[i], (struct text){"", 0}, true);
        if (request->echo)
            echo_prompt(&completion->choices[i]);
    }
}

static void measure_token(struct completion_choice *choice)
{
    struct completion *completion = choice->completion;
    struct metrics *metrics = &completion->server->metrics;
    uint64_t now = clock_now_ns();
    if (!completion->any_token)
        histogram_add(&metrics->ttft_seconds, now - completion->started_ns);
    else if (choice->last_token_ns)
        histogram_add(&metrics->token_seconds, now - choice->last_token_ns);
    completion->any_token = true;
    choice->last_token_ns = now;
    metrics->generated_tokens++;
}

void completion_take_tokens(struct completion_choice *choice, const struct token_batch *batch)
{
    struct completion *completion = choice->completion;
    const struct token_logprob *tops = batch->tops;
    for (uint32_t i = 0; i < batch->n_records && completion->exchange; i++) {
        const struct token_record *token = &batch->records[i];
        const struct token_logprob *own_tops = tops;
        tops += token->n_top;
        if (token->of_prompt) {
            choice_push_prompt(&choice->text, token, own_tops);
            continue;
        }
        buffer_clear(&completion->out);
        measure_token(choice);
        bool stopped = choice_push(&choice->text, token, own_tops, &completion->out);
        if (choice->text.failed) {
            completion_answer_out_of_memory(completion);
        } else {
            send_text(choice, &completion->out);
            if (stopped && completion->exchange) {
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
    bool stopped = choice_finish(&choice->text, &completion->out);
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
    if (!completion->exchange)
        return;
    completion_cancel_choice(choice); /* a stop string: the driver would go on */
    choice->finish_reason = !stopped && item->reason == FINISH_LENGTH ? "length" : "stop";
    if (completion->request.stream)
        send_chunk(choice, (struct text){"", 0}, false);
}

static void answer_whole(struct completion *completion, const struct response_usage *usage)
{
    struct response_head head = head_of(completion);
    struct response_choice *shown = mem_new_array(completion->n_choices, sizeof *shown);
    struct logprob_list *logprobs = mem_new_array(completion->n_choices, sizeof *logprobs);
    bool failed = !shown || !logprobs;
    for (uint32_t i = 0; i < completion->n_choices && !failed; i++) {
        struct completion_choice *choice = &completion->choices[i];
        logprobs[i] = choice_logprobs(&choice->text);
        shown[i] =
            (struct response_choice){.index = i,
                                     .text = {choice->whole.data, choice->whole.size},
                                     .logprobs = completion->request.logprobs ? &logprobs[i] : NULL,
                                     .finish_reason = choice->finish_reason};
        failed = choice->whole.failed;
    }
    struct buffer body = {0};
    if (!failed)
        response_whole(&head, shown, completion->n_choices, usage, &body);
    mem_free(shown);
    mem_free(logprobs);
    if (failed || body.failed) {
        buffer_deinit(&body);
        completion_answer_out_of_memory(completion);
        return;
    }
    struct exchange *exchange = completion->exchange;
    completion->exchange = NULL;
    exchange_answer_json(exchange, &body);
}

/* Every choice has ended and the driver has let go of all. */
void completion_end_answer(struct completion *completion)
{
    struct response_usage usage = usage_of(completion);
    struct metrics *metrics = &completion->server->metrics;
    metrics->prompt_tokens += usage.prompt_tokens;
    metrics->cached_tokens += usage.cached_tokens;
    if (!completion->request.stream) {
        answer_whole(completion, &usage);
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
    for (uint32_t i = 0; i < completion->n_choices && completion->exchange; i++) {
        struct completion_choice *choice = &completion->choices[i];
        if (choice->position.n_events < choice->before.n_events)
            refuse_position(choice, "ends before the one that was begun");
    }
    struct exchange *exchange = completion->exchange;
    completion->exchange = NULL;
    if (exchange)
        exchange_stream_end(exchange);
}
