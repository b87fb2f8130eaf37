#include "request/request.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

static void request_add_time(uint64_t *sum, uint64_t more)
{
    *sum = *sum == REQUEST_TIME_UNKNOWN || more >= REQUEST_TIME_UNKNOWN - *sum
               ? REQUEST_TIME_UNKNOWN
               : *sum + more;
}

void request_times_add(struct request_times *sum, const struct request_times *more)
{
    assert(more->n_stages <= LIMIT_STAGES);
    if (!more->n_stages || (sum->n_stages && sum->n_stages != more->n_stages)) {
        sum->is_partial = true;
        return;
    }
    sum->n_stages = more->n_stages;
    for (uint32_t i = 0; i < more->n_stages; i++) {
        struct request_stage_time *to = &sum->stages[i];
        const struct request_stage_time *from = &more->stages[i];
        request_add_time(&to->compute_ns, from->compute_ns);
        request_add_time(&to->wait_ns, from->wait_ns);
        request_add_time(&to->link_ns, from->link_ns);
        to->link_bytes += from->link_bytes;
    }
    request_add_time(&sum->back_ns, more->back_ns);
}

bool request_times_know(const struct request_times *times)
{
    return times->n_stages && !times->is_partial;
}

static enum error_code request_check_tokens(const char *what, const int32_t *tokens, uint32_t n,
                                            uint32_t n_vocab, bool may_have_pictures,
                                            struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] >= PICTURE_TOKEN_FIRST && may_have_pictures)
            continue;
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
            return error_set(err, ERROR_INVALID,
                             "%s: token %d at position %u is outside the vocabulary of %u", what,
                             tokens[i], i, n_vocab);
    }
    return ERROR_NONE;
}

enum error_code request_check_counts(const struct request *request, struct error *err)
{
    if (!request->n_prompt)
        return error_set(err, ERROR_INVALID, "the prompt is empty");
    if (request->n_prompt > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "the prompt has %u tokens; the limit is %d",
                         request->n_prompt, LIMIT_CONTEXT);
    if (request->n_stop_tokens > LIMIT_STOP_TOKENS)
        return error_set(err, ERROR_INVALID, "%u stop tokens; the limit is %d",
                         request->n_stop_tokens, LIMIT_STOP_TOKENS);
    if (request->n_answered >= request->n_prompt)
        return error_set(err, ERROR_INVALID, "%u tokens of the prompt's %u are the answer's",
                         request->n_answered, request->n_prompt);
    if (request->sampler.n_biases > LIMIT_LOGIT_BIAS)
        return error_set(err, ERROR_INVALID, "logit_bias: %u tokens are more than %d",
                         request->sampler.n_biases, LIMIT_LOGIT_BIAS);
    if (request->n_top_logprobs > LIMIT_TOP_LOGPROBS)
        return error_set(err, ERROR_INVALID, "%u top logprobs; the limit is %d",
                         request->n_top_logprobs, LIMIT_TOP_LOGPROBS);
    return ERROR_NONE;
}

enum error_code request_check(const struct request *request, uint32_t n_vocab, struct error *err)
{
    enum error_code code = request_check_counts(request, err);
    if (!code && request->embeddings && request->n_predict)
        code = error_set(err, ERROR_INVALID,
                         "embeddings generate no tokens: n_predict must be 0, not %u",
                         request->n_predict);
    if (!code && request->embeddings && request->want_all_logits)
        code =
            error_set(err, ERROR_INVALID, "a request can ask for embeddings or logits, not both");
    if (!code && request->embeddings && request->n_pictures)
        code = error_set(err, ERROR_UNSUPPORTED, "embeddings are of texts, without pictures");
    if (!code && request->n_predict) /* else the sampler is not asked */
        code = sampler_check(&request->sampler, n_vocab, err);
    if (!code)
        code =
            request_check_tokens("prompt", request->prompt, request->n_prompt, n_vocab, true, err);
    if (!code)
        code = request_pictures_check(request->pictures, request->n_pictures, request->prompt,
                                      request->n_prompt, err);
    if (!code)
        code = request_check_tokens("stop tokens", request->stop_tokens, request->n_stop_tokens,
                                    LIMIT_VOCAB, false, err);
    return code;
}

enum error_code request_check_room(const struct request *request, uint32_t context,
                                   struct error *err)
{
    if (!request->handlers.done)
        return error_set(err, ERROR_INVALID, "a request needs a `done` handler");
    if ((request->embeddings || request->want_all_logits) && !request->handlers.row)
        return error_set(err, ERROR_INVALID, "a request for rows needs a `row` handler");
    if (request->n_prompt > context)
        return error_set(err, ERROR_INVALID, "the prompt has %u tokens, but the context has %u",
                         request->n_prompt, context);
    if (request->n_predict && request->n_prompt == context)
        return error_set(
            err, ERROR_INVALID,
            "the prompt has %u tokens, which leaves no room for an answer in the context of %u",
            request->n_prompt, context);
    return ERROR_NONE;
}

/* `count` elements, and room for `more`; NULL and success when there is nothing. */
static bool request_copy_array(const void *from, size_t count, size_t more, size_t size, void *out)
{
    void *copy = NULL;
    if (count + more) {
        copy = mem_new_array(count + more, size);
        if (!copy)
            return false;
    }
    if (count)
        memcpy(copy, from, count * size);
    memcpy(out, &copy, sizeof copy);
    return true;
}

enum error_code request_copy(const struct request *request, uint32_t more, struct request *out,
                             struct error *err)
{
    *out = *request;
    out->prompt = out->stop_tokens = NULL;
    out->sampler.biases = NULL;
    out->pictures = NULL;
    constraint_keep(out->constraint);
    if (request_copy_array(request->prompt, request->n_prompt, more, sizeof *request->prompt,
                           &out->prompt) &&
        request_copy_array(request->stop_tokens, request->n_stop_tokens, 0,
                           sizeof *request->stop_tokens, &out->stop_tokens) &&
        request_copy_array(request->sampler.biases, request->sampler.n_biases, 0,
                           sizeof *request->sampler.biases, &out->sampler.biases) &&
        request_copy_array(request->pictures, request->n_pictures, 0, sizeof *request->pictures,
                           &out->pictures)) {
        for (uint32_t i = 0; i < out->n_pictures; i++)
            prompt_picture_keep(out->pictures[i].picture);
        return ERROR_NONE;
    }
    request_copy_deinit(out);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for a request of %u tokens",
                     request->n_prompt);
}

void request_copy_deinit(struct request *copy)
{
    mem_free((void *)copy->prompt);
    mem_free((void *)copy->stop_tokens);
    mem_free((void *)copy->sampler.biases);
    for (uint32_t i = 0; copy->pictures && i < copy->n_pictures; i++)
        prompt_picture_release(copy->pictures[i].picture);
    mem_free((void *)copy->pictures);
    constraint_release(copy->constraint);
    *copy = (struct request){0};
}
