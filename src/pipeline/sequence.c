#include "pipeline/sequence.h"

#include "base/limits.h"
#include "base/mem.h"

#include <string.h>

static enum error_code check_prompt(const struct request *request, uint32_t context, uint32_t n_vocab,
                                    struct error *err)
{
    if (!request->n_prompt)
        return error_set(err, ERROR_INVALID, "the prompt is empty");
    if (request->n_prompt > context)
        return error_set(err, ERROR_INVALID, "the prompt has %u tokens, but the context holds %u", request->n_prompt,
                         context);
    if (request->n_predict && request->n_prompt == context)
        return error_set(err, ERROR_INVALID,
                         "the prompt has %u tokens, which leaves no room for an answer in the context of %u",
                         request->n_prompt, context);
    for (uint32_t i = 0; i < request->n_prompt; i++) {
        int32_t token = request->prompt[i];
        if (token < 0 || (uint32_t)token >= n_vocab)
            return error_set(err, ERROR_INVALID, "token %d at position %u is outside the vocabulary of %u", token, i,
                             n_vocab);
    }
    return ERROR_NONE;
}

static enum error_code check(const struct request *request, uint32_t context, uint32_t n_vocab, struct error *err)
{
    if (!request->handlers.done)
        return error_set(err, ERROR_INVALID, "a request needs a `done` handler");
    if (request->embeddings && request->n_predict)
        return error_set(err, ERROR_INVALID, "embeddings generate no tokens: n_predict must be 0, not %u",
                         request->n_predict);
    if (request->embeddings && request->want_all_logits)
        return error_set(err, ERROR_INVALID, "a request gives embeddings or logits, not both");
    if ((request->embeddings || request->want_all_logits) && !request->handlers.row)
        return error_set(err, ERROR_INVALID, "a request for rows needs a `row` handler");
    if (request->n_top_logprobs > LIMIT_TOP_LOGPROBS)
        return error_set(err, ERROR_INVALID, "%u top logprobs are asked for; at most %d are given",
                         request->n_top_logprobs, LIMIT_TOP_LOGPROBS);
    enum error_code code = check_prompt(request, context, n_vocab, err);
    if (!code && request->n_predict)
        code = sampler_check(&request->sampler, n_vocab, err);
    return code;
}

/* A copy of `count` elements; NULL and success when there are none. */
static bool copy_array(const void *from, size_t count, size_t size, void *out)
{
    void *copy = NULL;
    if (count) {
        copy = mem_new_array(count, size);
        if (!copy)
            return false;
        memcpy(copy, from, count * size);
    }
    memcpy(out, &copy, sizeof copy);
    return true;
}

enum error_code sequence_new(const struct request *request, uint32_t context, uint32_t n_vocab, struct sequence **out,
                             struct error *err)
{
    enum error_code code = check(request, context, n_vocab, err);
    if (code)
        return code;
    struct sequence *sequence = mem_new(sizeof *sequence);
    if (!sequence)
        goto no_memory;
    struct request *copy = &sequence->request;
    *copy = *request;
    copy->prompt = copy->stop_tokens = NULL;
    copy->sampler.biases = NULL;
    sequence->slot = SLOT_NONE;
    if (!copy_array(request->prompt, request->n_prompt, sizeof *request->prompt, &copy->prompt) ||
        !copy_array(request->stop_tokens, request->n_stop_tokens, sizeof *request->stop_tokens, &copy->stop_tokens) ||
        !copy_array(request->sampler.biases, request->sampler.n_biases, sizeof *request->sampler.biases,
                    &copy->sampler.biases))
        goto no_memory;
    *out = sequence;
    return ERROR_NONE;

no_memory:
    sequence_free(sequence);
    return error_set(err, ERROR_NO_MEMORY, "no memory for a request of %u tokens", request->n_prompt);
}

void sequence_free(struct sequence *sequence)
{
    if (!sequence)
        return;
    mem_free((void *)sequence->request.prompt);
    mem_free((void *)sequence->request.stop_tokens);
    mem_free((void *)sequence->request.sampler.biases);
    mem_free(sequence);
}

bool sequence_wants_rows(const struct sequence *sequence)
{
    return sequence->request.embeddings || sequence->request.want_all_logits;
}

bool sequence_is_stop(const struct sequence *sequence, int32_t token)
{
    for (uint32_t i = 0; i < sequence->request.n_stop_tokens; i++) {
        if (sequence->request.stop_tokens[i] == token)
            return true;
    }
    return false;
}
