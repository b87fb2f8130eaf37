/* What another node answers to a request of this one. Nothing that it says is taken for granted. */
#include "relay/relay_state.h"

#include <assert.h>

static void relay_take_acceptance(struct relay_ask *ask)
{
    assert(ask->state == ASK_THERE);
    ask->n_parts += !ask->accepted;
    ask->accepted = true;
}

/* What the request's model cannot have said. The asker would look a token up, score a row, or give
 * the next driver a prompt with it. */
static bool relay_check_token(const struct request *request, const struct token_event *event,
                              struct error *err)
{
    const int32_t n_vocab = request->n_vocab ? (int32_t)request->n_vocab : LIMIT_VOCAB;
    int32_t token = event->token;
    for (uint32_t i = 0; i < event->n_top && token < n_vocab; i++)
        token = event->top[i].token;
    if (token < n_vocab)
        return true;
    error_set(err, ERROR_INVALID, "got token %d of a vocabulary of %d", token, n_vocab);
    return false;
}

static bool relay_check_row(const struct request *request, uint32_t n_values, struct error *err)
{
    const uint32_t wanted = request->embeddings ? request->n_embd : request->n_vocab;
    if (!wanted || n_values == wanted)
        return true;
    error_set(err, ERROR_INVALID, "got a row of %u values; the model's have %u", n_values, wanted);
    return false;
}

/* The next of the message's tokens; they are handed on one by one, since the asker may stop. */
bool relay_answer_next_token(struct relay_core *core, struct relay_effect *out, struct error *err)
{
    struct relay_reading *reading = &core->reading;
    struct relay_ask *ask = reading->ask;
    struct token_event event, moved;
    assert(ask->state == ASK_THERE && ask->peer == reading->peer);
    if (reading->token == reading->message.tokens.count) {
        reading->ask = NULL;
        return false;
    }
    reading->token++;
    request_next_token(&reading->message, &event, reading->top);
    if (!relay_ask_left(ask) || event.index != ask->n_generated - ask->part_first) {
        error_set(err, ERROR_INVALID, "got token %u instead of %u, with %u left", event.index,
                  ask->n_generated - ask->part_first, relay_ask_left(ask));
        return false;
    }
    if (event.n_top > ask->request.n_top_logprobs) {
        error_set(err, ERROR_INVALID, "got %u most probable tokens; %u were asked for", event.n_top,
                  ask->request.n_top_logprobs);
        return false;
    }
    if (!relay_check_token(&ask->request, &event, err))
        return false;
    relay_ask_take_token(ask, &event, reading->now_ns, &moved);
    *out = (struct relay_effect){.type = RELAY_TOKEN, .ask = ask, .token = moved};
    return true;
}

static bool relay_take_tokens(struct relay_ask *ask, uint64_t now_ns, struct relay_effect *out,
                              struct error *err)
{
    struct relay_core *core = ask->instance->core;
    relay_take_acceptance(ask);
    core->reading.ask = ask;
    core->reading.token = 0;
    core->reading.now_ns = now_ns;
    return relay_answer_next_token(core, out, err);
}

static bool relay_take_row(struct relay_ask *ask, const struct request_message *message,
                           uint64_t now_ns, struct relay_effect *out, struct error *err)
{
    const struct request *request = &ask->request;
    struct buffer *values = &ask->instance->core->values;
    const uint32_t n_values = message->row.n_values, position = message->row.position;
    relay_take_acceptance(ask);
    if (!relay_ask_wants_rows(ask) || position != ask->part_rows ||
        position >= request->n_prompt + ask->n_generated) {
        error_set(err, ERROR_INVALID, "got the row of position %u, which nobody asked for",
                  position);
        return false;
    }
    if (!relay_check_row(request, n_values, err))
        return false;
    buffer_clear(values); /* its memory is aligned */
    buffer_append(values, message->row.values, (size_t)n_values * sizeof(float));
    if (values->failed) {
        *values = (struct buffer){.data = values->data, .capacity = values->capacity};
        relay_peer_send_cancel(ask->peer, ask->part_id);
        error_set(&ask->error, ERROR_NO_MEMORY, "not enough memory for a row of %u values",
                  n_values);
        relay_end(ask, FINISH_ERROR, &ask->error, now_ns);
        return false;
    }
    *out = (struct relay_effect){.type = RELAY_ROW,
                                 .ask = ask,
                                 .position = position,
                                 .n_values = n_values,
                                 .values = (const float *)(const void *)values->data};
    return relay_ask_take_row(ask, position);
}

/* Refused: because its driver is not there, or not any more; or for good. What was accepted before
 * by another driver is not refused for good because this one is busy. */
static void relay_take_refusal(struct relay_ask *ask, const struct error *why, uint64_t now_ns)
{
    const bool elsewhere = why->code == ERROR_NOT_FOUND || why->code == ERROR_CANCELLED;
    const bool is_replay = ask->n_parts && why->code == ERROR_BUSY;
    ask->error = *why;
    if (elsewhere || is_replay) {
        ask->place_failed = true;
        relay_ask_lost(ask, now_ns);
    } else {
        relay_end(ask, FINISH_ERROR, why, now_ns);
    }
}

/* Some models give no embeddings: no row at all is an answer, a part of them is none. */
static bool relay_check_rows(const struct relay_ask *ask, enum finish_reason reason,
                             struct error *err)
{
    const uint32_t n_prompt = ask->request.n_prompt;
    const bool is_good = reason == FINISH_STOP || reason == FINISH_LENGTH;
    if (!is_good || !relay_ask_wants_rows(ask) || ask->n_rows >= n_prompt ||
        (!ask->n_rows && ask->request.embeddings))
        return true;
    error_set(err, ERROR_INVALID, "the end came after %u of %u rows", ask->n_rows, n_prompt);
    return false;
}

/* Of several parts, or where the other end says more than there was time for, this end's clock
 * counts. */
static bool relay_usage_fits(const struct relay_ask *ask, const struct request_usage *usage,
                             uint64_t now_ns)
{
    const uint64_t begun_ns = ask->first_part_ns < now_ns ? ask->first_part_ns : now_ns;
    const uint64_t room_ns = (now_ns - begun_ns) + (now_ns - begun_ns) / 100; /* clocks differ */
    return usage->queued_ns <= room_ns && usage->prefill_ns <= room_ns - usage->queued_ns &&
           usage->decode_ns <= room_ns - usage->queued_ns - usage->prefill_ns;
}

/* A stage computes one micro-batch at a time. */
static bool relay_times_fit(const struct request_usage *usage)
{
    for (uint32_t i = 0; i < usage->times.n_stages; i++) {
        if (usage->times.stages[i].compute_ns > usage->prefill_ns + usage->decode_ns)
            return false;
    }
    return true;
}

static void relay_take_done(struct relay_ask *ask, const struct request_message *message,
                            uint64_t now_ns)
{
    ask->usage = message->done.usage;
    if (!relay_usage_fits(ask, &ask->usage, now_ns))
        ask->usage.queued_ns = ask->usage.prefill_ns = ask->usage.decode_ns = 0;
    if (ask->usage.slowest_ns > ask->usage.prefill_ns + ask->usage.decode_ns)
        ask->usage.slowest_ns = 0;
    if (!relay_times_fit(&ask->usage))
        ask->usage.times = (struct request_times){0};
    ask->error = message->error;
    const bool unasked =
        message->done.reason == FINISH_CANCELLED; /* whom this end cancels it forgets at once */
    if (message->done.lost || unasked) {
        ask->place_failed = true;
        relay_ask_lost(ask, now_ns);
    } else {
        relay_end(ask, message->done.reason, &ask->error, now_ns);
    }
}

static struct relay_ask *relay_find_part(const struct relay_peer *peer, uint64_t part_id)
{
    struct relay_ask *ask = peer->core->asks;
    while (ask && !(ask->state == ASK_THERE && ask->peer == peer && ask->part_id == part_id))
        ask = ask->next;
    return ask;
}

bool relay_answer(struct relay_peer *peer, struct request_message *message, uint64_t now_ns,
                  struct relay_effect *out, struct error *err)
{
    struct relay_ask *ask = relay_find_part(peer, message->id);
    assert(!peer->core->reading.ask);
    if (!ask)
        return false; /* it has ended here meanwhile */
    switch (message->kind) {
    case REQUEST_ACCEPTED:
        relay_take_acceptance(ask);
        return false;
    case REQUEST_REFUSED:
        relay_take_refusal(ask, &message->error, now_ns);
        return false;
    case REQUEST_TOKENS:
        return relay_take_tokens(ask, now_ns, out, err);
    case REQUEST_ROW:
        return relay_take_row(ask, message, now_ns, out, err);
    case REQUEST_DONE:
        if (!relay_check_rows(ask, message->done.reason, err))
            return false;
        relay_take_done(ask, message, now_ns);
        return false;
    default:
        return false;
    }
}
