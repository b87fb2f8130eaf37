/* What the handlers ask the server about its model. */
#include "api/internal.h"

#include <string.h>

static bool is_named(const struct text *text, const char *name)
{
    return name && strlen(name) == text->size && memcmp(name, text->data, text->size) == 0;
}

bool server_check_model(const struct api_server *server, const struct text *name, struct api_error *err)
{
    if (is_named(name, server->model.id) || is_named(name, server->model.alias))
        return true;
    int shown = name->size < 200 ? (int)name->size : 200;
    api_error_set(err, 404, "invalid_request_error", "model_not_found",
                  "The model '%.*s' does not exist; the one that is loaded is '%s'", shown, name->data,
                  server->model.id);
    memcpy(err->param, "model", sizeof "model");
    return false;
}

static enum error_code push_all(const int32_t *ids, uint32_t count, struct token_list *out, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < count && !code; i++)
        code = token_list_push(out, ids[i], err);
    return code;
}

/* Not TOKENIZE_ADD_SPECIAL: it would also end the prompt with EOS where a model wants that for
 * training text, and it would double a BOS that a chat template has written. */
enum error_code server_encode_prompt(const struct api_server *server, const struct prompt_input *prompt,
                                     struct token_list *out, struct error *err)
{
    const struct tokenizer *tokenizer = server->model.tokenizer;
    if (prompt->tokens)
        return push_all(prompt->tokens, prompt->n_tokens, out, err);
    enum error_code code =
        tokenizer_encode(tokenizer, prompt->text.data, prompt->text.size, TOKENIZE_PARSE_SPECIAL, out, err);
    int32_t bos = tokenizer_bos(tokenizer);
    if (code || bos == TOKEN_NONE || !tokenizer_adds_bos(tokenizer) || (out->count && out->ids[0] == bos))
        return code;
    code = token_list_push(out, bos, err); /* at the end, then moved to the front */
    if (!code) {
        memmove(out->ids + 1, out->ids, (out->count - 1) * sizeof *out->ids);
        out->ids[0] = bos;
    }
    return code;
}

bool server_check_length(const struct api_server *server, size_t n_prompt, struct api_error *err)
{
    uint32_t context = driver_options(server->model.driver)->context;
    if (n_prompt <= context)
        return true;
    return api_error_set(err, 400, "invalid_request_error", "context_length_exceeded",
                         "the prompt has %zu tokens; this model's context here is %u tokens", n_prompt, context);
}
