#include "api/request_tools.h"

#include "tools/reply.h"

#include <stdio.h>
#include <string.h>

enum { TOOL_PATH = 160 };

static bool tool_name_is_sane(const char *name, size_t size)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return size && size <= LIMIT_TOOL_NAME_BYTES && strspn(name, allowed) == size;
}

static bool read_strict(struct json_in *in, const char *path, size_t number, yyjson_val *value)
{
    struct generation_request *request = in->out;
    if (yyjson_is_true(value) && !request->strict_tool)
        request->strict_tool = (uint32_t)number + 1;
    return yyjson_is_bool(value) ||
           api_error_field(in->err, path, "'%s' must be true or false", path);
}

static bool read_function_member(struct json_in *in, size_t number, yyjson_val *key,
                                 yyjson_val *value)
{
    char path[TOOL_PATH];
    snprintf(path, sizeof path, "tools[%zu].function.%s", number, yyjson_get_str(key));
    if (yyjson_is_null(value))
        return true;
    if (yyjson_equals_str(key, "name"))
        return (yyjson_is_str(value) &&
                tool_name_is_sane(yyjson_get_str(value), yyjson_get_len(value))) ||
               api_error_field(in->err, path,
                               "'%s' must be 1 to %d letters, digits and characters of _.-", path,
                               LIMIT_TOOL_NAME_BYTES);
    if (yyjson_equals_str(key, "description"))
        return yyjson_is_str(value) ||
               api_error_field(in->err, path, "'%s' must be a string", path);
    if (yyjson_equals_str(key, "parameters"))
        return yyjson_is_obj(value) ||
               api_error_field(in->err, path, "'%s' must be an object", path);
    if (yyjson_equals_str(key, "strict"))
        return read_strict(in, path, number, value);
    return api_error_field(in->err, path, "'%s' is not supported", path);
}

static bool read_tool(struct json_in *in, size_t number, yyjson_val *tool)
{
    char path[TOOL_PATH];
    size_t index, max;
    yyjson_val *key, *value;
    snprintf(path, sizeof path, "tools[%zu]", number);
    yyjson_val *function = yyjson_obj_get(tool, "function");
    if (!yyjson_equals_str(yyjson_obj_get(tool, "type"), "function") || !yyjson_is_obj(function))
        return api_error_field(in->err, path,
                               "'%s' must be {\"type\": \"function\", \"function\": {…}}", path);
    yyjson_obj_foreach(function, index, max, key, value)
    {
        if (!read_function_member(in, number, key, value))
            return false;
    }
    return yyjson_is_str(yyjson_obj_get(function, "name")) ||
           api_error_field(in->err, path, "you must provide '%s.function.name'", path);
}

bool request_read_tools(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    size_t index, max;
    yyjson_val *tool;
    if (!yyjson_is_arr(value))
        return api_error_field(in->err, name, "'tools' must be an array");
    if (yyjson_arr_size(value) > LIMIT_TOOLS)
        return api_error_field(in->err, name, "'tools' has more than %d tools", LIMIT_TOOLS);
    yyjson_arr_foreach(value, index, max, tool)
    {
        if (!read_tool(in, index, tool))
            return false;
    }
    request->tools = yyjson_arr_size(value) ? value : NULL;
    return true;
}

bool request_read_tool_choice(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    yyjson_val *wanted = yyjson_obj_get(yyjson_obj_get(value, "function"), "name");
    if (yyjson_equals_str(value, "none")) {
        request->tool_choice = TOOL_CHOICE_NONE;
    } else if (yyjson_equals_str(value, "required")) {
        request->tool_choice = TOOL_CHOICE_REQUIRED;
    } else if (yyjson_is_str(wanted)) {
        request->tool_choice = TOOL_CHOICE_REQUIRED;
        request->tool_name = (struct text){yyjson_get_str(wanted), yyjson_get_len(wanted)};
    } else if (!yyjson_equals_str(value, "auto")) {
        return api_error_field(in->err, name,
                               "'tool_choice' must be \"none\", \"auto\", \"required\" or "
                               "{\"type\": \"function\", \"function\": {\"name\": …}}");
    }
    return true;
}

bool request_read_parallel(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    bool parallel = true;
    if (!json_in_bool(in, name, value, &parallel))
        return false;
    request->one_call = !parallel;
    return true;
}

static bool text_is_one_of(yyjson_val *value, const char *const *allowed)
{
    for (; *allowed; allowed++) {
        if (yyjson_equals_str(value, *allowed))
            return true;
    }
    return false;
}

bool request_read_effort(struct json_in *in, const char *name, yyjson_val *value)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   NULL};
    struct generation_request *request = in->out;
    if (!text_is_one_of(value, efforts))
        return api_error_field(
            in->err, name, "'reasoning_effort' must be none, minimal, low, medium, high or xhigh");
    return json_in_text(in, name, value, &request->reasoning_effort);
}

/* Variables of the model's own template, such as enable_thinking. */
bool request_read_template_arguments(struct json_in *in, const char *name, yyjson_val *value)
{
    static const char *const own[] = {"messages", "tools", "add_generation_prompt", NULL};
    struct generation_request *request = in->out;
    size_t index, max;
    yyjson_val *key, *argument;
    if (!yyjson_is_obj(value))
        return api_error_field(in->err, name, "'%s' must be an object", name);
    yyjson_obj_foreach(value, index, max, key, argument)
    {
        if (text_is_one_of(key, own))
            return api_error_field(in->err, name, "'%s' cannot set '%s'", name,
                                   yyjson_get_str(key));
    }
    request->template_arguments = value;
    return true;
}

bool request_read_modalities(struct json_in *in, const char *name, yyjson_val *value)
{
    return (yyjson_arr_size(value) == 1 &&
            yyjson_equals_str(yyjson_arr_get_first(value), "text")) ||
           api_error_field(in->err, name, "'modalities' is not supported beyond [\"text\"]");
}

bool request_read_verbosity(struct json_in *in, const char *name, yyjson_val *value)
{
    return yyjson_equals_str(value, "medium") ||
           api_error_field(in->err, name, "'verbosity' is not supported beyond \"medium\"");
}

bool request_ignore_metadata(struct json_in *in, const char *name, yyjson_val *value)
{
    return yyjson_is_obj(value) ||
           api_error_field(in->err, name, "'%s' must be an object of strings", name);
}

bool request_ignore_object(struct json_in *in, const char *name, yyjson_val *value)
{
    return yyjson_is_obj(value) || api_error_field(in->err, name, "'%s' must be an object", name);
}

bool request_ignore_bool(struct json_in *in, const char *name, yyjson_val *value)
{
    bool ignored;
    return json_in_bool(in, name, value, &ignored);
}

static bool tool_is_there(const struct generation_request *request)
{
    size_t index, max;
    yyjson_val *tool;
    yyjson_arr_foreach(request->tools, index, max, tool)
    {
        yyjson_val *name = yyjson_obj_get(yyjson_obj_get(tool, "function"), "name");
        if (yyjson_equals_strn(name, request->tool_name.data, request->tool_name.size))
            return true;
    }
    return false;
}

bool request_check_tools(const struct generation_request *request, struct api_error *err)
{
    if (request->tool_choice != TOOL_CHOICE_REQUIRED)
        return true;
    if (!request->tools)
        return api_error_field(err, "tool_choice",
                               "'tool_choice' asks for a call, but there are "
                               "no 'tools'");
    if (request->tool_name.data && !tool_is_there(request))
        return api_error_field(err, "tool_choice",
                               "'tool_choice' names a tool that is not in "
                               "'tools'");
    return !request->grammar.kind ||
           api_error_field(err, "tool_choice",
                           "'tool_choice' asks for a call, and '%s' for another answer: they "
                           "exclude each other",
                           request->grammar_field);
}
