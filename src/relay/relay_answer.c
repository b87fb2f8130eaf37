/* What another node answers to a request of this one. */
#include "relay/relay_state.h"

static void take_acceptance(struct ask *ask)
{
    ask->n_parts += !ask->accepted;
    ask->accepted = true;
}

static enum error_code take_tokens(struct ask *ask, struct request_message *message,
                                   struct error *err)
{
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
    take_acceptance(ask);
    for (uint32_t i = 0; i < message->tokens.count; i++) {
        struct token_event event;
        request_next_token(message, &event, top);
        if (!ask_left(ask) || event.index != ask->n_generated - ask->part_first)
            return error_set(err, ERROR_INVALID, "token %u where %u was to come, with %u left",
                             event.index, ask->n_generated - ask->part_first, ask_left(ask));
        if (event.n_top > ask->request.n_top_logprobs)
            return error_set(err, ERROR_INVALID, "%u likeliest tokens; %u were asked for",
                             event.n_top, ask->request.n_top_logprobs);
        if (ask_take_token(ask, &event))
            continue;
        peer_send_cancel(ask->peer, ask->part_id);
        ask_finish(ask, FINISH_STOP, NULL);
        return ERROR_NONE;
    }
    return ERROR_NONE;
}

static enum error_code take_row(struct ask *ask, const struct request_message *message,
                                struct error *err)
{
    const struct request *request = &ask->request;
    struct buffer *values = &ask->instance->relay->values;
    uint32_t n_values = message->row.n_values;
    bool wants_rows = request->embeddings || request->want_all_logits;
    take_acceptance(ask);
    if (!wants_rows || message->row.position != ask->part_rows ||
        message->row.position >= request->n_prompt + ask->n_generated)
        return error_set(err, ERROR_INVALID, "the row of position %u, which nobody asked for",
                         message->row.position);
    buffer_clear(values); /* its memory is aligned */
    buffer_append(values, message->row.values, (size_t)n_values * sizeof(float));
    if (values->failed) {
        *values = (struct buffer){.data = values->data, .capacity = values->capacity};
        peer_send_cancel(ask->peer, ask->part_id);
        struct error why = {0};
        error_set(&why, ERROR_NO_MEMORY, "no memory for a row of %u values", n_values);
        ask_finish(ask, FINISH_ERROR, &why);
        return ERROR_NONE;
    }
    ask_take_row(ask, message->row.position, (const float *)(const void *)values->data, n_values);
    return ERROR_NONE;
}

/* Refused: because its driver is not there, or not any more; or for good. What was accepted before
 * by another driver is not refused for good because this one is busy. */
static void take_refusal(struct ask *ask, const struct error *why)
{
    ask->error = *why;
    bool elsewhere = why->code == ERROR_NOT_FOUND || why->code == ERROR_CANCELLED;
    bool is_replay = ask->n_parts && why->code == ERROR_BUSY;
    if (elsewhere || is_replay) {
        ask->place_failed = true;
        ask_lost(ask);
    } else {
        ask_finish(ask, FINISH_ERROR, why);
    }
}

static void take_done(struct ask *ask, const struct request_message *message)
{
    ask->usage = message->done.usage;
    ask->error = message->error;
    bool unasked =
        message->done.reason == FINISH_CANCELLED; /* whom this end cancels it forgets at once */
    if (message->done.lost || unasked) {
        ask->place_failed = true;
        ask_lost(ask);
    } else {
        ask_finish(ask, message->done.reason, &message->error);
    }
}

static struct ask *find_ask(struct peer *peer, uint64_t part_id)
{
    pthread_mutex_lock(&peer->relay->lock);
    struct ask *ask = peer->relay->asks;
    while (ask && !(ask->state == ASK_THERE && ask->peer == peer && ask->part_id == part_id))
        ask = ask->next;
    pthread_mutex_unlock(&peer->relay->lock);
    return ask;
}

enum error_code ask_answer(struct peer *peer, struct request_message *message, struct error *err)
{
    struct ask *ask = find_ask(peer, message->id);
    if (!ask)
        return ERROR_NONE; /* it has ended here meanwhile */
    switch (message->kind) {
    case REQUEST_ACCEPTED:
        take_acceptance(ask);
        return ERROR_NONE;
    case REQUEST_REFUSED:
        take_refusal(ask, &message->error);
        return ERROR_NONE;
    case REQUEST_TOKENS:
        return take_tokens(ask, message, err);
    case REQUEST_ROW:
        return take_row(ask, message, err);
    case REQUEST_DONE:
        take_done(ask, message);
        return ERROR_NONE;
    default:
        return ERROR_NONE;
    }
}
