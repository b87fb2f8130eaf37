#include "api/chosen_call.h"

#include "api/forced_call.h"
#include "base/json_memory.h"

#include <stdio.h>
#include <string.h>
#include <yyjson.h>

enum { CHOSEN_CALL_PATH = 64 };

/* Whether a form of the format has that part. */
static bool chosen_call_has(const struct tool_format *format, const char *part)
{
    bool has = false;
    for (size_t i = 0; i < TOOL_FORMS_MAX && format->call_forms[i]; i++)
        has |= strstr(format->call_forms[i], part) != NULL;
    return has;
}

static void chosen_call_add_marks(yyjson_mut_doc *doc, yyjson_mut_val *root, const char *name,
                                  const char *const *marks)
{
    yyjson_mut_val *list = marks[0] ? yyjson_mut_obj_add_arr(doc, root, name) : NULL;
    for (size_t i = 0; i < TOOL_MARKS_MAX && marks[i]; i++)
        yyjson_mut_arr_add_str(doc, list, marks[i]);
}

static void chosen_call_add_schema(yyjson_mut_doc *doc, yyjson_mut_val *to, const char *name,
                                   yyjson_mut_val *schema, yyjson_val *tool)
{
    yyjson_mut_obj_add_str(doc, schema, "$schema", forced_call_draft_of(tool));
    yyjson_mut_obj_add_val(doc, to, name, schema);
}

static void chosen_call_add_tools(yyjson_mut_doc *doc, yyjson_mut_val *root,
                                  const struct generation_request *request,
                                  const struct tool_format *format)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "tools");
    const bool whole = chosen_call_has(format, "%c") || chosen_call_has(format, "%l");
    const bool own = chosen_call_has(format, "%a");
    yyjson_val *tool;
    size_t index, max;
    yyjson_arr_foreach(request->tools, index, max, tool)
    {
        yyjson_val *name = yyjson_obj_get(yyjson_obj_get(tool, "function"), "name");
        yyjson_mut_val *to = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_val(doc, to, "name", yyjson_val_mut_copy(doc, name));
        if (whole)
            chosen_call_add_schema(doc, to, "call", forced_call_member(doc, tool, index), tool);
        if (own)
            chosen_call_add_schema(doc, to, "arguments", forced_call_arguments(doc, tool, index),
                                   tool);
    }
}

static yyjson_mut_val *chosen_call_source(yyjson_mut_doc *doc,
                                          const struct generation_request *request,
                                          const struct template_traits *traits, bool thinks)
{
    const struct tool_format *format = traits->format;
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    chosen_call_add_marks(doc, root, "begin",
                          format->call_begin[0] ? format->call_begin : format->begin);
    chosen_call_add_marks(doc, root, "tokens", format->tokens);
    chosen_call_add_marks(doc, root, "headers", format->call_headers);
    chosen_call_add_marks(doc, root, "forms", format->call_forms);
    if (traits->think) {
        const char *const marks[TOOL_MARKS_MAX] = {traits->think->begin, traits->think->end};
        chosen_call_add_marks(doc, root, "think", marks);
    }
    yyjson_mut_obj_add_bool(doc, root, "thinks", thinks);
    if (format->ends_thought)
        yyjson_mut_obj_add_bool(doc, root, "ends_thought", true);
    yyjson_mut_obj_add_bool(doc, root, "many", !request->one_call);
    chosen_call_add_tools(doc, root, request, format);
    return root;
}

static enum error_code chosen_call_open(const struct generation_request *request,
                                        const struct template_traits *traits, bool thinks,
                                        struct constraint **out, struct error *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? chosen_call_source(doc, request, traits, thinks) : NULL;
    return forced_call_grammar(doc, root, GRAMMAR_CALLS, out, err);
}

static bool chosen_call_refuse(const struct generation_request *request, const char *why,
                               struct api_error *err)
{
    char path[CHOSEN_CALL_PATH];
    snprintf(path, sizeof path, "tools[%u].function.strict", request->strict_tool - 1);
    return api_error_field(err, path,
                           "'%s' must be false where 'tool_choice' is \"auto\" and %s: require a "
                           "call, or name a tool",
                           path, why);
}

bool chosen_call_compile(const struct generation_request *request,
                         const struct template_traits *traits, bool thinks, struct constraint **out,
                         struct api_error *err)
{
    const bool is_strict = request->strict_tool != 0;
    const struct tool_format *format = traits->format;
    char why[128];
    struct error cause;
    if (!request->tools || request->tool_choice != TOOL_CHOICE_AUTO)
        return true;
    if (request->grammar.kind) {
        snprintf(why, sizeof why, "'%s' says what the answer is", request->grammar_field);
        return !is_strict || chosen_call_refuse(request, why, err);
    }
    if (!format->call_forms[0]) {
        snprintf(why, sizeof why, "calls have the %s format, in which no mark begins them",
                 format->name);
        return !is_strict || chosen_call_refuse(request, why, err);
    }
    if (!is_strict && format->is_not_own)
        return true;
    const enum error_code code = chosen_call_open(request, traits, thinks, out, &cause);
    if (code == ERROR_NO_MEMORY)
        return api_error_from(err, &cause);
    return !code || !is_strict || forced_call_refuse_one(request, &cause, err);
}
