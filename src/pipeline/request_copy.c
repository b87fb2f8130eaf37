#include "pipeline/request_copy.h"

#include "base/mem.h"

#include <string.h>

enum error_code request_check_room(const struct request *request, uint32_t context,
                                   struct error *err)
{
    if (!request->handlers.done)
        return error_set(err, ERROR_INVALID, "a request needs a `done` handler");
    if ((request->embeddings || request->want_all_logits) && !request->handlers.row)
        return error_set(err, ERROR_INVALID, "a request for rows needs a `row` handler");
    if (request->n_prompt > context)
        return error_set(err, ERROR_INVALID, "the prompt has %u tokens, but the context holds %u",
                         request->n_prompt, context);
    if (request->n_predict && request->n_prompt == context)
        return error_set(
            err, ERROR_INVALID,
            "the prompt has %u tokens, which leaves no room for an answer in the context of %u",
            request->n_prompt, context);
    return ERROR_NONE;
}

/* `count` elements, and room for `more`; NULL and success when there is nothing. */
static bool copy_array(const void *from, size_t count, size_t more, size_t size, void *out)
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
    if (copy_array(request->prompt, request->n_prompt, more, sizeof *request->prompt,
                   &out->prompt) &&
        copy_array(request->stop_tokens, request->n_stop_tokens, 0, sizeof *request->stop_tokens,
                   &out->stop_tokens) &&
        copy_array(request->sampler.biases, request->sampler.n_biases, 0,
                   sizeof *request->sampler.biases, &out->sampler.biases))
        return ERROR_NONE;
    request_copy_deinit(out);
    return error_set(err, ERROR_NO_MEMORY, "no memory for a request of %u tokens",
                     request->n_prompt);
}

void request_copy_deinit(struct request *copy)
{
    mem_free((void *)copy->prompt);
    mem_free((void *)copy->stop_tokens);
    mem_free((void *)copy->sampler.biases);
    *copy = (struct request){0};
}
