#include "api/request_grammar.h"

#include "api/request_json.h"
#include "base/json_memory.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* The value's text: a text's own, else its JSON. */
static bool request_grammar_set(struct json_in *in, const char *name, enum grammar_kind kind,
                                yyjson_val *value, bool is_text)
{
    struct generation_request *request = in->out;
    if (request->grammar.kind)
        return api_error_field(in->err, name, "'%s' and '%s' exclude each other",
                               request->grammar_field, name);
    request->grammar.kind = kind;
    snprintf(request->grammar_field, sizeof request->grammar_field, "%s", name);
    if (is_text) {
        buffer_append(&request->grammar_text, yyjson_get_str(value), yyjson_get_len(value));
    } else if (value) {
        size_t size = 0;
        char *text = yyjson_val_write_opts(value, 0, &json_memory, &size, NULL);
        if (!text)
            return json_in_no_memory(in);
        buffer_append(&request->grammar_text, text, size);
        mem_free(text);
    }
    if (request->grammar_text.failed)
        return json_in_no_memory(in);
    request->grammar.text = request->grammar_text.data;
    request->grammar.size = request->grammar_text.size;
    return request->grammar.size <= LIMIT_GRAMMAR_BYTES ||
           api_error_field(in->err, name, "'%s' has %zu bytes; at most %d are allowed", name,
                           request->grammar.size, LIMIT_GRAMMAR_BYTES);
}

static bool request_read_json_schema(struct json_in *in, yyjson_val *format)
{
    static const char name[] = "response_format.json_schema";
    yyjson_val *wrapped = yyjson_obj_get(format, "json_schema"), *key, *value;
    size_t index, max;
    if (!yyjson_is_obj(wrapped))
        return api_error_field(in->err, name, "'%s' must be an object with a 'schema'", name);
    yyjson_obj_foreach(wrapped, index, max, key, value)
    {
        static const char *const known[] = {"name", "description", "schema", "strict"};
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known |= yyjson_equals_str(key, known[i]);
        if (!is_known)
            return api_error_field(in->err, name, "'%s.%s' is not known", name,
                                   yyjson_get_str(key));
    }
    yyjson_val *schema = yyjson_obj_get(wrapped, "schema");
    if (!schema || yyjson_is_null(schema))
        return request_grammar_set(in, name, GRAMMAR_JSON_OBJECT, NULL, false);
    return request_grammar_set(in, "response_format.json_schema.schema", GRAMMAR_JSON_SCHEMA,
                               schema, false);
}

bool request_read_response_format(struct json_in *in, const char *name, yyjson_val *value)
{
    yyjson_val *type = yyjson_obj_get(value, "type");
    if (yyjson_equals_str(type, "text") && yyjson_obj_size(value) == 1)
        return true;
    if (yyjson_equals_str(type, "json_object") && yyjson_obj_size(value) == 1)
        return request_grammar_set(in, name, GRAMMAR_JSON_OBJECT, NULL, false);
    if (yyjson_equals_str(type, "json_schema") && yyjson_obj_size(value) == 2)
        return request_read_json_schema(in, value);
    return api_error_field(in->err, name,
                           "'response_format' must be {\"type\": \"text\"}, {\"type\": "
                           "\"json_object\"} or {\"type\": \"json_schema\", \"json_schema\": …}");
}

bool request_read_grammar(struct json_in *in, const char *name, yyjson_val *value)
{
    const bool is_text = yyjson_is_str(value);
    if (strcmp(name, "guided_json") == 0)
        return is_text || yyjson_is_obj(value) || yyjson_is_bool(value)
                   ? request_grammar_set(in, name, GRAMMAR_JSON_SCHEMA, value, is_text)
                   : api_error_field(in->err, name, "'guided_json' must be a JSON schema");
    if (strcmp(name, "guided_choice") == 0)
        return yyjson_is_arr(value)
                   ? request_grammar_set(in, name, GRAMMAR_CHOICE, value, false)
                   : api_error_field(in->err, name, "'guided_choice' must be an array of texts");
    if (!is_text)
        return api_error_field(in->err, name, "'%s' must be a text", name);
    const bool is_regex = strcmp(name, "guided_regex") == 0;
    return request_grammar_set(in, name, is_regex ? GRAMMAR_REGEX : GRAMMAR_GBNF, value, true);
}
