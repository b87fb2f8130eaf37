/* What the handlers ask the server about its models. */
#include "api/access.h"
#include "api/chat_pictures.h"
#include "api/completion.h"
#include "api/internal.h"
#include "model/infill.h"
#include "picture/sight.h"
#include "request/generator.h"

#include <stdio.h>
#include <string.h>

bool server_is_named(const struct text *text, const char *name)
{
    return name && strlen(name) == text->size && memcmp(name, text->data, text->size) == 0;
}

/* 'a', 'b' … as far as an error's text goes. */
struct names {
    const struct access *access;
    const struct access_grant *grant;
    const struct text *asked;
    char text[ERROR_TEXT_MAX];
    size_t size;
    uint32_t n_models;
    bool is_there; /* the one that was asked for */
};

static void add_name(void *arg, const struct api_listed *model)
{
    struct names *names = arg;
    if (!access_may_list(names->access, names->grant, model->id))
        return;
    size_t room = sizeof names->text - names->size;
    size_t size = (size_t)snprintf(names->text + names->size, room, "%s'%s'",
                                   names->n_models ? ", " : "", model->id);
    names->size += size < room ? size : room - 1;
    names->n_models++;
    names->is_there |= names->asked->data && (server_is_named(names->asked, model->id) ||
                                              server_is_named(names->asked, model->alias));
}

void server_no_such_model(const struct api_server *server, const struct access_grant *grant,
                          const struct text *name, const struct error *cause, struct api_error *err)
{
    static const char type[] = "invalid_request_error", code[] = "model_not_found";
    struct names names = {.access = server->access, .grant = grant, .asked = name};
    int shown = name->size < 200 ? (int)name->size : 200;
    server->models.list(server->models.self, add_name, &names);
    if (!name->data && names.n_models > 1)
        api_error_field(err, "model", "you must provide 'model', one of %s", names.text);
    else if (names.is_there || (!name->data && names.n_models))
        api_error_set(err, 404, type, code, "%s", cause->text);
    else if (!name->data)
        api_error_set(err, 404, type, code, "there is no model");
    else if (names.n_models == 1)
        api_error_set(err, 404, type, code, "The model '%.*s' does not exist; the loaded one is %s",
                      shown, name->data, names.text);
    else
        api_error_set(err, 404, type, code, "The model '%.*s' does not exist; there %s%s", shown,
                      name->data, names.n_models ? "are " : "is none", names.text);
    memcpy(err->param, "model", sizeof "model");
}

static enum error_code push_all(const int32_t *ids, uint32_t count, struct token_list *out,
                                struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < count && !code; i++)
        code = token_list_push(out, ids[i], err);
    return code;
}

/* Not TOKENIZE_ADD_SPECIAL: it would also end the prompt with EOS where a model wants that for
 * training text, and it would double a BOS that a chat template has written. */
static enum error_code encode_with_bos(const struct tokenizer *tokenizer, const struct text *text,
                                       struct token_list *out, struct error *err)
{
    enum error_code code =
        tokenizer_encode(tokenizer, text->data, text->size, TOKENIZE_PARSE_SPECIAL, out, err);
    int32_t bos = tokenizer_bos(tokenizer);
    if (code || bos == TOKEN_NONE || !tokenizer_adds_bos(tokenizer) ||
        (out->count && out->ids[0] == bos))
        return code;
    code = token_list_push(out, bos, err); /* at the end, then moved to the front */
    if (!code) {
        memmove(out->ids + 1, out->ids, (out->count - 1) * sizeof *out->ids);
        out->ids[0] = bos;
    }
    return code;
}

/* What does not fit is not tokenised to its end, so how long it is stays unknown. */
static bool server_encoded(const struct token_list *out, enum error_code code,
                           const struct error *cause, struct api_error *err)
{
    if (code == ERROR_INVALID && out->count == out->max)
        return api_error_set(err, 400, "invalid_request_error", "context_length_exceeded",
                             "the prompt has more tokens than this model's context here, which is "
                             "%zu tokens",
                             out->max);
    return code == ERROR_NONE || api_error_from(err, cause);
}

bool server_encode_prompt(const struct api_model *model, const struct prompt_input *prompt,
                          struct token_list *out, struct api_error *err)
{
    struct error cause;
    out->max = generator_context(model->generator);
    enum error_code code = prompt->tokens
                               ? push_all(prompt->tokens, prompt->n_tokens, out, &cause)
                               : encode_with_bos(model->tokenizer, &prompt->text, out, &cause);
    return server_encoded(out, code, &cause, err);
}

bool server_encode_shown(const struct api_model *model, const struct text *text,
                         struct completion_shown *shown, struct token_list *out,
                         struct api_error *err)
{
    struct error cause;
    const struct sight_text marked = {text->data, text->size, CHAT_PICTURE_MARK};
    out->max = generator_context(model->generator);
    const enum error_code code = sight_encode(model->sight, model->tokenizer, &marked,
                                              shown->pictures, shown->n, out, shown->at, &cause);
    if (code == ERROR_INVALID && out->count < out->max)
        return api_error_field(err, "messages", "%s", cause.text);
    return server_encoded(out, code, &cause, err);
}

bool server_encode_infill(const struct api_model *model, const struct prompt_input *prompt,
                          const struct text *suffix, struct token_list *out, struct api_error *err)
{
    const struct infill infill = {.prefix = prompt->text.data,
                                  .prefix_size = prompt->text.size,
                                  .suffix = suffix->data,
                                  .suffix_size = suffix->size};
    struct error cause;
    out->max = generator_context(model->generator);
    const enum error_code code = infill_encode(model->tokenizer, &infill, out, &cause);
    if (code == ERROR_UNSUPPORTED)
        return api_error_field(err, "suffix", "%s", cause.text);
    return server_encoded(out, code, &cause, err);
}
