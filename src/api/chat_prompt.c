#include "api/chat_prompt.h"

#include "api/forced_call.h"
#include "api/models.h"
#include "base/json_memory.h"
#include "base/mem.h"
#include "model/chat_template.h"

#include <string.h>

struct template_traits chat_prompt_traits(const struct api_model *model)
{
    size_t size;
    const char *text = chat_template_text(model->chat_template, &size);
    return template_traits_with_tools(template_traits_of(text, size));
}

/* ---- templates that know no tools ---- */

/* {"name", "arguments"} of each call, between the generic format's marks. */
static void append_calls(yyjson_mut_val *calls, struct buffer *text)
{
    size_t index, max;
    yyjson_mut_val *call;
    yyjson_mut_arr_foreach(calls, index, max, call)
    {
        char *json = yyjson_mut_val_write_opts(yyjson_mut_obj_get(call, "function"),
                                               YYJSON_WRITE_NOFLAG, &json_memory, NULL, NULL);
        text->failed |= !json;
        buffer_printf(text, "%s<tool_call>\n%s\n</tool_call>", text->size ? "\n" : "",
                      json ? json : "");
        mem_free(json);
    }
}

static void set_text(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *name,
                     struct buffer *text)
{
    yyjson_mut_obj_remove_key(object, name);
    yyjson_mut_obj_add_val(doc, object, name,
                           yyjson_mut_strncpy(doc, text->data ? text->data : "", text->size));
}

static bool plain_message(yyjson_mut_doc *doc, yyjson_mut_val *message)
{
    struct buffer text = {0};
    yyjson_mut_val *calls = yyjson_mut_obj_get(message, "tool_calls");
    const char *content = yyjson_mut_get_str(yyjson_mut_obj_get(message, "content"));
    if (calls) {
        buffer_text(&text, content ? content : "");
        append_calls(calls, &text);
        yyjson_mut_obj_remove_key(message, "tool_calls");
        set_text(doc, message, "content", &text);
    } else if (yyjson_mut_equals_str(yyjson_mut_obj_get(message, "role"), "tool")) {
        buffer_printf(&text, "<tool_response>\n%s\n</tool_response>", content ? content : "");
        set_text(doc, message, "content", &text);
        yyjson_mut_obj_remove_key(message, "role");
        yyjson_mut_obj_remove_key(message, "name");
        yyjson_mut_obj_remove_key(message, "tool_call_id");
        yyjson_mut_obj_add_str(doc, message, "role", "user");
    }
    const bool failed = text.failed;
    buffer_deinit(&text);
    return !failed;
}

static yyjson_mut_val *first_of_user(yyjson_mut_val *messages)
{
    size_t index, max;
    yyjson_mut_val *message;
    yyjson_mut_arr_foreach(messages, index, max, message)
    {
        if (yyjson_mut_equals_str(yyjson_mut_obj_get(message, "role"), "user"))
            return message;
    }
    return yyjson_mut_arr_get_first(messages);
}

/* In front of what the user says first: there are templates that drop the system's messages, or
 * refuse them. */
static bool describe_tools(yyjson_mut_doc *doc, yyjson_mut_val *messages, yyjson_val *tools,
                           const char *told)
{
    static const char generic[] = "a line <tool_call>, then {\"name\": its name, \"arguments\": an "
                                  "object}, then a line </tool_call>";
    struct buffer text = {0};
    yyjson_mut_val *first = first_of_user(messages);
    yyjson_mut_val *content = yyjson_mut_obj_get(first, "content");
    char *json = yyjson_val_write_opts(tools, YYJSON_WRITE_NOFLAG, &json_memory, NULL, NULL);
    buffer_printf(&text, "You may call tools. To call one, answer with %s. The tools:\n%s\n\n",
                  told ? told : generic, json ? json : "");
    buffer_append(&text, yyjson_mut_get_str(content), yyjson_mut_get_len(content));
    const bool ok = json && !text.failed;
    if (ok)
        set_text(doc, first, "content", &text);
    mem_free(json);
    buffer_deinit(&text);
    return ok;
}

static bool without_tools(yyjson_mut_doc *doc, yyjson_mut_val *messages, yyjson_val *tools)
{
    size_t index, max;
    yyjson_mut_val *message;
    yyjson_mut_arr_foreach(messages, index, max, message)
    {
        if (!plain_message(doc, message))
            return false;
    }
    return !tools || describe_tools(doc, messages, tools, NULL);
}

/* ---- templates that know them ---- */

static bool arguments_as_text(yyjson_mut_doc *doc, yyjson_mut_val *messages)
{
    size_t i, k, n_messages, n_calls;
    yyjson_mut_val *message, *call;
    yyjson_mut_arr_foreach(messages, i, n_messages, message)
    {
        yyjson_mut_arr_foreach(yyjson_mut_obj_get(message, "tool_calls"), k, n_calls, call)
        {
            yyjson_mut_val *function = yyjson_mut_obj_get(call, "function");
            char *json = yyjson_mut_val_write_opts(yyjson_mut_obj_get(function, "arguments"),
                                                   YYJSON_WRITE_NOFLAG, &json_memory, NULL, NULL);
            if (!json)
                return false;
            yyjson_mut_obj_remove_key(function, "arguments");
            yyjson_mut_obj_add_strcpy(doc, function, "arguments", json);
            mem_free(json);
        }
    }
    return true;
}

/* ---- reasoning ---- */

/* What a template calls the effort beyond "high". */
static const char *effort_for(const struct template_traits *traits, const char *effort)
{
    return strcmp(effort, "xhigh") == 0 && strcmp(traits->effort, "thinking_effort") == 0 ? "max"
                                                                                          : effort;
}

/* A template that has a switch gets it; where a model reasons and nothing can be set, another
 * effort than its own cannot be had. */
static bool set_effort(yyjson_mut_doc *doc, yyjson_mut_val *root,
                       const struct generation_request *request,
                       const struct template_traits *traits, struct api_error *err)
{
    const struct text *effort = &request->reasoning_effort;
    if (!effort->data)
        return true;
    const bool none = strcmp(effort->data, "none") == 0 || strcmp(effort->data, "minimal") == 0;
    if (traits->effort && strcmp(effort->data, "none") != 0)
        yyjson_mut_obj_add_strcpy(doc, root, traits->effort, effort_for(traits, effort->data));
    if (traits->thinking)
        yyjson_mut_obj_add_bool(doc, root, traits->thinking, !none);
    const bool reasons = traits->think || traits->format->style == TOOL_STYLE_CHANNELS;
    const bool can = traits->thinking || (traits->effort && strcmp(effort->data, "none") != 0);
    return can || !reasons || strcmp(effort->data, "medium") == 0 ||
           api_error_field(err, "reasoning_effort",
                           "'reasoning_effort' cannot be %s: this model's chat template has no "
                           "switch for it",
                           effort->data);
}

static void set_arguments(yyjson_mut_doc *doc, yyjson_mut_val *root, yyjson_val *arguments)
{
    size_t index, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(arguments, index, max, key, value)
    {
        yyjson_mut_obj_remove_key(root, yyjson_get_str(key));
        yyjson_mut_obj_add(root, yyjson_val_mut_copy(doc, key), yyjson_val_mut_copy(doc, value));
    }
}

/* The model's own message, where the request has none. */
static bool set_system(yyjson_mut_doc *doc, yyjson_mut_val *messages,
                       const struct generation_request *request)
{
    yyjson_mut_val *first = yyjson_mut_arr_get_first(messages);
    yyjson_mut_val *role = yyjson_mut_obj_get(first, "role");
    if (!request->system.data || yyjson_mut_equals_str(role, "system") ||
        yyjson_mut_equals_str(role, "developer"))
        return true;
    yyjson_mut_val *message = yyjson_mut_obj(doc);
    return yyjson_mut_obj_add_str(doc, message, "role", "system") &&
           yyjson_mut_obj_add_strn(doc, message, "content", request->system.data,
                                   request->system.size) &&
           yyjson_mut_arr_prepend(messages, message);
}

static bool chat_prompt_fit(yyjson_mut_doc *doc, const struct generation_request *request,
                            const struct template_traits *traits, struct api_error *err)
{
    yyjson_mut_val *root = yyjson_mut_doc_get_root(doc);
    yyjson_mut_val *messages = yyjson_mut_obj_get(root, "messages");
    yyjson_val *tools = request->tool_choice == TOOL_CHOICE_NONE ? NULL : request->tools;
    bool ok = set_system(doc, messages, request);
    const char *told = traits->knows_tools ? NULL : traits->format->told;
    if (ok && !traits->knows_tools && !told)
        ok = without_tools(doc, messages, tools);
    else if (ok && traits->arguments_as_text)
        ok = arguments_as_text(doc, messages);
    if (ok && tools && told)
        ok = describe_tools(doc, messages, tools, told);
    if (ok && tools && traits->knows_tools)
        ok = yyjson_mut_obj_add_val(doc, root, "tools", yyjson_val_mut_copy(doc, tools));
    if (!ok)
        return api_error_set(err, 503, "server_error", "no_memory",
                             "not enough memory for the prompt");
    if (!set_effort(doc, root, request, traits, err))
        return false;
    if (traits->thinking && (request->grammar.kind || forced_call_is_wanted(request)))
        yyjson_mut_obj_put(root, yyjson_mut_str(doc, traits->thinking),
                           yyjson_mut_bool(doc, false)); /* the answer begins at once */
    set_arguments(doc, root, request->template_arguments);
    return true;
}

bool chat_prompt_write(const struct generation_request *request,
                       const struct template_traits *traits, struct buffer *out,
                       struct api_error *err)
{
    const struct buffer *chat = &request->chat_json;
    yyjson_doc *read =
        yyjson_read_opts(chat->data, chat->size, YYJSON_READ_NOFLAG, &json_memory, NULL);
    yyjson_mut_doc *doc = read ? yyjson_doc_mut_copy(read, &json_memory) : NULL;
    *err = (struct api_error){0};
    const bool ok = doc && chat_prompt_fit(doc, request, traits, err);
    size_t size = 0;
    char *json =
        ok ? yyjson_mut_write_opts(doc, YYJSON_WRITE_NOFLAG, &json_memory, &size, NULL) : NULL;
    if (json)
        buffer_append(out, json, size);
    const bool written = json && !out->failed;
    yyjson_doc_free(read);
    yyjson_mut_doc_free(doc);
    mem_free(json);
    if (!written && !err->status)
        api_error_set(err, 503, "server_error", "no_memory", "not enough memory for the prompt");
    return written;
}
