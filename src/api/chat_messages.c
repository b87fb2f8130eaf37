#include "api/chat_messages.h"

#include "api/chat_pictures.h"
#include "api/json_out.h"
#include "base/json_memory.h"

#include <stdio.h>
#include <string.h>

struct chat_message {
    const char *role;
    yyjson_val *content;
    yyjson_val *name;
    yyjson_val *tool_calls, *tool_call_id, *reasoning;
    uint32_t n_pictures;
};

/* A developer's message is what newer clients call the system's; templates know the latter. */
static bool read_role(struct json_in *in, const char *path, yyjson_val *value, const char **out)
{
    static const char *const roles[][2] = {{"system", "system"},
                                           {"developer", "system"},
                                           {"user", "user"},
                                           {"assistant", "assistant"},
                                           {"tool", "tool"}};
    if (!yyjson_is_str(value))
        return api_error_field(in->err, path, "'%s' must be a string", path);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (yyjson_equals_str(value, roles[i][0])) {
            *out = roles[i][1];
            return true;
        }
    }
    return api_error_field(
        in->err, path,
        "'%s' must be one of system, developer, user, assistant, tool; '%s' is not supported", path,
        yyjson_get_str(value));
}

/* A part of a content array: {"type":"text","text":…}, or a picture. */
static bool chat_messages_check_part(struct json_in *in, const char *path, yyjson_val *part)
{
    char field[160];
    if (!yyjson_is_obj(part))
        return api_error_field(in->err, path, "'%s' must be an object", path);
    yyjson_val *type = yyjson_obj_get(part, "type");
    if (yyjson_equals_str(type, "image_url"))
        return chat_pictures_read(in->out, path, part, in->err);
    if (!yyjson_equals_str(type, "text")) {
        snprintf(field, sizeof field, "%s.type", path);
        return api_error_field(in->err, field,
                               "'%s' must be \"text\" or \"image_url\"; '%s' is not supported",
                               field, yyjson_is_str(type) ? yyjson_get_str(type) : "(none)");
    }
    if (!yyjson_is_str(yyjson_obj_get(part, "text"))) {
        snprintf(field, sizeof field, "%s.text", path);
        return api_error_field(in->err, field, "'%s' must be a string", field);
    }
    size_t index, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(part, index, max, key, value)
    {
        if (!yyjson_equals_str(key, "type") && !yyjson_equals_str(key, "text")) {
            snprintf(field, sizeof field, "%s.%s", path, yyjson_get_str(key));
            return api_error_field(in->err, field, "Unrecognized request argument supplied: %s",
                                   field);
        }
    }
    return true;
}

static bool check_content(struct json_in *in, const char *path, yyjson_val *content)
{
    if (yyjson_is_str(content))
        return true;
    if (!yyjson_is_arr(content) || yyjson_arr_size(content) == 0)
        return api_error_field(in->err, path, "'%s' must be a string or an array of parts", path);
    size_t index, max;
    yyjson_val *part;
    yyjson_arr_foreach(content, index, max, part)
    {
        char field[128];
        snprintf(field, sizeof field, "%s[%zu]", path, index);
        if (!chat_messages_check_part(in, field, part))
            return false;
    }
    return true;
}

/* {"id", "type": "function", "function": {"name", "arguments": "{…}"}} */
static bool check_call(struct json_in *in, const char *path, yyjson_val *call)
{
    char field[160];
    yyjson_val *function = yyjson_obj_get(call, "function");
    yyjson_val *type = yyjson_obj_get(call, "type");
    yyjson_val *arguments = yyjson_obj_get(function, "arguments");
    if (!yyjson_is_str(yyjson_obj_get(function, "name")) ||
        !yyjson_is_str(yyjson_obj_get(call, "id")) ||
        (type && !yyjson_equals_str(type, "function")))
        return api_error_field(in->err, path,
                               "'%s' must be {\"id\", \"type\": \"function\", \"function\": "
                               "{\"name\", \"arguments\"}}",
                               path);
    snprintf(field, sizeof field, "%s.function.arguments", path);
    yyjson_doc *doc = NULL;
    if (yyjson_get_len(arguments))
        doc = yyjson_read_opts((char *)(uintptr_t)yyjson_get_str(arguments),
                               yyjson_get_len(arguments), YYJSON_READ_NOFLAG, &json_memory, NULL);
    const bool ok = yyjson_is_str(arguments) &&
                    (!yyjson_get_len(arguments) || yyjson_is_obj(yyjson_doc_get_root(doc)));
    yyjson_doc_free(doc);
    return ok || api_error_field(in->err, field, "'%s' must be a JSON object in a string", field);
}

static bool check_calls(struct json_in *in, const char *path, yyjson_val *calls)
{
    size_t index, max;
    yyjson_val *call;
    if (!yyjson_is_arr(calls) || yyjson_arr_size(calls) > LIMIT_TOOLS)
        return api_error_field(in->err, path, "'%s' must be an array of at most %d calls", path,
                               LIMIT_TOOLS);
    yyjson_arr_foreach(calls, index, max, call)
    {
        char field[128];
        snprintf(field, sizeof field, "%s[%zu]", path, index);
        if (!check_call(in, field, call))
            return false;
    }
    return true;
}

/* One text of a message. */
static bool read_message_text(struct json_in *in, const char *path, yyjson_val *value,
                              yyjson_val **out)
{
    *out = value;
    return yyjson_is_str(value) || api_error_field(in->err, path, "'%s' must be a string", path);
}

static bool chat_message_read_content(struct json_in *in, const char *path,
                                      struct chat_message *out)
{
    const struct generation_request *request = in->out;
    const uint32_t before = request->n_pictures;
    const bool ok = check_content(in, path, out->content);
    out->n_pictures = request->n_pictures - before;
    return ok;
}

static bool read_message_member(struct json_in *in, const char *path, yyjson_val *key,
                                yyjson_val *value, struct chat_message *out)
{
    if (yyjson_equals_str(key, "role")) {
        if (out->role)
            return api_error_field(in->err, path, "'%s' is given twice", path);
        return read_role(in, path, value, &out->role);
    }
    if (yyjson_is_null(value))
        return true;
    if (yyjson_equals_str(key, "content")) {
        if (out->content)
            return api_error_field(in->err, path, "'%s' is given twice", path);
        out->content = value;
        return chat_message_read_content(in, path, out);
    }
    if (yyjson_equals_str(key, "tool_calls")) {
        out->tool_calls = yyjson_arr_size(value) ? value : NULL;
        return check_calls(in, path, value);
    }
    if (yyjson_equals_str(key, "tool_call_id"))
        return read_message_text(in, path, value, &out->tool_call_id);
    if (yyjson_equals_str(key, "reasoning_content"))
        return read_message_text(in, path, value, &out->reasoning);
    if (yyjson_equals_str(key, "annotations")) /* of an answer of before: nothing to a template */
        return true;
    if (yyjson_equals_str(key, "name") && yyjson_is_str(value)) {
        out->name = value;
        return true;
    }
    return api_error_field(in->err, path, "'%s' is not supported", path);
}

/* Models have seen them nowhere else. */
static bool check_who_shows(struct json_in *in, size_t number, const struct chat_message *message)
{
    char path[64];
    snprintf(path, sizeof path, "messages[%zu].content", number);
    return !message->n_pictures || strcmp(message->role, "user") == 0 ||
           api_error_field(in->err, path, "'%s' may have no picture: those are the user's alone",
                           path);
}

static bool check_message(struct json_in *in, size_t number, const struct chat_message *message)
{
    char path[128];
    const char *lacks = !message->role                              ? "role"
                        : !message->content && !message->tool_calls ? "content"
                        : strcmp(message->role, "tool") == 0 && !message->tool_call_id
                            ? "tool_call_id"
                            : NULL;
    if (lacks) {
        snprintf(path, sizeof path, "messages[%zu].%s", number, lacks);
        return api_error_field(in->err, path, "you must provide '%s'", path);
    }
    if ((message->tool_calls || message->reasoning) && strcmp(message->role, "assistant") != 0) {
        snprintf(path, sizeof path, "messages[%zu].%s", number,
                 message->tool_calls ? "tool_calls" : "reasoning_content");
        return api_error_field(in->err, path, "'%s' is the assistant's alone", path);
    }
    return check_who_shows(in, number, message);
}

static bool chat_messages_read_message(struct json_in *in, size_t number, yyjson_val *object,
                                       struct chat_message *out)
{
    char path[128];
    size_t index, max;
    yyjson_val *key, *value;
    snprintf(path, sizeof path, "messages[%zu]", number);
    if (!yyjson_is_obj(object))
        return api_error_field(in->err, path, "'%s' must be an object", path);
    yyjson_obj_foreach(object, index, max, key, value)
    {
        snprintf(path, sizeof path, "messages[%zu].%s", number, yyjson_get_str(key));
        if (!read_message_member(in, path, key, value, out))
            return false;
    }
    return check_message(in, number, out);
}

/* The parts of a content array become one text, with marks for pictures: that is what all chat
 * templates take. */
static void write_content(yyjson_val *content, struct buffer *joined, struct buffer *out)
{
    if (!content) {
        buffer_text(out, "\"\"");
        return;
    }
    if (yyjson_is_str(content)) {
        json_out_string(out, yyjson_get_str(content), yyjson_get_len(content));
        return;
    }
    size_t index, max;
    yyjson_val *part;
    buffer_clear(joined);
    yyjson_arr_foreach(content, index, max, part)
    {
        yyjson_val *text = yyjson_obj_get(part, "text");
        if (text)
            buffer_append(joined, yyjson_get_str(text), yyjson_get_len(text));
        else
            buffer_text(joined, CHAT_PICTURE_MARK);
    }
    out->failed = out->failed || joined->failed;
    json_out_string(out, joined->data, joined->size);
}

static void write_message_text(const char *name, yyjson_val *value, struct buffer *out)
{
    if (!value)
        return;
    buffer_printf(out, ",\"%s\":", name);
    json_out_string(out, yyjson_get_str(value), yyjson_get_len(value));
}

/* Templates take arguments as an object. */
static void write_calls(yyjson_val *calls, struct buffer *out)
{
    size_t index, max;
    yyjson_val *call;
    buffer_text(out, ",\"tool_calls\":[");
    yyjson_arr_foreach(calls, index, max, call)
    {
        yyjson_val *function = yyjson_obj_get(call, "function");
        yyjson_val *arguments = yyjson_obj_get(function, "arguments");
        buffer_text(out, index ? ",{\"type\":\"function\"" : "{\"type\":\"function\"");
        write_message_text("id", yyjson_obj_get(call, "id"), out);
        buffer_text(out, ",\"function\":{\"arguments\":");
        if (yyjson_get_len(arguments))
            buffer_append(out, yyjson_get_str(arguments), yyjson_get_len(arguments));
        else
            buffer_text(out, "{}");
        write_message_text("name", yyjson_obj_get(function, "name"), out);
        buffer_text(out, "}}");
    }
    buffer_text(out, "]");
}

/* Of the tool that a result is from: some templates write it. */
static yyjson_val *name_of_call(yyjson_val *calls, yyjson_val *id)
{
    size_t index, max;
    yyjson_val *call;
    yyjson_arr_foreach(calls, index, max, call)
    {
        if (id &&
            yyjson_equals_strn(yyjson_obj_get(call, "id"), yyjson_get_str(id), yyjson_get_len(id)))
            return yyjson_obj_get(yyjson_obj_get(call, "function"), "name");
    }
    return NULL;
}

static void write_message(const struct chat_message *message, struct buffer *joined,
                          struct buffer *out)
{
    buffer_printf(out, "{\"role\":\"%s\",\"content\":", message->role);
    write_content(message->content, joined, out);
    write_message_text("name", message->name, out);
    write_message_text("tool_call_id", message->tool_call_id, out);
    write_message_text("reasoning_content", message->reasoning, out);
    if (!message->content || !yyjson_get_len(message->content))
        write_message_text("thinking", message->reasoning,
                           out); /* what harmony's templates call it */
    if (message->tool_calls)
        write_calls(message->tool_calls, out);
    buffer_text(out, "}");
}

bool chat_messages_read(struct json_in *in, yyjson_val *messages, struct buffer *out)
{
    if (!yyjson_is_arr(messages))
        return api_error_field(in->err, "messages", "'messages' must be an array");
    if (yyjson_arr_size(messages) == 0)
        return api_error_field(in->err, "messages", "'messages' is an empty array");
    struct buffer joined = {0};
    size_t index, max;
    yyjson_val *object, *calls = NULL;
    bool ok = true;
    buffer_text(out, "{\"messages\":[");
    yyjson_arr_foreach(messages, index, max, object)
    {
        struct chat_message message = {0};
        ok = ok && chat_messages_read_message(in, index, object, &message);
        if (!ok)
            break;
        calls = message.tool_calls ? message.tool_calls : calls;
        if (!message.name)
            message.name = name_of_call(calls, message.tool_call_id);
        buffer_text(out, index ? "," : "");
        write_message(&message, &joined, out);
    }
    buffer_text(out, "],\"add_generation_prompt\":true}");
    buffer_deinit(&joined);
    if (ok && out->failed)
        return json_in_no_memory(in);
    return ok;
}
