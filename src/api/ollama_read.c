/* A request of Ollama's becomes a chat's: https://github.com/ollama/ollama/blob/main/docs/api.md */
#include "api/ollama.h"

#include "api/chat_pictures.h"
#include "api/json_out.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

static yyjson_val *ollama_member(yyjson_val *object, const char *name)
{
    yyjson_val *value = yyjson_obj_get(object, name);
    return yyjson_is_null(value) ? NULL : value;
}

/* "name:latest" is what Ollama calls "name". */
bool ollama_write_model(yyjson_val *root, struct buffer *out, struct api_error *err)
{
    static const char latest[] = ":latest";
    const size_t tail = sizeof latest - 1;
    static const struct dialect_field types[] = {{"name", DIALECT_TEXT}, {0}};
    yyjson_val *model = ollama_member(root, "model");
    if (!dialect_check_types(root, "", types, err))
        return false;
    model = model ? model : ollama_member(root, "name");
    if (!yyjson_is_str(model))
        return api_error_field(err, "model", "you must provide 'model'");
    const char *name = yyjson_get_str(model);
    size_t size = yyjson_get_len(model);
    if (size > tail && memcmp(name + size - tail, latest, tail) == 0)
        size -= tail;
    dialect_member(out, "model");
    json_out_string(out, name, size);
    return true;
}

/* What a model's options are called here; NULL: it says how to run a model, which the node knows
 * better. */
static const char *const ollama_options[][2] = {
    {"temperature", "temperature"},
    {"top_p", "top_p"},
    {"top_k", "top_k"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"repeat_penalty", "repeat_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"num_predict", "max_tokens"},
    {"num_ctx", NULL},
    {"num_keep", NULL},
    {"num_batch", NULL},
    {"num_gpu", NULL},
    {"main_gpu", NULL},
    {"num_thread", NULL},
    {"use_mmap", NULL},
    {"use_mlock", NULL},
    {"low_vram", NULL},
    {"numa", NULL},
};

static bool ollama_option(yyjson_val *key, yyjson_val *value, struct buffer *out,
                          struct api_error *err)
{
    for (size_t i = 0; i < sizeof ollama_options / sizeof *ollama_options; i++) {
        const char *const *option = ollama_options[i];
        if (!yyjson_equals_str(key, option[0]))
            continue;
        const bool is_endless = option[1] && strcmp(option[1], "max_tokens") == 0 &&
                                yyjson_is_sint(value) && yyjson_get_sint(value) < 0;
        if (option[1] && !is_endless)
            dialect_copy(out, option[1], value);
        return true;
    }
    char path[128];
    snprintf(path, sizeof path, "options.%s", yyjson_get_str(key));
    return api_error_field(err, path, "'%s' is not supported", path);
}

static bool ollama_think(yyjson_val *think, struct buffer *out, struct api_error *err)
{
    if (!think)
        return true;
    dialect_member(out, "reasoning_effort");
    if (yyjson_is_bool(think))
        buffer_text(out, yyjson_get_bool(think) ? "\"medium\"" : "\"none\"");
    else if (yyjson_is_str(think))
        json_out_text(out, yyjson_get_str(think));
    else
        return api_error_field(err, "think", "'think' must be true, false, low, medium or high");
    return true;
}

/* "json", or a schema. */
static bool ollama_format(yyjson_val *format, struct buffer *out, struct api_error *err)
{
    if (!format || yyjson_equals_str(format, ""))
        return true;
    if (!yyjson_is_obj(format) && !yyjson_equals_str(format, "json"))
        return api_error_field(err, "format", "'format' must be \"json\" or a JSON schema");
    dialect_member(out, "response_format");
    if (yyjson_is_str(format)) {
        buffer_text(out, "{\"type\":\"json_object\"}");
        return true;
    }
    buffer_text(out, "{\"type\":\"json_schema\",\"json_schema\":{");
    dialect_copy(out, "schema", format);
    buffer_text(out, "}}");
    return true;
}

/* All but what is asked. */
static bool ollama_settings(yyjson_val *root, struct buffer *out, struct api_error *err)
{
    size_t index, max;
    yyjson_val *key, *value, *options = ollama_member(root, "options");
    yyjson_val *stream = ollama_member(root, "stream"), *format = ollama_member(root, "format");
    static const struct dialect_field types[] = {
        {"stream", DIALECT_FLAG},  {"raw", DIALECT_FLAG},    {"system", DIALECT_TEXT},
        {"images", DIALECT_ARRAY}, {"suffix", DIALECT_TEXT}, {0},
    };
    if (!dialect_check_types(root, "", types, err) || !ollama_format(format, out, err))
        return false;
    if (options && !yyjson_is_obj(options))
        return api_error_field(err, "options", "'options' must be an object");
    yyjson_obj_foreach(options, index, max, key, value)
    {
        if (!yyjson_is_null(value) && !ollama_option(key, value, out, err))
            return false;
    }
    dialect_member(out, "stream");
    buffer_text(out, yyjson_is_false(stream) ? "false" : "true");
    return ollama_write_model(root, out, err) &&
           ollama_think(ollama_member(root, "think"), out, err);
}

/* ---- messages ---- */

/* Ollama's calls have no ids; results belong to calls in their order. */
struct ollama_ids {
    uint32_t n_calls, n_results;
};

static bool ollama_calls(yyjson_val *calls, struct ollama_ids *ids, struct buffer *out,
                         struct api_error *err)
{
    size_t index, max;
    yyjson_val *call;
    dialect_member(out, "tool_calls");
    buffer_text(out, "[");
    yyjson_arr_foreach(calls, index, max, call)
    {
        yyjson_val *function = yyjson_obj_get(call, "function");
        yyjson_val *arguments = yyjson_obj_get(function, "arguments");
        const char *name = yyjson_get_str(yyjson_obj_get(function, "name"));
        if (!name || (arguments && !yyjson_is_obj(arguments)))
            return api_error_field(err, "messages",
                                   "'tool_calls[%zu]' must be {\"function\": {\"name\", "
                                   "\"arguments\": an object}}",
                                   index);
        buffer_printf(out, "%s{\"id\":\"call_%u\",\"type\":\"function\",\"function\":{\"name\":",
                      index ? "," : "", ids->n_calls++);
        json_out_text(out, name);
        buffer_text(out, ",\"arguments\":");
        if (arguments)
            dialect_json_text(out, arguments);
        else
            buffer_text(out, "\"\"");
        buffer_text(out, "}}");
    }
    buffer_text(out, "]");
    return true;
}

/* Their media types are not told; what they are is seen when they are decoded. Where there is no
 * text `text` is NULL. */
static bool ollama_content(yyjson_val *text, yyjson_val *images, const char *path,
                           struct buffer *out, struct api_error *err)
{
    struct chat_content said = {0};
    size_t index, max;
    yyjson_val *image;
    bool ok = true;
    yyjson_arr_foreach(images, index, max, image)
    {
        ok = ok && (yyjson_is_str(image) ||
                    api_error_field(err, path, "'%s[%zu]' must be a picture's bytes in base64",
                                    path, index));
        if (ok)
            chat_content_picture(&said, "data:image/any;base64,", image);
    }
    chat_content_text(&said, text);
    dialect_member(out, "content");
    chat_content_write(&said, out);
    chat_content_deinit(&said);
    return ok;
}

static bool ollama_message(size_t number, yyjson_val *message, struct ollama_ids *ids,
                           struct buffer *out, struct api_error *err)
{
    static const char *const known[] = {"role",       "content",   "thinking",     "images",
                                        "tool_calls", "tool_name", "tool_call_id", NULL};
    static const struct dialect_field types[] = {{"images", DIALECT_ARRAY},
                                                 {"tool_calls", DIALECT_ARRAY},
                                                 {"tool_name", DIALECT_TEXT},
                                                 {"tool_call_id", DIALECT_TEXT},
                                                 {0}};
    char path[64], at[64];
    snprintf(path, sizeof path, "messages[%zu].", number);
    snprintf(at, sizeof at, "messages[%zu].images", number);
    yyjson_val *calls = ollama_member(message, "tool_calls");
    yyjson_val *images = ollama_member(message, "images");
    yyjson_val *content = yyjson_obj_get(message, "content");
    if (!yyjson_is_obj(message))
        return api_error_field(err, "messages", "'messages[%zu]' must be an object", number);
    if (!dialect_check(message, path, known, err) ||
        !dialect_check_types(message, path, types, err))
        return false;
    buffer_text(out, number ? ",{" : "{");
    dialect_copy(out, "role", yyjson_obj_get(message, "role"));
    if (!yyjson_arr_size(images))
        dialect_copy(out, "content", content);
    else if (!ollama_content(content, images, at, out, err))
        return false;
    dialect_copy(out, "reasoning_content", ollama_member(message, "thinking"));
    if (yyjson_equals_str(yyjson_obj_get(message, "role"), "tool")) {
        dialect_copy(out, "name", ollama_member(message, "tool_name"));
        dialect_member(out, "tool_call_id");
        buffer_printf(out, "\"call_%u\"", ids->n_results++);
    }
    if (yyjson_arr_size(calls) && !ollama_calls(calls, ids, out, err))
        return false;
    buffer_text(out, "}");
    return true;
}

static bool ollama_messages(yyjson_val *messages, struct buffer *out, struct api_error *err)
{
    struct ollama_ids ids = {0};
    size_t index, max;
    yyjson_val *message;
    if (!yyjson_is_arr(messages) || !yyjson_arr_size(messages))
        return api_error_field(err, "messages", "'messages' must be an array with a message");
    dialect_member(out, "messages");
    buffer_text(out, "[");
    yyjson_arr_foreach(messages, index, max, message)
    {
        if (!ollama_message(index, message, &ids, out, err))
            return false;
    }
    buffer_text(out, "]");
    return true;
}

static bool ollama_write_chat(yyjson_val *root, struct buffer *out, struct api_error *err)
{
    static const char *const known[] = {"model", "messages", "tools",      "stream", "format",
                                        "think", "options",  "keep_alive", NULL};
    if (!dialect_check(root, "", known, err) || !ollama_settings(root, out, err))
        return false;
    dialect_copy(out, "tools", ollama_member(root, "tools"));
    return ollama_messages(ollama_member(root, "messages"), out, err);
}

bool ollama_read_chat(struct completion *completion, const char *body, size_t size,
                      struct buffer *out, struct api_error *err)
{
    (void)completion;
    yyjson_doc *doc = dialect_open(body, size, err);
    if (!doc)
        return false;
    buffer_text(out, "{");
    const bool ok = ollama_write_chat(yyjson_doc_get_root(doc), out, err);
    buffer_text(out, "}");
    yyjson_doc_free(doc);
    return ok;
}

static bool ollama_write_generate(struct completion *completion, yyjson_val *root,
                                  struct buffer *out, struct api_error *err)
{
    static const char *const known[] = {"model",  "name",   "prompt", "system",  "raw",
                                        "stream", "format", "think",  "options", "keep_alive",
                                        "images", "suffix", NULL};
    yyjson_val *system = ollama_member(root, "system"), *prompt = ollama_member(root, "prompt");
    yyjson_val *images = ollama_member(root, "images");
    const bool has_system = yyjson_get_len(system);
    if (!dialect_check(root, "", known, err) || !ollama_settings(root, out, err))
        return false;
    if (!yyjson_is_str(prompt))
        return api_error_field(err, "prompt", "you must provide 'prompt'");
    if (yyjson_is_true(yyjson_obj_get(root, "raw")) ||
        yyjson_get_len(ollama_member(root, "suffix"))) {
        if (yyjson_arr_size(images))
            return api_error_field(err, "images",
                                   "'images' belong to a prompt that a template renders: leave "
                                   "'raw' and 'suffix' out");
        completion->kind = GENERATION_COMPLETION;
        dialect_copy(out, "prompt", prompt);
        dialect_copy(out, "suffix", ollama_member(root, "suffix"));
        return true;
    }
    dialect_member(out, "messages");
    buffer_text(out, has_system ? "[{\"role\":\"system\"" : "[");
    if (has_system)
        dialect_copy(out, "content", system);
    buffer_text(out, has_system ? "},{\"role\":\"user\"" : "{\"role\":\"user\"");
    const bool ok = ollama_content(prompt, images, "images", out, err);
    buffer_text(out, "}]");
    return ok;
}

bool ollama_read_generate(struct completion *completion, const char *body, size_t size,
                          struct buffer *out, struct api_error *err)
{
    yyjson_doc *doc = dialect_open(body, size, err);
    if (!doc)
        return false;
    buffer_text(out, "{");
    const bool ok = ollama_write_generate(completion, yyjson_doc_get_root(doc), out, err);
    buffer_text(out, "}");
    yyjson_doc_free(doc);
    return ok;
}
