#include "cli/run_defaults.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

void run_defaults_deinit(struct run_defaults *defaults)
{
    mem_free(defaults->system);
    *defaults = (struct run_defaults){0};
}

/* What is used, and what is not: each a list for people. */
struct run_said {
    struct buffer used, unused;
};

static void run_say(struct buffer *list, const char *name, yyjson_val *value)
{
    char *text = yyjson_val_write(value, YYJSON_WRITE_NOFLAG, NULL);
    buffer_printf(list, "%s%s %.80s", list->size ? ", " : "", name, text ? text : "?");
    free(text);
}

#define RUN_VALUE_FLOAT(value) (float)yyjson_get_num(value)
#define RUN_VALUE_U32(value) (uint32_t)yyjson_get_uint(value)
#define RUN_VALUE_U64(value) yyjson_get_uint(value)
#define RUN_TAKE(TYPE, field, ...)                                                                 \
    value = yyjson_obj_get(root, #field);                                                          \
    if (value && !given->field) {                                                                  \
        struct sampler_params with = *params;                                                      \
        struct error ignored;                                                                      \
        with.field = RUN_VALUE_##TYPE(value);                                                      \
        const bool fits = sampler_check(&with, LIMIT_VOCAB, &ignored) == ERROR_NONE;               \
        *params = fits ? with : *params;                                                           \
        run_say(fits ? &said->used : &said->unused, #field, value);                                \
    }

static void run_take_sampling(yyjson_val *root, const struct run_sampler_given *given,
                              struct sampler_params *params, struct run_said *said)
{
    yyjson_val *value;
    SAMPLER_FIELDS(RUN_TAKE)
}

static enum error_code run_take_stop(struct session *session, yyjson_val *value,
                                     struct run_said *said, struct error *err)
{
    struct token_list tokens = {0};
    enum error_code code = ERROR_NONE;
    if (session->tokenizer)
        code = tokenizer_encode(session->tokenizer, yyjson_get_str(value), yyjson_get_len(value),
                                TOKENIZE_PARSE_SPECIAL, &tokens, err);
    const bool is_one = !code && tokens.count == 1;
    if (is_one)
        code = token_list_push(&session->stop_tokens, tokens.ids[0], err);
    run_say(is_one ? &said->used : &said->unused, "stop", value);
    token_list_deinit(&tokens);
    return code;
}

static enum error_code run_take_stops(struct session *session, yyjson_val *value,
                                      struct run_said *said, struct error *err)
{
    enum error_code code = ERROR_NONE;
    yyjson_val *element;
    size_t i, n;
    if (yyjson_is_str(value))
        return run_take_stop(session, value, said, err);
    yyjson_arr_foreach(value, i, n, element)
    {
        if (!code)
            code = run_take_stop(session, element, said, err);
    }
    return code;
}

/* The plan has taken it, as far as it fits. */
static void run_say_context(const struct session *session, yyjson_val *value, struct run_said *said)
{
    run_say(&said->used, "num_ctx", value);
    if (session->context && session->context != yyjson_get_uint(value))
        buffer_printf(&said->used, " (a context of %u fits)", session->context);
}

static enum error_code run_take_all(struct session *session, yyjson_val *root,
                                    const struct run_given *given, struct reply_options *reply,
                                    struct run_defaults *out, struct run_said *said,
                                    struct error *err)
{
    yyjson_val *predict = yyjson_obj_get(root, "max_tokens"),
               *context = yyjson_obj_get(root, "num_ctx"), *system = yyjson_obj_get(root, "system");
    run_take_sampling(root, given->sampling, &reply->sampler, said);
    if (yyjson_get_uint(predict) && yyjson_get_uint(predict) <= LIMIT_CONTEXT &&
        !given->n_predict) {
        reply->n_predict = (uint32_t)yyjson_get_uint(predict);
        run_say(&said->used, "num_predict", predict);
    }
    if (context && !given->context)
        run_say_context(session, context, said);
    if (yyjson_is_str(system) && !given->system) {
        out->system = mem_copy_text(yyjson_get_str(system), yyjson_get_len(system));
        if (!out->system)
            return error_set(err, ERROR_NO_MEMORY, "not enough memory for a system message");
        run_say(&said->used, "system", system);
    }
    return run_take_stops(session, yyjson_obj_get(root, "stop"), said, err);
}

enum error_code run_defaults_take(struct session *session, const struct run_given *given,
                                  struct reply_options *reply, struct run_defaults *out,
                                  struct error *err)
{
    const struct library_defaults *defaults = &session->defaults;
    struct run_said said = {0};
    yyjson_doc *doc = defaults->json.size
                          ? yyjson_read(defaults->json.data, strlen(defaults->json.data), 0)
                          : NULL;
    const enum error_code code =
        run_take_all(session, yyjson_doc_get_root(doc), given, reply, out, &said, err);
    if (said.unused.size || defaults->unused[0])
        buffer_printf(&said.used, "%s%s%s%s%s", said.used.size ? "; " : "", "without ",
                      said.unused.size ? said.unused.data : "",
                      said.unused.size && defaults->unused[0] ? ", " : "", defaults->unused);
    if (!code && said.used.size && !said.used.failed && !said.unused.failed)
        fprintf(stderr,
                "as the model's maker wants it: %s (options such as --temp, --system and -c go "
                "before; --no-defaults)\n",
                said.used.data);
    buffer_deinit(&said.used);
    buffer_deinit(&said.unused);
    yyjson_doc_free(doc);
    return code;
}
