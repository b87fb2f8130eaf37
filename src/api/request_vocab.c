/* Token ids of a request against a model's vocabulary. */
#include "api/request_json.h"

#include <stdio.h>

static bool request_vocab_check_tokens(const char *name, const int32_t *ids, uint32_t count,
                                       uint32_t n_vocab, struct api_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if ((uint32_t)ids[i] >= n_vocab)
            return api_error_field(err, name, "'%s': element %u is not a token id from 0 to %u",
                                   name, i, n_vocab ? n_vocab - 1 : 0);
    }
    return true;
}

static bool check_prompts(const char *name, const struct prompt_input *prompts, uint32_t count,
                          uint32_t n_vocab, struct api_error *err)
{
    for (uint32_t i = 0; prompts && i < count; i++) { /* a chat has none */
        if (!request_vocab_check_tokens(name, prompts[i].tokens, prompts[i].n_tokens, n_vocab, err))
            return false;
    }
    return true;
}

bool generation_request_check(const struct generation_request *request, uint32_t n_vocab,
                              struct api_error *err)
{
    for (uint32_t i = 0; i < request->sampler.n_biases; i++) {
        int32_t id = request->biases[i].token;
        char path[32];
        snprintf(path, sizeof path, "logit_bias.%d", id);
        if ((uint32_t)id >= n_vocab)
            return api_error_field(err, path, "'%s': not a token id below %u", path, n_vocab);
    }
    return check_prompts("prompt", request->prompts, request->n_prompts, n_vocab, err);
}

bool embeddings_request_check(const struct embeddings_request *request, uint32_t n_vocab,
                              struct api_error *err)
{
    return check_prompts("input", request->inputs, request->n_inputs, n_vocab, err);
}

bool detokenize_request_check(const struct detokenize_request *request, uint32_t n_vocab,
                              struct api_error *err)
{
    return request_vocab_check_tokens("tokens", request->tokens, request->n_tokens, n_vocab, err);
}
