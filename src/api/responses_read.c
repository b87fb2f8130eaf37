/* A request for a response becomes a chat's:
 * https://platform.openai.com/docs/api-reference/responses */
#include "api/responses.h"

#include "api/chat_pictures.h"
#include "api/json_out.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

static yyjson_val *responses_member(yyjson_val *object, const char *name)
{
    yyjson_val *value = yyjson_obj_get(object, name);
    return yyjson_is_null(value) ? NULL : value;
}

static const char *responses_string(yyjson_val *object, const char *name)
{
    return yyjson_get_str(yyjson_obj_get(object, name));
}

/* ---- input ---- */

/* Items of the assistant that follow one another are one message. */
struct responses_turn {
    struct chat_content said;
    struct buffer calls;
    bool open;
};

static void responses_end_turn(struct responses_turn *turn, struct buffer *out)
{
    if (!turn->open)
        return;
    buffer_text(out, out->size ? ",{\"role\":\"assistant\",\"content\":"
                               : "{\"role\":\"assistant\",\"content\":");
    chat_content_write(&turn->said, out);
    if (turn->calls.size)
        buffer_printf(out, ",\"tool_calls\":[%s]", turn->calls.data);
    buffer_text(out, "}");
    out->failed |= turn->calls.failed;
    chat_content_deinit(&turn->said);
    turn->said = (struct chat_content){0};
    buffer_clear(&turn->calls);
    turn->open = false;
}

static void responses_message(struct buffer *out, const char *role)
{
    buffer_printf(out, "%s{\"role\":\"%s\",\"content\":", out->size ? "," : "", role);
}

/* {"type": "input_image", "image_url": "data:…", "detail"} */
static bool responses_picture(yyjson_val *part, const char *path, struct chat_content *said,
                              struct api_error *err)
{
    yyjson_val *url = yyjson_obj_get(part, "image_url"), *detail = yyjson_obj_get(part, "detail");
    if (!yyjson_is_str(url))
        return api_error_field(err, path,
                               "'%s.image_url' must be a data URL: data:image/png;base64,…", path);
    if (detail && !yyjson_is_null(detail) && !yyjson_equals_str(detail, "auto"))
        return api_error_field(err, path, "'%s.detail' is not supported beyond auto", path);
    chat_content_picture(said, "", url);
    return true;
}

/* A text, or an array of parts: of text, and, where they may be, pictures. */
static bool responses_parts(yyjson_val *content, const char *path, bool may_show,
                            struct chat_content *said, struct api_error *err)
{
    size_t index, max;
    yyjson_val *part;
    if (yyjson_is_str(content)) {
        chat_content_text(said, content);
        return true;
    }
    if (!yyjson_is_arr(content))
        return api_error_field(err, path, "'%s' must be a string or an array of parts", path);
    yyjson_arr_foreach(content, index, max, part)
    {
        char at[96];
        const char *type = responses_string(part, "type");
        yyjson_val *value = yyjson_obj_get(part, "text");
        snprintf(at, sizeof at, "%s[%zu]", path, index);
        if (may_show && type && strcmp(type, "input_image") == 0) {
            if (!responses_picture(part, at, said, err))
                return false;
            continue;
        }
        if (!type || !yyjson_is_str(value) ||
            (strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0))
            return api_error_field(err, path, "'%s' must be a text; '%s' is not supported here", at,
                                   type ? type : "(none)");
        chat_content_text(said, value);
    }
    return true;
}

static bool responses_call(yyjson_val *item, const char *path, struct responses_turn *turn,
                           struct api_error *err)
{
    const char *id = responses_string(item, "call_id"), *name = responses_string(item, "name");
    const char *arguments = responses_string(item, "arguments");
    if (!id || !name || !arguments)
        return api_error_field(err, path, "'%s' must have call_id, name and arguments", path);
    buffer_printf(&turn->calls, "%s{\"type\":\"function\",\"id\":", turn->calls.size ? "," : "");
    json_out_text(&turn->calls, id);
    buffer_text(&turn->calls, ",\"function\":{\"name\":");
    json_out_text(&turn->calls, name);
    buffer_text(&turn->calls, ",\"arguments\":");
    json_out_text(&turn->calls, arguments);
    buffer_text(&turn->calls, "}}");
    turn->open = true;
    return true;
}

static bool responses_text_item(yyjson_val *item, const char *path, struct responses_turn *turn,
                                struct buffer *out, struct api_error *err)
{
    struct chat_content said = {0};
    const char *role = responses_string(item, "role"), *type = responses_string(item, "type");
    const bool is_result = type && strcmp(type, "function_call_output") == 0;
    yyjson_val *content = yyjson_obj_get(item, is_result ? "output" : "content");
    if (is_result ? !responses_string(item, "call_id") : !role)
        return api_error_field(err, path, "you must provide '%s.%s'", path,
                               is_result ? "call_id" : "role");
    const bool is_assistant = !is_result && strcmp(role, "assistant") == 0;
    if (!is_assistant)
        responses_end_turn(turn, out);
    turn->open |= is_assistant;
    const bool may_show = !is_result && strcmp(role, "user") == 0;
    bool ok = responses_parts(content, path, may_show, is_assistant ? &turn->said : &said, err);
    if (ok && !is_assistant) {
        const bool known = is_result || strcmp(role, "user") == 0 || strcmp(role, "system") == 0 ||
                           strcmp(role, "developer") == 0;
        ok = known ||
             api_error_field(err, path, "'%s.role' must be user, assistant, system or developer",
                             path);
        responses_message(out, is_result ? "tool" : known ? role : "user");
        chat_content_write(&said, out);
        if (is_result) {
            buffer_text(out, ",\"tool_call_id\":");
            json_out_text(out, responses_string(item, "call_id"));
        }
        buffer_text(out, "}");
    }
    chat_content_deinit(&said);
    return ok;
}

static bool responses_item(size_t number, yyjson_val *item, struct responses_turn *turn,
                           struct buffer *out, struct api_error *err)
{
    char path[64];
    static const struct dialect_field types[] = {{"type", DIALECT_TEXT}, {0}};
    const char *type = responses_string(item, "type");
    snprintf(path, sizeof path, "input[%zu].", number);
    if (!dialect_check_types(item, path, types, err))
        return false;
    path[strlen(path) - 1] = '\0';
    if (!type || strcmp(type, "message") == 0 || strcmp(type, "function_call_output") == 0)
        return responses_text_item(item, path, turn, out, err);
    if (strcmp(type, "function_call") == 0)
        return responses_call(item, path, turn, err);
    if (strcmp(type, "reasoning") == 0) /* of a turn before: models are not shown it */
        return true;
    return api_error_field(err, path, "'%s' of type '%s' is not supported", path, type);
}

/* The messages, without brackets, behind those that are there. */
static bool responses_input(yyjson_val *input, struct buffer *out, struct api_error *err)
{
    struct responses_turn turn = {0};
    size_t index, max;
    yyjson_val *item;
    bool ok = true;
    if (yyjson_is_str(input)) {
        responses_message(out, "user");
        json_out_string(out, yyjson_get_str(input), yyjson_get_len(input));
        buffer_text(out, "}");
        return true;
    }
    if (!yyjson_is_arr(input) || !yyjson_arr_size(input))
        return api_error_field(err, "input", "'input' must be a string or an array of items");
    yyjson_arr_foreach(input, index, max, item)
    {
        ok = ok && responses_item(index, item, &turn, out, err);
    }
    responses_end_turn(&turn, out);
    chat_content_deinit(&turn.said);
    buffer_deinit(&turn.calls);
    return ok;
}

/* ---- settings ---- */

static bool responses_tools(yyjson_val *tools, struct buffer *out, struct api_error *err)
{
    size_t index, max;
    yyjson_val *tool;
    if (!tools)
        return true;
    if (!yyjson_is_arr(tools))
        return api_error_field(err, "tools", "'tools' must be an array");
    dialect_member(out, "tools");
    buffer_text(out, "[");
    yyjson_arr_foreach(tools, index, max, tool)
    {
        const char *type = responses_string(tool, "type");
        if (!type || strcmp(type, "function") != 0)
            return api_error_field(err, "tools", "'tools[%zu]' of type '%s' is not supported",
                                   index, type ? type : "(none)");
        buffer_printf(out, "%s{\"type\":\"function\",\"function\":{", index ? "," : "");
        dialect_copy(out, "name", yyjson_obj_get(tool, "name"));
        dialect_copy(out, "description", yyjson_obj_get(tool, "description"));
        dialect_copy(out, "parameters", yyjson_obj_get(tool, "parameters"));
        dialect_copy(out, "strict", yyjson_obj_get(tool, "strict"));
        buffer_text(out, "}}");
    }
    buffer_text(out, "]");
    return true;
}

static void responses_choice(yyjson_val *choice, struct buffer *out)
{
    const char *name = responses_string(choice, "name");
    if (!name) {
        dialect_copy(out, "tool_choice", choice);
        return;
    }
    dialect_member(out, "tool_choice");
    buffer_text(out, "{\"type\":\"function\",\"function\":{\"name\":");
    json_out_text(out, name);
    buffer_text(out, "}}");
}

/* What a chat has in "json_schema" stands beside the type here. */
static bool responses_format(yyjson_val *format, struct buffer *out, struct api_error *err)
{
    static const char *const known[] = {"type", "name", "description", "schema", "strict", NULL};
    if (!yyjson_equals_str(yyjson_obj_get(format, "type"), "json_schema")) {
        dialect_copy(out, "response_format", format);
        return true;
    }
    if (!dialect_check(format, "text.format.", known, err))
        return false;
    dialect_member(out, "response_format");
    buffer_text(out, "{\"type\":\"json_schema\",\"json_schema\":{");
    for (size_t i = 1; known[i]; i++)
        dialect_copy(out, known[i], yyjson_obj_get(format, known[i]));
    buffer_text(out, "}}");
    return true;
}

/* What asks for something that is not done. */
static bool responses_refuse(yyjson_val *root, struct api_error *err)
{
    yyjson_val *truncation = responses_member(root, "truncation");
    if (yyjson_is_true(yyjson_obj_get(root, "background")))
        return api_error_field(err, "background", "'background' is not supported");
    if (truncation && !yyjson_equals_str(truncation, "disabled"))
        return api_error_field(err, "truncation", "'truncation' is not supported beyond disabled");
    return true;
}

static bool responses_settings(yyjson_val *root, struct buffer *out, struct api_error *err)
{
    static const char *const same[] = {
        "model",        "stream",           "temperature",       "top_p",    "parallel_tool_calls",
        "service_tier", "prompt_cache_key", "safety_identifier", "metadata", "user",
        "store"};
    yyjson_val *text = responses_member(root, "text");
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        dialect_copy(out, same[i], yyjson_obj_get(root, same[i]));
    dialect_copy(out, "max_tokens", yyjson_obj_get(root, "max_output_tokens"));
    dialect_copy(out, "verbosity", yyjson_obj_get(text, "verbosity"));
    dialect_copy(out, "reasoning_effort",
                 yyjson_obj_get(responses_member(root, "reasoning"), "effort"));
    responses_choice(responses_member(root, "tool_choice"), out);
    return responses_format(responses_member(text, "format"), out, err) &&
           responses_refuse(root, err) &&
           responses_tools(responses_member(root, "tools"), out, err);
}

/* What came before, and what is said now. */
static bool responses_history(struct completion *completion, yyjson_val *root,
                              struct api_error *err)
{
    struct buffer *history = &completion->history;
    const char *before = responses_string(root, "previous_response_id");
    struct response_store *store =
        completion->work.server ? completion->work.server->responses : NULL; /* of a fuzz target */
    if (before && (!store || !response_store_find(store, before, completion->grant, history))) {
        api_error_set(err, 404, "invalid_request_error", "previous_response_not_found",
                      "this node has no response '%.64s': send the whole conversation", before);
        return false;
    }
    return responses_input(responses_member(root, "input"), history, err);
}

/* Those that no chat has, so that its reader does not look at them. */
static const struct dialect_field responses_types[] = {
    {"instructions", DIALECT_TEXT},
    {"previous_response_id", DIALECT_TEXT},
    {"reasoning", DIALECT_OBJECT},
    {"text", DIALECT_OBJECT},
    {"include", DIALECT_ARRAY},
    {"background", DIALECT_FLAG},
    {"prompt_cache_retention", DIALECT_TEXT},
    {"stream_options", DIALECT_OBJECT},
    {0},
};

static bool responses_write_chat(struct completion *completion, yyjson_val *root,
                                 struct buffer *out, struct api_error *err)
{
    static const char *const known[] = {"model",
                                        "input",
                                        "instructions",
                                        "previous_response_id",
                                        "stream",
                                        "temperature",
                                        "top_p",
                                        "max_output_tokens",
                                        "tools",
                                        "tool_choice",
                                        "parallel_tool_calls",
                                        "reasoning",
                                        "text",
                                        "metadata",
                                        "store",
                                        "user",
                                        "service_tier",
                                        "truncation",
                                        "prompt_cache_key",
                                        "safety_identifier",
                                        "include",
                                        "background",
                                        "prompt_cache_retention",
                                        "stream_options",
                                        NULL};
    const char *instructions = responses_string(root, "instructions");
    if (!dialect_check(root, "", known, err) ||
        !dialect_check_types(root, "", responses_types, err) ||
        !responses_settings(root, out, err) || !responses_history(completion, root, err))
        return false;
    dialect_member(out, "messages");
    buffer_text(out, "[");
    if (instructions) {
        buffer_text(out, "{\"role\":\"system\",\"content\":");
        json_out_text(out, instructions);
        buffer_text(out, completion->history.size ? "}," : "}");
    }
    buffer_append(out, completion->history.data, completion->history.size);
    buffer_text(out, "]");
    out->failed |= completion->history.failed;
    completion->keeps = !yyjson_is_false(yyjson_obj_get(root, "store"));
    return true;
}

bool responses_read(struct completion *completion, const char *body, size_t size,
                    struct buffer *out, struct api_error *err)
{
    yyjson_doc *doc = dialect_open(body, size, err);
    if (!doc)
        return false;
    buffer_text(out, "{");
    const bool ok = responses_write_chat(completion, yyjson_doc_get_root(doc), out, err);
    buffer_text(out, "}");
    yyjson_doc_free(doc);
    return ok;
}
