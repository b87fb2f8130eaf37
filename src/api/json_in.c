#include "api/json_in.h"

#include "base/json_memory.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

bool json_in_no_memory(struct json_in *in)
{
    return api_error_set(in->err, 503, "server_error", "no_memory",
                         "not enough memory for the request");
}

static bool json_in_read_fields(struct json_in *in, yyjson_val *root,
                                const struct json_field *fields, unsigned kind)
{
    uint64_t seen = 0;
    size_t index, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(root, index, max, key, value)
    {
        const char *name = yyjson_get_str(key);
        size_t row = 0;
        while (fields[row].name && (!yyjson_equals_str(key, fields[row].name) ||
                                    (fields[row].kinds && !(fields[row].kinds & 1u << kind))))
            row++;
        if (!fields[row].name)
            return api_error_field(in->err, name, "Unrecognized request argument supplied: %s",
                                   name);
        if (seen & UINT64_C(1) << row)
            return api_error_field(in->err, name, "'%s' is given twice", name);
        seen |= UINT64_C(1) << row;
        if (yyjson_is_null(value)) {
            if (fields[row].required)
                return api_error_field(in->err, name, "'%s' must not be null", name);
            continue;
        }
        if (!fields[row].read(in, fields[row].name, value))
            return false;
    }
    for (size_t row = 0; fields[row].name; row++) {
        if (fields[row].required && !(seen & UINT64_C(1) << row) &&
            (!fields[row].kinds || fields[row].kinds & 1u << kind))
            return api_error_field(in->err, fields[row].name, "you must provide '%s'",
                                   fields[row].name);
    }
    return true;
}

bool json_in_object(struct json_in *in, const char *body, size_t size,
                    const struct json_field *fields, unsigned kind, yyjson_doc **doc)
{
    yyjson_read_err problem;
    /* Without the INSITU flag yyjson does not write to the body, though its parameter is not
     * const. */
    *doc = size ? yyjson_read_opts((char *)(uintptr_t)body, size, YYJSON_READ_NOFLAG, &json_memory,
                                   &problem)
                : NULL;
    if (!size)
        return api_error_set(in->err, 400, "invalid_request_error", NULL,
                             "the body is empty; it must be a JSON object");
    if (!*doc && problem.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return json_in_no_memory(in);
    if (!*doc)
        return api_error_set(in->err, 400, "invalid_request_error", "invalid_json",
                             "malformed JSON at byte %zu: %s", problem.pos, problem.msg);
    yyjson_val *root = yyjson_doc_get_root(*doc);
    bool ok = yyjson_is_obj(root);
    if (!ok)
        api_error_set(in->err, 400, "invalid_request_error", NULL,
                      "the body must be a JSON object");
    ok = ok && json_in_read_fields(in, root, fields, kind);
    if (!ok) {
        yyjson_doc_free(*doc);
        *doc = NULL;
    }
    return ok;
}

bool json_in_bool(struct json_in *in, const char *name, yyjson_val *value, bool *out)
{
    if (!yyjson_is_bool(value))
        return api_error_field(in->err, name, "'%s' must be true or false", name);
    *out = yyjson_get_bool(value);
    return true;
}

bool json_in_text(struct json_in *in, const char *name, yyjson_val *value, struct text *out)
{
    if (!yyjson_is_str(value))
        return api_error_field(in->err, name, "'%s' must be a string", name);
    *out = (struct text){yyjson_get_str(value), yyjson_get_len(value)};
    return true;
}

bool json_in_float(struct json_in *in, const char *name, yyjson_val *value, double low, double high,
                   float *out)
{
    if (!yyjson_is_num(value))
        return api_error_field(in->err, name, "'%s' must be a number", name);
    double number = yyjson_get_num(value);
    if (!(number >= low && number <= high))
        return api_error_field(in->err, name, "'%s' must be between %g and %g", name, low, high);
    *out = (float)number;
    return true;
}

bool json_in_u32(struct json_in *in, const char *name, yyjson_val *value, uint32_t low,
                 uint32_t high, uint32_t *out)
{
    /* 100.0 is an integer in JSON's sense, and some clients write it so. */
    double number = yyjson_is_num(value) ? yyjson_get_num(value) : NAN;
    if (isnan(number) || number != floor(number))
        return api_error_field(in->err, name, "'%s' must be an integer", name);
    if (number < low || number > high)
        return api_error_field(in->err, name, "'%s' must be between %u and %u", name, low, high);
    *out = (uint32_t)number;
    return true;
}

bool json_in_tokens(struct json_in *in, const char *name, yyjson_val *array, int32_t **out,
                    uint32_t *count)
{
    if (!yyjson_is_arr(array))
        return api_error_field(in->err, name, "'%s' must be an array of token ids", name);
    if (yyjson_arr_size(array) > LIMIT_CONTEXT)
        return api_error_field(in->err, name, "'%s' has more than %d tokens", name, LIMIT_CONTEXT);
    int32_t *ids = mem_new_array(yyjson_arr_size(array), sizeof *ids);
    if (!ids)
        return json_in_no_memory(in);
    size_t index, max;
    yyjson_val *value;
    yyjson_arr_foreach(array, index, max, value)
    {
        if (!yyjson_is_uint(value) || yyjson_get_uint(value) >= LIMIT_VOCAB) {
            mem_free(ids);
            return api_error_field(in->err, name, "'%s': element %zu is not a token id", name,
                                   index);
        }
        ids[index] = (int32_t)yyjson_get_uint(value);
    }
    *out = ids;
    *count = (uint32_t)yyjson_arr_size(array);
    return true;
}

void prompt_inputs_free(struct prompt_input *inputs, uint32_t count)
{
    for (uint32_t i = 0; inputs && i < count; i++)
        mem_free(inputs[i].tokens);
    mem_free(inputs);
}

static bool read_prompt(struct json_in *in, const char *name, yyjson_val *value,
                        struct prompt_input *out)
{
    if (yyjson_is_arr(value))
        return json_in_tokens(in, name, value, &out->tokens, &out->n_tokens);
    if (yyjson_is_str(value))
        return json_in_text(in, name, value, &out->text);
    return api_error_field(
        in->err, name, "'%s' must be a string, an array of strings or an array of token ids", name);
}

bool json_in_prompts(struct json_in *in, const char *name, yyjson_val *value,
                     struct prompt_input **out, uint32_t *count)
{
    yyjson_val *first = yyjson_arr_get_first(value);
    bool many = first && !yyjson_is_num(first);
    size_t n = many ? yyjson_arr_size(value) : 1;
    if (yyjson_is_arr(value) && !first)
        return api_error_field(in->err, name, "'%s' is an empty array", name);
    if (n > LIMIT_PROMPTS)
        return api_error_field(in->err, name, "'%s' has %zu elements; at most %d are allowed", name,
                               n, LIMIT_PROMPTS);
    struct prompt_input *inputs = mem_new_array(n, sizeof *inputs);
    if (!inputs)
        return json_in_no_memory(in);
    bool ok = true;
    size_t index, max;
    yyjson_val *element;
    if (!many) {
        ok = read_prompt(in, name, value, &inputs[0]);
    } else {
        yyjson_arr_foreach(value, index, max, element)
        {
            ok = ok && read_prompt(in, name, element, &inputs[index]);
        }
    }
    if (!ok) {
        prompt_inputs_free(inputs, (uint32_t)n);
        return false;
    }
    *out = inputs;
    *count = (uint32_t)n;
    return true;
}

bool json_in_unsupported(struct json_in *in, const char *name, yyjson_val *value)
{
    (void)value;
    return api_error_field(in->err, name, "'%s' is not supported", name);
}

bool json_in_ignored_text(struct json_in *in, const char *name, yyjson_val *value)
{
    struct text unused;
    return json_in_text(in, name, value, &unused);
}
