/* A request of this node: what it was given, what it has got, and its events. */
#include "base/clock.h"
#include "base/mem.h"
#include "relay/relay_state.h"

#include <assert.h>

/* ---- making one --------------------------------------------------------------------------- */

enum error_code ask_new(struct instance *instance, const struct request *request, uint32_t context,
                        struct ask **out, struct error *err)
{
    enum error_code code = request_check(request, LIMIT_VOCAB, err);
    if (!code)
        code = request_check_room(request, context, err);
    if (code)
        return code;
    struct ask *ask = mem_new(sizeof *ask);
    if (!ask)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request of %u tokens",
                         request->n_prompt);
    const uint32_t left = context - request->n_prompt;
    ask->instance = instance;
    ask->n_predict = request->n_predict < left ? request->n_predict : left;
    ask->submitted_ns = ask->waiting_ns = clock_now_ns();
    code = request_copy(request, ask->n_predict, &ask->request, err);
    if (code) {
        mem_free(ask);
        return code;
    }
    if (!request->n_predict) /* nobody checked it, and nobody needs it */
        ask->request.sampler.n_biases = 0;
    ask->tokens = (int32_t *)ask->request.prompt;
    *out = ask;
    return ERROR_NONE;
}

void ask_free(struct ask *ask)
{
    if (!ask)
        return;
    request_copy_deinit(&ask->request);
    mem_free(ask);
}

uint32_t ask_left(const struct ask *ask)
{
    return ask->n_predict - ask->n_generated;
}

void ask_part(struct ask *ask, struct request *out)
{
    *out = ask->request;
    out->n_prompt += ask->n_generated;
    out->n_predict = ask_left(ask);
    out->handlers = ask_handlers;
    out->arg = ask;
    ask->part_first = ask->n_generated;
    ask->part_rows = 0;
    ask->accepted = false;
    ask->usage = (struct request_usage){0};
    if (!ask->n_parts)
        ask->first_part_ns = clock_now_ns();
}

/* ---- events ------------------------------------------------------------------------------- */

bool ask_take_token(struct ask *ask, const struct token_event *event)
{
    const struct request *request = &ask->request;
    assert(ask_left(ask)); /* the driver was asked for no more, and an answer from elsewhere is
                              checked before */
    struct token_event moved = *event;
    moved.index = ask->n_generated;
    ask->tokens[request->n_prompt + ask->n_generated++] = event->token;
    if (!ask->first_token_ns)
        ask->first_token_ns = clock_now_ns();
    return !request->handlers.token || request->handlers.token(request->arg, &moved);
}

void ask_take_row(struct ask *ask, uint32_t position, const float *values, uint32_t n_values)
{
    ask->part_rows++;
    if (position < ask->n_rows) /* it was delivered by an earlier part */
        return;
    ask->n_rows = position + 1;
    ask->request.handlers.row(ask->request.arg, position, values, n_values);
}

static bool on_token(void *arg, const struct token_event *event)
{
    return ask_take_token(arg, event);
}

static void on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    ask_take_row(arg, position, values, n_values);
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct ask *ask = arg;
    struct relay *relay = ask->instance->relay;
    ask->usage = *usage;
    ask->reason = reason;
    ask->error = (struct error){0};
    if (err)
        ask->error = *err;
    pthread_mutex_lock(&relay->lock);
    bool is_over = reason == FINISH_STOP || reason == FINISH_LENGTH ||
                   (reason == FINISH_CANCELLED && ask->cancelled);
    ask->state = is_over ? ASK_FINISHING : ASK_RETURNED;
    if (!is_over)
        relay_look_locked(relay);
    pthread_mutex_unlock(&relay->lock);
    if (is_over)
        ask_finish(ask, reason, NULL);
}

const struct request_handlers ask_handlers = {on_token, on_row, on_done};

/* ---- the end ------------------------------------------------------------------------------ */

/* Of one part its driver knows the times; of several only this end does. */
static void fill_usage(const struct ask *ask, struct request_usage *out)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t begun_ns = ask->first_part_ns ? ask->first_part_ns : now_ns;
    *out = (struct request_usage){
        .prompt_tokens = ask->request.n_prompt,
        .generated_tokens = ask->n_generated,
        .queued_ns = begun_ns - ask->submitted_ns,
    };
    out->cached_tokens = ask->n_parts > 1 ? ask->cached : ask->usage.cached_tokens;
    if (out->cached_tokens > out->prompt_tokens)
        out->cached_tokens = out->prompt_tokens; /* another node's word */
    bool knows_times = ask->n_parts == 1 && (ask->usage.prefill_ns || ask->usage.decode_ns);
    if (knows_times) {
        out->queued_ns += ask->usage.queued_ns;
        out->prefill_ns = ask->usage.prefill_ns;
        out->decode_ns = ask->usage.decode_ns;
    } else {
        uint64_t first_ns = ask->first_token_ns ? ask->first_token_ns : now_ns;
        out->prefill_ns = first_ns - begun_ns;
        out->decode_ns = now_ns - first_ns;
    }
}

static void count_locked(struct instance *instance, const struct request_usage *usage)
{
    instance->n_live--;
    instance->used_ns = clock_now_ns();
    instance_count_locked(instance, usage->generated_tokens, instance->used_ns);
    instance->stats.prompt_tokens_total += usage->prompt_tokens;
    instance->stats.cached_tokens_total += usage->cached_tokens;
    instance->stats.generated_tokens_total += usage->generated_tokens;
}

static void unlink_locked(struct relay *relay, struct ask *ask)
{
    if (ask->next)
        ask->next->previous = ask->previous;
    else
        relay->last_ask = ask->previous;
    if (ask->previous)
        ask->previous->next = ask->next;
    else
        relay->asks = ask->next;
    relay->n_asks--;
}

void ask_finish(struct ask *ask, enum finish_reason reason, const struct error *err)
{
    struct relay *relay = ask->instance->relay;
    struct request_usage usage;
    fill_usage(ask, &usage);
    pthread_mutex_lock(&relay->lock);
    ask->state = ASK_FINISHING;
    pthread_mutex_unlock(&relay->lock);
    ask->request.handlers.done(ask->request.arg, reason, &usage,
                               reason == FINISH_ERROR ? err : NULL);
    pthread_mutex_lock(&relay->lock);
    unlink_locked(relay, ask);
    count_locked(ask->instance, &usage);
    if (relay->closing)
        relay_look_locked(relay);
    pthread_mutex_unlock(&relay->lock);
    ask_free(ask);
}
