#include "pipeline/sequence.h"

#include "base/limits.h"
#include "base/mem.h"
#include "pipeline/request_copy.h"

static enum error_code check_prompt(const struct request *request, uint32_t n_vocab,
                                    struct error *err)
{
    if (!request->n_prompt)
        return error_set(err, ERROR_INVALID, "the prompt is empty");
    for (uint32_t i = 0; i < request->n_prompt; i++) {
        int32_t token = request->prompt[i];
        if (token < 0 || (uint32_t)token >= n_vocab)
            return error_set(err, ERROR_INVALID,
                             "token %d at position %u is outside the vocabulary of %u", token, i,
                             n_vocab);
    }
    return ERROR_NONE;
}

static enum error_code check(const struct request *request, uint32_t context, uint32_t n_vocab,
                             struct error *err)
{
    enum error_code code = request_check_room(request, context, err);
    if (code)
        return code;
    if (request->embeddings && request->n_predict)
        return error_set(err, ERROR_INVALID,
                         "embeddings generate no tokens: n_predict must be 0, not %u",
                         request->n_predict);
    if (request->embeddings && request->want_all_logits)
        return error_set(err, ERROR_INVALID, "a request gives embeddings or logits, not both");
    if (request->n_top_logprobs > LIMIT_TOP_LOGPROBS)
        return error_set(err, ERROR_INVALID, "%u top logprobs are asked for; at most %d are given",
                         request->n_top_logprobs, LIMIT_TOP_LOGPROBS);
    code = check_prompt(request, n_vocab, err);
    if (!code && request->n_predict)
        code = sampler_check(&request->sampler, n_vocab, err);
    return code;
}

enum error_code sequence_new(const struct request *request, uint32_t context, uint32_t n_vocab,
                             struct sequence **out, struct error *err)
{
    enum error_code code = check(request, context, n_vocab, err);
    if (code)
        return code;
    struct sequence *sequence = mem_new(sizeof *sequence);
    if (!sequence)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request of %u tokens",
                         request->n_prompt);
    sequence->slot = SLOT_NONE;
    code = request_copy(request, 0, &sequence->request, err);
    if (code)
        mem_free(sequence);
    else
        *out = sequence;
    return code;
}

void sequence_free(struct sequence *sequence)
{
    if (!sequence)
        return;
    request_copy_deinit(&sequence->request);
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
