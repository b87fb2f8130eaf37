#include "api/chat_messages.h"

#include "api/json_out.h"

#include <stdio.h>

struct chat_message {
    const char *role;
    yyjson_val *content;
    yyjson_val *name;
};

/* A developer's message is what newer clients call the system's; templates know the latter. */
static bool read_role(struct json_in *in, const char *path, yyjson_val *value, const char **out)
{
    static const char *const roles[][2] = {{"system", "system"},
                                           {"developer", "system"},
                                           {"user", "user"},
                                           {"assistant", "assistant"}};
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
        "'%s' must be one of system, developer, user, assistant; '%s' is not supported", path,
        yyjson_get_str(value));
}

/* A part of a content array: {"type":"text","text":…} and nothing else. */
static bool chat_messages_check_part(struct json_in *in, const char *path, yyjson_val *part)
{
    char field[160];
    if (!yyjson_is_obj(part))
        return api_error_field(in->err, path, "'%s' must be an object", path);
    yyjson_val *type = yyjson_obj_get(part, "type");
    if (!yyjson_equals_str(type, "text")) {
        snprintf(field, sizeof field, "%s.type", path);
        return api_error_field(in->err, field, "'%s' must be \"text\"; '%s' is not supported",
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
        return api_error_field(in->err, path, "'%s' must be a string or an array of text parts",
                               path);
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
        if (yyjson_equals_str(key, "role")) {
            if (out->role)
                return api_error_field(in->err, path, "'%s' is given twice", path);
            if (!read_role(in, path, value, &out->role))
                return false;
        } else if (yyjson_equals_str(key, "content")) {
            if (out->content)
                return api_error_field(in->err, path, "'%s' is given twice", path);
            if (!check_content(in, path, value))
                return false;
            out->content = value;
        } else if (yyjson_equals_str(key, "name") && yyjson_is_str(value)) {
            out->name = value;
        } else if (!yyjson_is_null(value)) {
            return api_error_field(in->err, path, "'%s' is not supported", path);
        }
    }
    if (!out->role || !out->content) {
        snprintf(path, sizeof path, "messages[%zu].%s", number, out->role ? "content" : "role");
        return api_error_field(in->err, path, "you must provide '%s'", path);
    }
    return true;
}

/* The parts of a content array become one text: that is what chat templates expect. */
static void write_content(yyjson_val *content, struct buffer *joined, struct buffer *out)
{
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
        buffer_append(joined, yyjson_get_str(text), yyjson_get_len(text));
    }
    out->failed = out->failed || joined->failed;
    json_out_string(out, joined->data, joined->size);
}

bool chat_messages_read(struct json_in *in, yyjson_val *messages, struct buffer *out)
{
    if (!yyjson_is_arr(messages))
        return api_error_field(in->err, "messages", "'messages' must be an array");
    if (yyjson_arr_size(messages) == 0)
        return api_error_field(in->err, "messages", "'messages' is an empty array");
    struct buffer joined = {0};
    size_t index, max;
    yyjson_val *object;
    bool ok = true;
    buffer_text(out, "{\"messages\":[");
    yyjson_arr_foreach(messages, index, max, object)
    {
        struct chat_message message = {0};
        ok = ok && chat_messages_read_message(in, index, object, &message);
        if (!ok)
            break;
        buffer_printf(out, "%s{\"role\":\"%s\",\"content\":", index ? "," : "", message.role);
        write_content(message.content, &joined, out);
        if (message.name) {
            buffer_text(out, ",\"name\":");
            json_out_string(out, yyjson_get_str(message.name), yyjson_get_len(message.name));
        }
        buffer_text(out, "}");
    }
    buffer_text(out, "],\"add_generation_prompt\":true}");
    buffer_deinit(&joined);
    if (ok && out->failed)
        return json_in_no_memory(in);
    return ok;
}
