#include "api/forced_call.h"

#include "base/json_memory.h"
#include "base/mem.h"
#include "request/constraint.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

enum { FORCED_CALL_PATH = 64 };

static const char forced_call_draft[] = "https://json-schema.org/draft/2020-12/schema";
static const char forced_call_wrapped[] = "#/allOf/1";

bool forced_call_is_wanted(const struct generation_request *request)
{
    return request->kind == GENERATION_CHAT && request->tool_choice == TOOL_CHOICE_REQUIRED;
}

static bool forced_call_allows(const struct generation_request *request, yyjson_val *tool)
{
    return !request->tool_name.data ||
           yyjson_equals_strn(yyjson_obj_get(yyjson_obj_get(tool, "function"), "name"),
                              request->tool_name.data, request->tool_name.size);
}

/* The only tool that may be called; NULL: there are several. */
static yyjson_val *forced_call_only(const struct generation_request *request, size_t *number)
{
    yyjson_val *only = NULL, *tool;
    size_t index, max, n = 0;
    yyjson_arr_foreach(request->tools, index, max, tool)
    {
        if (!forced_call_allows(request, tool))
            continue;
        only = tool;
        *number = index;
        n++;
    }
    return n == 1 ? only : NULL;
}

static yyjson_val *forced_call_parameters(yyjson_val *tool)
{
    yyjson_val *parameters = yyjson_obj_get(yyjson_obj_get(tool, "function"), "parameters");
    return yyjson_is_obj(parameters) ? parameters : NULL;
}

/* What `$schema` says; a grammar is of one draft. */
const char *forced_call_draft_of(yyjson_val *tool)
{
    yyjson_val *draft = yyjson_obj_get(forced_call_parameters(tool), "$schema");
    return yyjson_is_str(draft) ? yyjson_get_str(draft) : forced_call_draft;
}

/* Whether its values are objects for certain. In draft-07 a reference drops what is beside it. */
static bool forced_call_is_of_objects(yyjson_val *parameters)
{
    return yyjson_equals_str(yyjson_obj_get(parameters, "type"), "object") &&
           !yyjson_obj_get(parameters, "$ref");
}

/* The schema of a tool's arguments, which are an object whatever it says. An identifier of its own
 * keeps references (#/$defs/…) inside it. No parameters: no arguments. */
yyjson_mut_val *forced_call_arguments(yyjson_mut_doc *doc, yyjson_val *tool, size_t number)
{
    yyjson_val *parameters = forced_call_parameters(tool);
    char id[FORCED_CALL_PATH];
    snprintf(id, sizeof id, "tool-%zu/", number);
    if (!parameters) {
        yyjson_mut_val *none = yyjson_mut_obj(doc);
        yyjson_mut_obj_add_str(doc, none, "type", "object");
        yyjson_mut_obj_add_bool(doc, none, "additionalProperties", false);
        return none;
    }
    yyjson_mut_val *schema = yyjson_val_mut_copy(doc, parameters);
    yyjson_mut_obj_remove_key(schema, "$schema");
    if (!yyjson_mut_obj_get(schema, "$id"))
        yyjson_mut_obj_add_strcpy(doc, schema, "$id", id);
    if (forced_call_is_of_objects(parameters))
        return schema;
    yyjson_mut_val *all = yyjson_mut_arr(doc), *wrapped = yyjson_mut_obj(doc);
    yyjson_mut_obj_add_str(doc, yyjson_mut_arr_add_obj(doc, all), "type", "object");
    yyjson_mut_arr_append(all, schema);
    yyjson_mut_obj_add_val(doc, wrapped, "allOf", all);
    return wrapped;
}

yyjson_mut_val *forced_call_member(yyjson_mut_doc *doc, yyjson_val *tool, size_t number)
{
    yyjson_val *name = yyjson_obj_get(yyjson_obj_get(tool, "function"), "name");
    yyjson_mut_val *call = yyjson_mut_obj(doc);
    yyjson_mut_obj_add_str(doc, call, "type", "object");
    yyjson_mut_val *members = yyjson_mut_obj_add_obj(doc, call, "properties");
    yyjson_mut_val *wanted = yyjson_mut_obj_add_arr(doc, call, "required");
    yyjson_mut_obj_add_bool(doc, call, "additionalProperties", false);
    yyjson_mut_obj_add_val(doc, yyjson_mut_obj_add_obj(doc, members, "name"), "const",
                           yyjson_val_mut_copy(doc, name));
    yyjson_mut_obj_add_val(doc, members, "arguments", forced_call_arguments(doc, tool, number));
    yyjson_mut_arr_add_str(doc, wanted, "name");
    yyjson_mut_arr_add_str(doc, wanted, "arguments");
    return call;
}

/* One of {"name": …, "arguments": …}. */
static yyjson_mut_val *forced_call_any(yyjson_mut_doc *doc,
                                       const struct generation_request *request)
{
    yyjson_mut_val *root = yyjson_mut_obj(doc), *any = yyjson_mut_arr(doc);
    yyjson_val *tool;
    size_t index, max;
    yyjson_arr_foreach(request->tools, index, max, tool)
    {
        if (forced_call_allows(request, tool))
            yyjson_mut_arr_append(any, forced_call_member(doc, tool, index));
    }
    yyjson_mut_obj_add_val(doc, root, "anyOf", any);
    return root;
}

enum error_code forced_call_grammar(yyjson_mut_doc *doc, const yyjson_mut_val *root,
                                    enum grammar_kind kind, struct constraint **out,
                                    struct error *err)
{
    struct grammar_source source = {.kind = kind};
    enum error_code code = ERROR_NO_MEMORY;
    char *text = root ? yyjson_mut_val_write_opts(root, YYJSON_WRITE_NOFLAG, &json_memory,
                                                  &source.size, NULL)
                      : NULL;
    source.text = text;
    if (text)
        code = constraint_open(&source, out, err);
    else
        error_set(err, code, "not enough memory for the tools' schemas");
    mem_free(text);
    yyjson_mut_doc_free(doc);
    return code;
}

/* `tool` NULL: any that is allowed. */
static enum error_code forced_call_constraint(const struct generation_request *request,
                                              yyjson_val *tool, size_t number, const char *draft,
                                              struct constraint **out, struct error *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = !doc   ? NULL
                           : tool ? forced_call_arguments(doc, tool, number)
                                  : forced_call_any(doc, request);
    const bool made = root && yyjson_mut_obj_add_strcpy(doc, root, "$schema", draft);
    return forced_call_grammar(doc, made ? root : NULL, GRAMMAR_JSON_SCHEMA, out, err);
}

/* The path inside the parameters: what they were wrapped in is no part of it. */
static const char *forced_call_cause(yyjson_val *tool, struct error *cause)
{
    const size_t size = sizeof forced_call_wrapped - 1;
    if (forced_call_is_of_objects(forced_call_parameters(tool)) ||
        strncmp(cause->text, forced_call_wrapped, size) != 0)
        return cause->text;
    cause->text[size - 1] = '#';
    return cause->text + size - 1;
}

static bool forced_call_refuse(yyjson_val *tool, size_t number, struct error *cause,
                               struct api_error *err)
{
    char path[FORCED_CALL_PATH];
    snprintf(path, sizeof path, "tools[%zu].function.parameters", number);
    if (cause->code == ERROR_NO_MEMORY)
        return api_error_from(err, cause);
    return api_error_field(err, path, "'%s': %s", path, forced_call_cause(tool, cause));
}

bool forced_call_refuse_one(const struct generation_request *request, struct error *cause,
                            struct api_error *err)
{
    yyjson_val *tool;
    size_t index, max;
    yyjson_arr_foreach(request->tools, index, max, tool)
    {
        struct constraint *alone = NULL;
        struct error own;
        if (forced_call_constraint(request, tool, index, forced_call_draft_of(tool), &alone, &own))
            return forced_call_refuse(tool, index, &own, err);
        constraint_release(alone);
    }
    if (cause->code == ERROR_NO_MEMORY)
        return api_error_from(err, cause);
    return api_error_field(err, "tools", "'tools' as one schema: %s", cause->text);
}

/* They are parts of one schema. */
static bool forced_call_check_drafts(const struct generation_request *request,
                                     struct api_error *err)
{
    const char *draft = forced_call_draft_of(yyjson_arr_get_first(request->tools));
    yyjson_val *tool;
    size_t index, max;
    yyjson_arr_foreach(request->tools, index, max, tool)
    {
        char path[FORCED_CALL_PATH];
        snprintf(path, sizeof path, "tools[%zu].function.parameters", index);
        if (strcmp(forced_call_draft_of(tool), draft) != 0)
            return api_error_field(err, path,
                                   "'%s': #/$schema: differs from that of the first tool: where "
                                   "any may be called all must be of one draft",
                                   path);
    }
    return true;
}

bool forced_call_compile(const struct generation_request *request, struct constraint **out,
                         struct api_error *err)
{
    size_t number = 0;
    yyjson_val *only = forced_call_only(request, &number);
    struct error cause;
    if (only)
        return !forced_call_constraint(request, only, number, forced_call_draft_of(only), out,
                                       &cause) ||
               forced_call_refuse(only, number, &cause, err);
    if (!forced_call_check_drafts(request, err))
        return false;
    const char *draft = forced_call_draft_of(yyjson_arr_get_first(request->tools));
    return !forced_call_constraint(request, NULL, 0, draft, out, &cause) ||
           forced_call_refuse_one(request, &cause, err);
}

/* Harmony has the name in a message's header, and the arguments alone in it. */
static void forced_call_open_message(const char *name, const struct tool_format *format,
                                     struct buffer *prompt, struct buffer *opening)
{
    struct buffer header = {0};
    buffer_printf(&header, "<|channel|>commentary to=%s%s <|constrain|>json<|message|>",
                  format->prefix, name);
    buffer_append(prompt, header.data, header.size);
    buffer_append(opening, header.data, header.size);
    prompt->failed |= header.failed;
    buffer_deinit(&header);
}

void forced_call_open(const struct generation_request *request, struct template_traits *traits,
                      struct buffer *prompt, struct buffer *opening)
{
    size_t number;
    yyjson_val *only = forced_call_only(request, &number);
    const char *name = yyjson_get_str(yyjson_obj_get(yyjson_obj_get(only, "function"), "name"));
    const bool has_channels = traits->format->style == TOOL_STYLE_CHANNELS;
    if (has_channels && name) {
        forced_call_open_message(name, traits->format, prompt, opening);
        return;
    }
    if (has_channels) { /* one of several: its header would have to be chosen as well */
        buffer_text(prompt, "<|channel|>commentary<|message|>");
        traits->format = tool_format_named("generic");
    } else {
        buffer_text(prompt, traits->format->opening);
    }
    buffer_text(opening, traits->format->opening);
    if (name) {
        buffer_printf(prompt, "{\"name\": \"%s\", \"arguments\":", name);
        buffer_printf(opening, "{\"name\": \"%s\", \"arguments\":", name);
    }
}
