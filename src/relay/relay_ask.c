/* A request of this node: what it was given, what it has got, and what becomes of its events. */
#include "base/mem.h"
#include "relay/relay_state.h"

#include <assert.h>

/* ---- making one --------------------------------------------------------------------------- */

enum error_code relay_ask_new(struct relay_instance *instance, const struct request *request,
                              uint32_t context, uint64_t now_ns, struct relay_ask **out,
                              struct error *err)
{
    enum error_code code = request_check(request, LIMIT_VOCAB, err);
    if (!code)
        code = request_check_room(request, context, err);
    if (!code)
        code = request_check_travels(request, err);
    if (code)
        return code;
    struct relay_ask *ask = mem_new(sizeof *ask);
    if (!ask)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a request of %u tokens",
                         request->n_prompt);
    const uint32_t left = context - request->n_prompt;
    ask->instance = instance;
    ask->n_predict = request->n_predict < left ? request->n_predict : left;
    ask->submitted_ns = ask->waiting_ns = now_ns;
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

void relay_ask_free(struct relay_ask *ask)
{
    if (!ask)
        return;
    request_copy_deinit(&ask->request);
    mem_free(ask);
}

const struct request *relay_ask_request(const struct relay_ask *ask)
{
    return &ask->request;
}

void *relay_ask_owner(const struct relay_ask *ask)
{
    return ask->instance->core->options.self;
}

uint32_t relay_ask_left(const struct relay_ask *ask)
{
    assert(ask->n_generated <= ask->n_predict);
    return ask->n_predict - ask->n_generated;
}

bool relay_ask_wants_rows(const struct relay_ask *ask)
{
    return ask->request.embeddings || ask->request.want_all_logits;
}

void relay_ask_part(struct relay_ask *ask, uint64_t now_ns, struct request *out)
{
    const bool forgets = ask->instance->core->options.bug == RELAY_BUG_FORGETS_TEXT;
    *out = ask->request;
    out->n_prompt += forgets ? 0 : ask->n_generated;
    out->n_answered = ask->request.n_answered + (forgets ? 0 : ask->n_generated);
    out->n_predict = relay_ask_left(ask);
    out->handlers = (struct request_handlers){0};
    out->arg = NULL;
    ask->part_first = ask->n_generated;
    ask->part_rows = 0;
    ask->accepted = false;
    ask->usage = (struct request_usage){0};
    if (!ask->n_parts)
        ask->first_part_ns = now_ns;
    /* A sequence's place in its context does not depend on how often it changed its driver. */
    assert(forgets || out->n_prompt + out->n_predict == ask->request.n_prompt + ask->n_predict);
}

/* ---- events ------------------------------------------------------------------------------- */

bool relay_ask_has_token(const struct relay_ask *ask)
{
    return ask->first_token_ns;
}

void relay_ask_take_token(struct relay_ask *ask, const struct token_event *event, uint64_t now_ns,
                          struct token_event *out)
{
    assert(relay_ask_left(ask)); /* the driver was asked for no more, and an answer from elsewhere
                                    is checked before */
    assert(ask->state == ASK_IN_DRIVER || ask->state == ASK_THERE);
    *out = *event;
    out->index = ask->n_generated;
    ask->tokens[ask->request.n_prompt + ask->n_generated++] = event->token;
    if (!ask->first_token_ns)
        ask->first_token_ns = now_ns;
}

bool relay_ask_take_row(struct relay_ask *ask, uint32_t position)
{
    ask->part_rows++;
    if (position < ask->n_rows) /* it was delivered by an earlier part */
        return false;
    ask->n_rows = position + 1;
    return true;
}

/* ---- the end ------------------------------------------------------------------------------ */

static uint32_t relay_ask_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Of one part its driver knows the times; of several only this end does. */
void relay_ask_fill_usage(const struct relay_ask *ask, uint64_t now_ns, struct request_usage *out)
{
    uint64_t begun_ns = ask->first_part_ns ? ask->first_part_ns : now_ns;
    *out = (struct request_usage){
        .prompt_tokens = ask->request.n_prompt,
        .generated_tokens = ask->n_generated,
        .queued_ns = begun_ns - ask->submitted_ns,
    };
    out->cached_tokens = ask->n_parts > 1 ? ask->cached : ask->usage.cached_tokens;
    if (out->cached_tokens > out->prompt_tokens)
        out->cached_tokens = out->prompt_tokens; /* another node's word */
    /* of the last driver: what one that was lost had guessed is not known */
    out->accepted_tokens = relay_ask_smaller(ask->usage.accepted_tokens, out->generated_tokens);
    out->drafted_tokens = ask->usage.drafted_tokens;
    out->accepted_tokens = relay_ask_smaller(out->accepted_tokens, out->drafted_tokens);
    bool knows_times = ask->n_parts == 1 && (ask->usage.prefill_ns || ask->usage.decode_ns);
    if (knows_times) {
        out->queued_ns += ask->usage.queued_ns;
        out->prefill_ns = ask->usage.prefill_ns;
        out->decode_ns = ask->usage.decode_ns;
        out->slowest_ns = ask->usage.slowest_ns;
        out->times = ask->usage.times;
    } else {
        uint64_t first_ns = ask->first_token_ns ? ask->first_token_ns : now_ns;
        out->prefill_ns = first_ns - begun_ns;
        out->decode_ns = now_ns - first_ns;
    }
    assert(out->generated_tokens <= ask->n_predict);
}
