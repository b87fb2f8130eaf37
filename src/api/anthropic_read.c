/* A request for a message becomes a chat's: https://docs.anthropic.com/en/api/messages */
#include "api/anthropic.h"

#include "api/chat_pictures.h"
#include "api/json_out.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

static const char *anthropic_string(yyjson_val *object, const char *name)
{
    return yyjson_get_str(yyjson_obj_get(object, name));
}

/* Appends the texts of a text or of an array of text blocks. */
static bool anthropic_texts(yyjson_val *content, const char *path, struct buffer *text,
                            struct api_error *err)
{
    size_t index, max;
    yyjson_val *block;
    if (yyjson_is_str(content)) {
        buffer_append(text, yyjson_get_str(content), yyjson_get_len(content));
        return true;
    }
    if (content && !yyjson_is_null(content) && !yyjson_is_arr(content))
        return api_error_field(err, path, "'%s' must be a string or an array of blocks", path);
    yyjson_arr_foreach(content, index, max, block)
    {
        yyjson_val *part = yyjson_obj_get(block, "text");
        if (!yyjson_equals_str(yyjson_obj_get(block, "type"), "text") || !yyjson_is_str(part)) {
            const char *type = anthropic_string(block, "type");
            return api_error_field(err, path, "'%s[%zu]' must be a text; '%s' is not supported",
                                   path, index, type ? type : "(none)");
        }
        buffer_append(text, yyjson_get_str(part), yyjson_get_len(part));
    }
    return true;
}

static void anthropic_message(struct buffer *out, const char *role)
{
    const char last = out->data[out->size - 1];
    buffer_printf(out, "%s{\"role\":\"%s\",\"content\":", last == '[' ? "" : ",", role);
}

/* What one message's blocks come to. */
struct anthropic_blocks {
    struct chat_content said;
    struct buffer thinking, calls;
};

static bool anthropic_call(yyjson_val *block, const char *path, struct buffer *calls,
                           struct api_error *err)
{
    yyjson_val *input = yyjson_obj_get(block, "input");
    const char *id = anthropic_string(block, "id"), *name = anthropic_string(block, "name");
    if (!id || !name || !yyjson_is_obj(input))
        return api_error_field(err, path, "'%s' must have an id, a name and an object 'input'",
                               path);
    buffer_printf(calls, "%s{\"type\":\"function\",\"id\":", calls->size ? "," : "");
    json_out_text(calls, id);
    buffer_text(calls, ",\"function\":{\"name\":");
    json_out_text(calls, name);
    buffer_text(calls, ",\"arguments\":");
    dialect_json_text(calls, input);
    buffer_text(calls, "}}");
    return true;
}

/* A result is a message of its own, before the text that comes with it. */
static bool anthropic_result(yyjson_val *block, const char *path, struct buffer *out,
                             struct api_error *err)
{
    struct buffer text = {0};
    const char *id = anthropic_string(block, "tool_use_id");
    bool ok = id || api_error_field(err, path, "'%s' must have a 'tool_use_id'", path);
    ok = ok && anthropic_texts(yyjson_obj_get(block, "content"), path, &text, err);
    if (ok) {
        anthropic_message(out, "tool");
        json_out_string(out, text.data ? text.data : "", text.size);
        buffer_text(out, ",\"tool_call_id\":");
        json_out_text(out, id);
        buffer_text(out, "}");
    }
    out->failed |= text.failed;
    buffer_deinit(&text);
    return ok;
}

/* {"type": "image", "source": {"type": "base64", "media_type", "data"}} */
static bool anthropic_picture(yyjson_val *block, const char *path, struct chat_content *said,
                              struct api_error *err)
{
    char prefix[64];
    yyjson_val *source = yyjson_obj_get(block, "source"), *data = yyjson_obj_get(source, "data");
    const char *type = anthropic_string(source, "type");
    const char *media = anthropic_string(source, "media_type");
    if (type && strcmp(type, "url") == 0)
        return api_error_field(err, path,
                               "'%s.source' must be of type base64: this server fetches nothing. "
                               "Send the picture itself",
                               path);
    if (!type || strcmp(type, "base64") != 0 || !media || strncmp(media, "image/", 6) != 0 ||
        strlen(media) > 32 || !yyjson_is_str(data))
        return api_error_field(err, path,
                               "'%s.source' must be {\"type\": \"base64\", \"media_type\": "
                               "\"image/png\", \"data\"}",
                               path);
    snprintf(prefix, sizeof prefix, "data:%s;base64,", media);
    chat_content_picture(said, prefix, data);
    return true;
}

static bool anthropic_block(yyjson_val *block, const char *path, bool is_assistant,
                            struct anthropic_blocks *blocks, struct buffer *out,
                            struct api_error *err)
{
    const char *type = anthropic_string(block, "type");
    const char *text = anthropic_string(block, "text");
    if (!type)
        return api_error_field(err, path, "you must provide '%s.type'", path);
    if (strcmp(type, "text") == 0 && text) {
        chat_content_text(&blocks->said, yyjson_obj_get(block, "text"));
        return true;
    }
    if (!is_assistant && strcmp(type, "image") == 0)
        return anthropic_picture(block, path, &blocks->said, err);
    if (is_assistant && strcmp(type, "thinking") == 0) {
        const char *thinking = anthropic_string(block, "thinking");
        if (!thinking)
            return api_error_field(err, path, "'%s' must have a text 'thinking'", path);
        buffer_text(&blocks->thinking, thinking);
        return true;
    }
    if (is_assistant && strcmp(type, "tool_use") == 0)
        return anthropic_call(block, path, &blocks->calls, err);
    if (!is_assistant && strcmp(type, "tool_result") == 0)
        return anthropic_result(block, path, out, err);
    return api_error_field(err, path, "'%s' of type '%s' is not supported here", path, type);
}

static void anthropic_write_blocks(struct anthropic_blocks *blocks, bool is_assistant,
                                   bool had_results, struct buffer *out)
{
    if (had_results && chat_content_is_empty(&blocks->said))
        return;
    anthropic_message(out, is_assistant ? "assistant" : "user");
    chat_content_write(&blocks->said, out);
    if (blocks->thinking.size) {
        buffer_text(out, ",\"reasoning_content\":");
        json_out_string(out, blocks->thinking.data, blocks->thinking.size);
    }
    if (blocks->calls.size)
        buffer_printf(out, ",\"tool_calls\":[%s]", blocks->calls.data);
    buffer_text(out, "}");
}

static bool anthropic_read_blocks(yyjson_val *content, const char *path, bool is_assistant,
                                  struct buffer *out, struct api_error *err)
{
    struct anthropic_blocks blocks = {0};
    const size_t before = out->size;
    size_t index, max;
    yyjson_val *block;
    bool ok = true;
    yyjson_arr_foreach(content, index, max, block)
    {
        char at[128];
        snprintf(at, sizeof at, "%s[%zu]", path, index);
        ok = ok && anthropic_block(block, at, is_assistant, &blocks, out, err);
    }
    if (ok)
        anthropic_write_blocks(&blocks, is_assistant, out->size > before, out);
    out->failed |= blocks.thinking.failed || blocks.calls.failed;
    chat_content_deinit(&blocks.said);
    buffer_deinit(&blocks.thinking);
    buffer_deinit(&blocks.calls);
    return ok;
}

static bool anthropic_read_message(size_t number, yyjson_val *message, struct buffer *out,
                                   struct api_error *err)
{
    char path[64];
    yyjson_val *content = yyjson_obj_get(message, "content");
    yyjson_val *role = yyjson_obj_get(message, "role");
    const bool is_assistant = yyjson_equals_str(role, "assistant");
    snprintf(path, sizeof path, "messages[%zu].role", number);
    if (!is_assistant && !yyjson_equals_str(role, "user"))
        return api_error_field(err, path, "'%s' must be user or assistant", path);
    snprintf(path, sizeof path, "messages[%zu].content", number);
    if (yyjson_is_arr(content) && yyjson_arr_size(content))
        return anthropic_read_blocks(content, path, is_assistant, out, err);
    if (!yyjson_is_str(content))
        return api_error_field(err, path, "'%s' must be a string or an array of blocks", path);
    anthropic_message(out, is_assistant ? "assistant" : "user");
    json_out_string(out, yyjson_get_str(content), yyjson_get_len(content));
    buffer_text(out, "}");
    return true;
}

static bool anthropic_messages(yyjson_val *root, struct buffer *out, struct api_error *err)
{
    struct buffer system = {0};
    yyjson_val *messages = yyjson_obj_get(root, "messages"), *message;
    size_t index, max;
    if (!yyjson_is_arr(messages) || !yyjson_arr_size(messages))
        return api_error_field(err, "messages", "'messages' must be an array with a message");
    dialect_member(out, "messages");
    buffer_text(out, "[");
    bool ok = anthropic_texts(yyjson_obj_get(root, "system"), "system", &system, err);
    if (ok && system.size) {
        anthropic_message(out, "system");
        json_out_string(out, system.data, system.size);
        buffer_text(out, "}");
    }
    out->failed |= system.failed;
    buffer_deinit(&system);
    yyjson_arr_foreach(messages, index, max, message)
    {
        ok = ok && !out->failed && anthropic_read_message(index, message, out, err);
    }
    buffer_text(out, "]");
    return ok || (out->failed && !err->status);
}

/* {"name", "description", "input_schema"}; tools that the server would run are not there. */
static bool anthropic_tools(yyjson_val *tools, struct buffer *out, struct api_error *err)
{
    size_t index, max;
    yyjson_val *tool;
    if (!tools || yyjson_is_null(tools))
        return true;
    if (!yyjson_is_arr(tools))
        return api_error_field(err, "tools", "'tools' must be an array");
    dialect_member(out, "tools");
    buffer_text(out, "[");
    yyjson_arr_foreach(tools, index, max, tool)
    {
        const char *type = anthropic_string(tool, "type");
        yyjson_val *said = yyjson_obj_get(tool, "type");
        if (said && !yyjson_is_null(said) && (!type || strcmp(type, "custom") != 0))
            return api_error_field(err, "tools", "'tools[%zu]' of type '%s' is not supported",
                                   index, type ? type : "(none)");
        buffer_printf(out, "%s{\"type\":\"function\",\"function\":{", index ? "," : "");
        dialect_copy(out, "name", yyjson_obj_get(tool, "name"));
        dialect_copy(out, "description", yyjson_obj_get(tool, "description"));
        dialect_copy(out, "parameters", yyjson_obj_get(tool, "input_schema"));
        dialect_copy(out, "strict", yyjson_obj_get(tool, "strict"));
        buffer_text(out, "}}");
    }
    buffer_text(out, "]");
    return true;
}

static bool anthropic_choice(yyjson_val *choice, struct buffer *out, struct api_error *err)
{
    const char *type = anthropic_string(choice, "type"), *name = anthropic_string(choice, "name");
    if (!choice || yyjson_is_null(choice))
        return true;
    if (yyjson_is_true(yyjson_obj_get(choice, "disable_parallel_tool_use"))) {
        dialect_member(out, "parallel_tool_calls");
        buffer_text(out, "false");
    }
    if (type && strcmp(type, "tool") == 0 && name) {
        dialect_member(out, "tool_choice");
        buffer_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
        json_out_text(out, name);
        buffer_text(out, "}}");
        return true;
    }
    if (!type ||
        (strcmp(type, "auto") != 0 && strcmp(type, "any") != 0 && strcmp(type, "none") != 0))
        return api_error_field(err, "tool_choice",
                               "'tool_choice.type' must be auto, any, none, or tool with a name");
    dialect_member(out, "tool_choice");
    buffer_printf(out, "\"%s\"", strcmp(type, "any") == 0 ? "required" : type);
    return true;
}

static bool anthropic_thinking(yyjson_val *thinking, struct buffer *out, struct api_error *err)
{
    const char *type = anthropic_string(thinking, "type");
    if (!thinking || yyjson_is_null(thinking))
        return true;
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0 &&
                  strcmp(type, "adaptive") != 0))
        return api_error_field(err, "thinking",
                               "'thinking.type' must be enabled, adaptive or disabled");
    dialect_member(out, "reasoning_effort");
    buffer_text(out, strcmp(type, "disabled") == 0 ? "\"none\"" : "\"medium\"");
    return true;
}

static bool anthropic_write(yyjson_val *root, struct buffer *out, struct api_error *err)
{
    static const char *const known[] = {
        "model",        "messages",       "max_tokens",    "system",      "stream",   "temperature",
        "top_p",        "top_k",          "tools",         "tool_choice", "metadata", "thinking",
        "service_tier", "stop_sequences", "cache_control", NULL};
    static const char *const same[] = {"model",       "max_tokens", "stream",
                                       "temperature", "top_p",      "top_k"};
    static const struct dialect_field types[] = {{"metadata", DIALECT_OBJECT},
                                                 {"service_tier", DIALECT_TEXT},
                                                 {"cache_control", DIALECT_OBJECT},
                                                 {"stop_sequences", DIALECT_ARRAY},
                                                 {0}};
    if (!dialect_check(root, "", known, err) || !dialect_check_types(root, "", types, err))
        return false;
    buffer_text(out, "{");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        dialect_copy(out, same[i], yyjson_obj_get(root, same[i]));
    dialect_copy(out, "stop", yyjson_obj_get(root, "stop_sequences"));
    const bool ok = anthropic_messages(root, out, err) &&
                    anthropic_tools(yyjson_obj_get(root, "tools"), out, err) &&
                    anthropic_choice(yyjson_obj_get(root, "tool_choice"), out, err) &&
                    anthropic_thinking(yyjson_obj_get(root, "thinking"), out, err);
    buffer_text(out, "}");
    return ok;
}

static bool anthropic_read_body(const char *body, size_t size, bool needs_max, struct buffer *out,
                                struct api_error *err)
{
    yyjson_doc *doc = dialect_open(body, size, err);
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (!doc)
        return false;
    yyjson_val *max = yyjson_obj_get(root, "max_tokens");
    bool ok = !needs_max || (max && !yyjson_is_null(max)) ||
              api_error_field(err, "max_tokens", "you must provide 'max_tokens'");
    ok = ok && anthropic_write(root, out, err);
    yyjson_doc_free(doc);
    return ok;
}

bool anthropic_read(struct completion *completion, const char *body, size_t size,
                    struct buffer *out, struct api_error *err)
{
    (void)completion;
    return anthropic_read_body(body, size, true, out, err);
}

bool anthropic_read_count(struct completion *completion, const char *body, size_t size,
                          struct buffer *out, struct api_error *err)
{
    (void)completion;
    return anthropic_read_body(body, size, false, out, err);
}
