#include "api/dialect.h"

#include "api/exchange.h"
#include "api/json_out.h"
#include "base/json_memory.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void dialect_send(struct completion *completion, const char *name)
{
    struct exchange *exchange = completion->work.exchange;
    if (!exchange)
        return;
    if (completion->json.failed) {
        completion_answer_out_of_memory(completion);
        return;
    }
    if (completion->dialect->lines)
        exchange_lines_add(exchange, &completion->json);
    else
        exchange_stream_named(exchange, name, NULL, &completion->json);
    buffer_clear(&completion->json);
}

void dialect_member(struct buffer *out, const char *name)
{
    const char last = out->size ? out->data[out->size - 1] : '{';
    buffer_printf(out, "%s\"%s\":", last == '{' || last == '[' ? "" : ",", name);
}

void dialect_copy(struct buffer *out, const char *name, yyjson_val *value)
{
    if (!value || yyjson_is_null(value))
        return;
    size_t size = 0;
    char *json = yyjson_val_write_opts(value, YYJSON_WRITE_NOFLAG, &json_memory, &size, NULL);
    dialect_member(out, name);
    buffer_append(out, json ? json : "", size);
    out->failed |= !json;
    mem_free(json);
}

void dialect_json_text(struct buffer *out, yyjson_val *value)
{
    size_t size = 0;
    char *json = yyjson_val_write_opts(value, YYJSON_WRITE_NOFLAG, &json_memory, &size, NULL);
    json_out_string(out, json ? json : "", size);
    out->failed |= !json;
    mem_free(json);
}

void dialect_object(struct buffer *out, const char *json, size_t size)
{
    yyjson_doc *doc = size ? yyjson_read_opts((char *)(uintptr_t)json, size, YYJSON_READ_NOFLAG,
                                              &json_memory, NULL)
                           : NULL;
    if (yyjson_is_obj(yyjson_doc_get_root(doc)))
        buffer_append(out, json, size);
    else
        buffer_text(out, "{}");
    yyjson_doc_free(doc);
}

yyjson_doc *dialect_open(const char *body, size_t size, struct api_error *err)
{
    yyjson_read_err problem = {0};
    yyjson_doc *doc =
        yyjson_read_opts((char *)(uintptr_t)body, size, YYJSON_READ_NOFLAG, &json_memory, &problem);
    if (doc && yyjson_is_obj(yyjson_doc_get_root(doc)))
        return doc;
    if (doc || !size)
        api_error_set(err, 400, "invalid_request_error", NULL, "the body must be a JSON object");
    else if (problem.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        api_error_set(err, 503, "server_error", "no_memory", "not enough memory for the request");
    else
        api_error_set(err, 400, "invalid_request_error", "invalid_json",
                      "malformed JSON at byte %zu: %s", problem.pos, problem.msg);
    yyjson_doc_free(doc);
    return NULL;
}

bool dialect_check(yyjson_val *object, const char *at, const char *const *known,
                   struct api_error *err)
{
    size_t index, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(object, index, max, key, value)
    {
        size_t i = 0;
        while (known[i] && !yyjson_equals_str(key, known[i]))
            i++;
        if (!known[i] && !yyjson_is_null(value)) {
            char path[128];
            snprintf(path, sizeof path, "%s%s", at, yyjson_get_str(key));
            return api_error_field(err, path, "'%s' is not supported", path);
        }
    }
    return true;
}

static bool dialect_is(yyjson_val *value, enum dialect_type type)
{
    switch (type) {
    case DIALECT_TEXT:
        return yyjson_is_str(value);
    case DIALECT_FLAG:
        return yyjson_is_bool(value);
    case DIALECT_OBJECT:
        return yyjson_is_obj(value);
    case DIALECT_ARRAY:
        return yyjson_is_arr(value);
    }
    return false;
}

bool dialect_check_types(yyjson_val *object, const char *at, const struct dialect_field *fields,
                         struct api_error *err)
{
    static const char *const names[] = {[DIALECT_TEXT] = "a string",
                                        [DIALECT_FLAG] = "true or false",
                                        [DIALECT_OBJECT] = "an object",
                                        [DIALECT_ARRAY] = "an array"};
    for (; fields->name; fields++) {
        yyjson_val *value = yyjson_obj_get(object, fields->name);
        char path[128];
        if (!value || yyjson_is_null(value) || dialect_is(value, fields->type))
            continue;
        snprintf(path, sizeof path, "%s%s", at, fields->name);
        return api_error_field(err, path, "'%s' must be %s", path, names[fields->type]);
    }
    return true;
}
