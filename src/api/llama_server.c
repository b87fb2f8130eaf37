/* The interface of llama.cpp's own server, where it differs from OpenAI's: /completion, /infill,
 * /props, /slots and /apply-template. A request need not name the model where there is one alone.
 * https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md */
#include "api/llama_server.h"

#include "api/exchange.h"
#include "api/json_out.h"
#include "base/version.h"
#include "request/generator.h"

#include <inttypes.h>
#include <string.h>
#include <yyjson.h>

/* What its fields are called here; NULL: it changes no answer. */
static const char *const llama_fields[][2] = {
    {"model", "model"},
    {"prompt", "prompt"},
    {"n_predict", "max_tokens"},
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"repeat_penalty", "repeat_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"stream", "stream"},
    {"cache_prompt", NULL},
    {"id_slot", NULL},
    {"timings_per_token", NULL},
};

/* -1 stands for "none given" in some of them. */
static bool llama_is_open(yyjson_val *key, yyjson_val *value)
{
    return yyjson_is_sint(value) && yyjson_get_sint(value) == -1 &&
           (yyjson_equals_str(key, "n_predict") || yyjson_equals_str(key, "seed"));
}

/* Several have several answers, which this interface has no shape for here. */
static bool llama_is_one(yyjson_val *prompt)
{
    return !yyjson_is_arr(prompt) || yyjson_is_num(yyjson_arr_get_first(prompt));
}

static bool llama_field(yyjson_val *key, yyjson_val *value, struct buffer *out,
                        struct api_error *err)
{
    for (size_t i = 0; i < sizeof llama_fields / sizeof *llama_fields; i++) {
        if (!yyjson_equals_str(key, llama_fields[i][0]))
            continue;
        if (yyjson_equals_str(key, "prompt") && !llama_is_one(value))
            return api_error_field(err, "prompt", "'prompt' must be one text, or its token ids");
        if (llama_fields[i][1] && !llama_is_open(key, value))
            dialect_copy(out, llama_fields[i][1], value);
        return true;
    }
    return api_error_field(err, yyjson_get_str(key), "'%s' is not supported", yyjson_get_str(key));
}

/* A completion's length is open here, and 16 tokens in OpenAI's interface. */
static void llama_defaults(yyjson_val *root, struct buffer *out)
{
    yyjson_val *length = yyjson_obj_get(root, "n_predict");
    if (!yyjson_obj_get(root, "model")) {
        dialect_member(out, "model");
        buffer_text(out, "\"\"");
    }
    if (!length || (yyjson_is_sint(length) && yyjson_get_sint(length) == -1)) {
        dialect_member(out, "max_tokens");
        buffer_printf(out, "%d", INT32_MAX);
    }
}

bool llama_read(struct completion *completion, const char *body, size_t size, struct buffer *out,
                struct api_error *err)
{
    (void)completion;
    size_t index, max;
    yyjson_val *key, *value;
    yyjson_doc *doc = dialect_open(body, size, err);
    yyjson_val *root = yyjson_doc_get_root(doc);
    bool ok = doc != NULL;
    buffer_text(out, "{");
    yyjson_obj_foreach(root, index, max, key, value)
    {
        ok = ok && llama_field(key, value, out, err);
    }
    if (ok)
        llama_defaults(root, out);
    buffer_text(out, "}");
    yyjson_doc_free(doc);
    return ok;
}

/* {"input_prefix", "input_suffix", "prompt"}: the prompt goes on from the prefix. Other files
 * (input_extra) are not shown to the model. */
static bool llama_write_infill(yyjson_val *root, struct buffer *out, struct api_error *err)
{
    static const struct dialect_field types[] = {{"input_prefix", DIALECT_TEXT},
                                                 {"input_suffix", DIALECT_TEXT},
                                                 {"prompt", DIALECT_TEXT},
                                                 {"input_extra", DIALECT_ARRAY},
                                                 {0}};
    static const char *const before[] = {"input_prefix", "prompt"};
    struct buffer prefix = {0};
    if (!dialect_check_types(root, "", types, err))
        return false;
    if (yyjson_arr_size(yyjson_obj_get(root, "input_extra")))
        return api_error_field(err, "input_extra", "'input_extra' is not supported");
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        yyjson_val *text = yyjson_obj_get(root, before[i]);
        buffer_append(&prefix, yyjson_get_str(text), yyjson_get_len(text));
    }
    dialect_member(out, "prompt");
    json_out_string(out, prefix.data ? prefix.data : "", prefix.size);
    dialect_copy(out, "suffix", yyjson_obj_get(root, "input_suffix"));
    out->failed |= prefix.failed;
    buffer_deinit(&prefix);
    return true;
}

static bool llama_is_of_infill(yyjson_val *key)
{
    return yyjson_equals_str(key, "input_prefix") || yyjson_equals_str(key, "input_suffix") ||
           yyjson_equals_str(key, "input_extra") || yyjson_equals_str(key, "prompt");
}

bool llama_read_infill(struct completion *completion, const char *body, size_t size,
                       struct buffer *out, struct api_error *err)
{
    size_t index, max;
    yyjson_val *key, *value;
    yyjson_doc *doc = dialect_open(body, size, err);
    yyjson_val *root = yyjson_doc_get_root(doc);
    completion->fills_in = true;
    buffer_text(out, "{");
    bool ok = doc && llama_write_infill(root, out, err);
    yyjson_obj_foreach(root, index, max, key, value)
    {
        ok = ok && (llama_is_of_infill(key) || llama_field(key, value, out, err));
    }
    if (ok)
        llama_defaults(root, out);
    buffer_text(out, "}");
    yyjson_doc_free(doc);
    return ok;
}

/* A chat that is only rendered. */
static bool llama_read_messages(struct completion *completion, const char *body, size_t size,
                                struct buffer *out, struct api_error *err)
{
    static const char *const known[] = {"model", "messages", "tools", "chat_template_kwargs", NULL};
    (void)completion;
    yyjson_doc *doc = dialect_open(body, size, err);
    yyjson_val *root = yyjson_doc_get_root(doc);
    const bool ok = doc && dialect_check(root, "", known, err);
    buffer_text(out, "{");
    for (size_t i = 0; ok && known[i]; i++)
        dialect_copy(out, known[i], yyjson_obj_get(root, known[i]));
    if (!yyjson_obj_get(root, "model")) {
        dialect_member(out, "model");
        buffer_text(out, "\"\"");
    }
    buffer_text(out, "}");
    yyjson_doc_free(doc);
    return ok;
}

/* ---- answers ---- */

static void llama_part(struct completion_choice *choice, const struct response_choice *shown)
{
    struct buffer *out = &choice->completion->json;
    buffer_clear(out);
    buffer_text(out, "{\"index\":0,\"stop\":false,\"content\":");
    json_out_string(out, shown->text.data, shown->text.size);
    buffer_text(out, "}");
    dialect_send(choice->completion, NULL);
}

static void llama_write_end(const struct completion *completion, struct text content,
                            const struct response_usage *usage, struct buffer *out)
{
    const struct completion_choice *choice = &completion->choices[0];
    const struct stop_matcher *stop = &choice->text.stop;
    const char *type = stop->stopped                                  ? "word"
                       : strcmp(choice->finish_reason, "length") == 0 ? "limit"
                                                                      : "eos";
    buffer_text(out, "{\"index\":0,\"stop\":true,\"content\":");
    json_out_string(out, content.data ? content.data : "", content.size);
    buffer_printf(out, ",\"stop_type\":\"%s\",\"stopping_word\":", type);
    if (stop->stopped && stop->met)
        json_out_string(out, stop->met->data, stop->met->size);
    else
        buffer_text(out, "\"\"");
    buffer_text(out, ",\"model\":");
    json_out_text(out, completion->use.model->id);
    buffer_printf(out,
                  ",\"tokens_predicted\":%" PRIu64 ",\"tokens_evaluated\":%" PRIu64
                  ",\"tokens_cached\":%" PRIu64 ",\"truncated\":false",
                  usage->completion_tokens, usage->prompt_tokens, usage->cached_tokens);
    response_write_drafts(usage, out);
    buffer_text(out, "}");
}

static void llama_end(struct completion *completion, const struct response_usage *usage)
{
    buffer_clear(&completion->json);
    llama_write_end(completion, (struct text){"", 0}, usage, &completion->json);
    dialect_send(completion, NULL);
}

static void llama_whole(struct completion *completion, const struct response_choice *choice,
                        const struct response_usage *usage, struct buffer *out)
{
    llama_write_end(completion, choice->text, usage, out);
}

static void llama_write_prompt(const struct completion *completion, struct buffer *out)
{
    buffer_text(out, "{\"prompt\":");
    json_out_string(out, completion->rendered.data ? completion->rendered.data : "",
                    completion->rendered.size);
    buffer_text(out, "}");
}

static const struct dialect llama_completion = {
    .id = "cmpl", .read = llama_read, .part = llama_part, .end = llama_end, .whole = llama_whole};
static const struct dialect llama_infill = {.id = "cmpl",
                                            .read = llama_read_infill,
                                            .part = llama_part,
                                            .end = llama_end,
                                            .whole = llama_whole};
static const struct dialect llama_template = {
    .id = "prompt", .read = llama_read_messages, .prepared = llama_write_prompt};

void llama_completion_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_COMPLETION, &llama_completion);
}

void llama_infill_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_COMPLETION, &llama_infill);
}

void llama_template_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_CHAT, &llama_template);
}

/* ---- the server ---- */

/* Of the models that the client may see. */
struct llama_view {
    const struct access *access;
    const struct access_grant *grant;
    struct buffer model; /* the first one's name, as JSON */
    uint32_t n_slots, n_busy, n_context;
};

static void llama_view_add(void *arg, const struct api_listed *model)
{
    struct llama_view *view = arg;
    if (!access_may_list(view->access, view->grant, model->id))
        return;
    if (!view->model.size)
        json_out_text(&view->model, model->id);
    if (!model->generator)
        return;
    const struct driver_stats stats = generator_stats(model->generator);
    const uint32_t context = generator_context(model->generator);
    view->n_slots += stats.slots_total;
    view->n_busy += stats.slots_busy;
    view->n_context = view->n_context ? view->n_context : context;
}

static struct llama_view llama_view_of(const struct exchange *exchange)
{
    const struct api_server *server = exchange_server(exchange);
    struct llama_view view = {.access = server->access, .grant = exchange_grant(exchange)};
    server->models.list(server->models.self, llama_view_add, &view);
    return view;
}

void llama_props_handle(struct exchange *exchange)
{
    struct llama_view view = llama_view_of(exchange);
    struct buffer body = {0};
    buffer_printf(&body,
                  "{\"default_generation_settings\":{\"n_ctx\":%u},\"total_slots\":%u,"
                  "\"model_alias\":%s,\"build_info\":\"medley " MEDLEY_VERSION "\"}",
                  view.n_context, view.n_slots, view.model.size ? view.model.data : "null");
    buffer_deinit(&view.model);
    exchange_answer_json(exchange, &body);
}

/* Which slot does what is the driver's: as many as are busy are shown so. */
void llama_slots_handle(struct exchange *exchange)
{
    struct llama_view view = llama_view_of(exchange);
    struct buffer body = {0};
    buffer_text(&body, "[");
    for (uint32_t i = 0; i < view.n_slots; i++)
        buffer_printf(&body, "%s{\"id\":%u,\"n_ctx\":%u,\"is_processing\":%s}", i ? "," : "", i,
                      view.n_context, i < view.n_busy ? "true" : "false");
    buffer_text(&body, "]");
    buffer_deinit(&view.model);
    exchange_answer_json(exchange, &body);
}
