#include "api/model_defaults.h"

#include "api/json_in.h"
#include "base/json_memory.h"
#include "base/mem.h"

#include <string.h>

static bool model_defaults_is_given(const struct generation_request *request, const char *name)
{
    yyjson_val *root = yyjson_doc_get_root(request->doc), *value = yyjson_obj_get(root, name);
    const bool is_same = strcmp(name, "max_tokens") == 0 &&
                         model_defaults_is_given(request, "max_completion_tokens");
    return is_same || (value && !yyjson_is_null(value));
}

static void model_defaults_set(struct generation_request *request, const char *name,
                               yyjson_val *value)
{
    const struct generation_request before = *request;
    struct api_error ignored;
    struct json_in in = {.err = &ignored, .out = request};
    for (const struct json_field *field = generation_request_fields(); field->name; field++) {
        if (strcmp(field->name, name) != 0 ||
            (field->kinds && !(field->kinds & 1u << request->kind)))
            continue;
        if (!field->read(&in, name, value))
            *request = before; /* numbers and stop strings alone: none of it is to be freed */
        return;
    }
}

bool model_defaults_apply(struct generation_request *request, const char *json)
{
    static const char *const settable[] = {"temperature",
                                           "top_p",
                                           "top_k",
                                           "min_p",
                                           "typical_p",
                                           "repeat_penalty",
                                           "presence_penalty",
                                           "frequency_penalty",
                                           "seed",
                                           "stop",
                                           "max_tokens",
                                           NULL};
    yyjson_doc *doc =
        json ? yyjson_read_opts((char *)(uintptr_t)json, strlen(json), 0, &json_memory, NULL)
             : NULL;
    yyjson_val *root = yyjson_doc_get_root(doc), *value;
    for (const char *const *name = settable; *name; name++) {
        value = yyjson_obj_get(root, *name);
        if (value && !model_defaults_is_given(request, *name))
            model_defaults_set(request, *name, value);
    }
    value = yyjson_obj_get(root, "system");
    if (yyjson_is_str(value))
        request->system = (struct text){yyjson_get_str(value), yyjson_get_len(value)};
    request->defaults = doc;
    return doc || !json;
}

static void model_defaults_line(const char *name, yyjson_val *value, struct buffer *out)
{
    char *text = yyjson_val_write_opts(value, YYJSON_WRITE_NOFLAG, &json_memory, NULL, NULL);
    if (text)
        buffer_printf(out, "%s%-30s %s", out->size ? "\n" : "", name, text);
    else
        out->failed = true;
    mem_free(text);
}

void model_defaults_show(const char *json, struct buffer *parameters, struct buffer *system)
{
    yyjson_doc *doc =
        json ? yyjson_read_opts((char *)(uintptr_t)json, strlen(json), 0, &json_memory, NULL)
             : NULL;
    yyjson_val *key, *value, *element;
    size_t index, max, i, n;
    yyjson_obj_foreach(yyjson_doc_get_root(doc), index, max, key, value)
    {
        const char *name = yyjson_get_str(key);
        const char *shown = strcmp(name, "max_tokens") == 0 ? "num_predict" : name;
        if (strcmp(name, "system") == 0 && yyjson_is_str(value))
            buffer_append(system, yyjson_get_str(value), yyjson_get_len(value));
        else if (yyjson_is_arr(value))
            yyjson_arr_foreach(value, i, n, element)
                model_defaults_line(shown, element, parameters);
        else
            model_defaults_line(shown, value, parameters);
    }
    yyjson_doc_free(doc);
}
