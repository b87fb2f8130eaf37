#include "client/client_json.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool client_json_fail(struct medley_error *err, enum medley_error_code code, const char *format,
                      ...)
{
    va_list args;
    err->code = code;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return false;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Takes the document. */
static bool client_json_write(yyjson_mut_doc *doc, struct buffer *body, struct medley_error *err)
{
    size_t size;
    yyjson_write_err problem = {0};
    char *text = yyjson_mut_write_opts(doc, 0, NULL, &size, &problem);
    yyjson_mut_doc_free(doc);
    if (!text && problem.code != YYJSON_WRITE_ERROR_MEMORY_ALLOCATION)
        return client_json_fail(err, MEDLEY_ERROR_INVALID, "a text of the request is not UTF-8: %s",
                                problem.msg);
    if (text)
        buffer_append(body, text, size);
    free(text);
    return (text && !body->failed) ||
           client_json_fail(err, MEDLEY_ERROR_NO_MEMORY, "not enough memory for the request");
}

static yyjson_mut_val *client_json_object(yyjson_mut_doc **doc)
{
    *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = *doc ? yyjson_mut_obj(*doc) : NULL;
    if (root)
        yyjson_mut_doc_set_root(*doc, root);
    return root;
}

bool client_json_ask_forecast(const struct medley_forecast_question *question, struct buffer *body,
                              struct medley_error *err)
{
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = client_json_object(&doc);
    if (!question->model) {
        yyjson_mut_doc_free(doc);
        return client_json_fail(err, MEDLEY_ERROR_INVALID, "a forecast is of a model: name it");
    }
    yyjson_mut_obj_add_strcpy(doc, root, "model", question->model);
    if (question->context_tokens)
        yyjson_mut_obj_add_uint(doc, root, "context", question->context_tokens);
    if (question->streams)
        yyjson_mut_obj_add_uint(doc, root, "streams", question->streams);
    return client_json_write(doc, body, err);
}

static void client_json_add_messages(const struct medley_generation *generation,
                                     yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "messages");
    for (uint32_t i = 0; i < generation->n_messages; i++) {
        const struct medley_message *message = &generation->messages[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_strcpy(doc, item, "role", message->role ? message->role : "");
        yyjson_mut_obj_add_strcpy(doc, item, "content", message->content ? message->content : "");
    }
}

/* The members of an object. */
static bool client_json_add_more(const char *json, yyjson_mut_doc *doc, yyjson_mut_val *root,
                                 struct medley_error *err)
{
    yyjson_doc *more = yyjson_read(json, strlen(json), 0);
    yyjson_val *key;
    size_t at, n;
    yyjson_val *value;
    const bool good = yyjson_is_obj(yyjson_doc_get_root(more));
    yyjson_obj_foreach(yyjson_doc_get_root(more), at, n, key, value)
    {
        yyjson_mut_obj_put(root, yyjson_val_mut_copy(doc, key), yyjson_val_mut_copy(doc, value));
    }
    yyjson_doc_free(more);
    return good || client_json_fail(err, MEDLEY_ERROR_INVALID, "more_json is no JSON object");
}

bool client_json_ask_generation(const struct medley_generation *generation, struct buffer *body,
                                struct medley_error *err)
{
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = client_json_object(&doc);
    if (!root)
        return client_json_fail(err, MEDLEY_ERROR_NO_MEMORY, "not enough memory for the request");
    yyjson_mut_obj_add_strcpy(doc, root, "model", generation->model ? generation->model : "");
    if (generation->n_messages)
        client_json_add_messages(generation, doc, root);
    else if (generation->prompt)
        yyjson_mut_obj_add_strcpy(doc, root, "prompt", generation->prompt);
    if (generation->max_tokens)
        yyjson_mut_obj_add_uint(doc, root, "max_tokens", generation->max_tokens);
    bool good = generation->n_messages || generation->prompt ||
                client_json_fail(err, MEDLEY_ERROR_INVALID,
                                 "nothing to generate from: give messages or a prompt");
    if (good && generation->more_json)
        good = client_json_add_more(generation->more_json, doc, root, err);
    if (!good) {
        yyjson_mut_doc_free(doc);
        return false;
    }
    yyjson_mut_obj_put(root, yyjson_mut_str(doc, "stream"), yyjson_mut_bool(doc, true));
    yyjson_mut_val *options = yyjson_mut_obj(doc);
    yyjson_mut_obj_add_bool(doc, options, "include_usage", true);
    yyjson_mut_obj_put(root, yyjson_mut_str(doc, "stream_options"), options);
    return client_json_write(doc, body, err);
}

/* ---- answers --------------------------------------------------------------------------------- */

static enum medley_error_code client_json_code(unsigned http_status)
{
    switch (http_status) {
    case 404:
        return MEDLEY_ERROR_NOT_FOUND;
    case 409:
    case 429:
    case 503:
        return MEDLEY_ERROR_BUSY;
    default:
        return http_status >= 400 && http_status < 500 ? MEDLEY_ERROR_INVALID
                                                       : MEDLEY_ERROR_INTERNAL;
    }
}

/* In a stream the error's type says what the status would. */
static enum medley_error_code client_json_code_of_type(const char *type)
{
    if (!type)
        return MEDLEY_ERROR_INTERNAL;
    if (strcmp(type, "invalid_request_error") == 0 || strcmp(type, "permission_error") == 0 ||
        strcmp(type, "authentication_error") == 0)
        return MEDLEY_ERROR_INVALID;
    return strcmp(type, "rate_limit_error") == 0 || strcmp(type, "server_error") == 0
               ? MEDLEY_ERROR_BUSY
               : MEDLEY_ERROR_INTERNAL;
}

void client_json_read_error(unsigned http_status, yyjson_val *root, struct medley_error *err)
{
    yyjson_val *error = yyjson_obj_get(root, "error");
    const char *text = yyjson_get_str(yyjson_obj_get(error, "message"));
    const char *type = yyjson_get_str(yyjson_obj_get(error, "type"));
    const enum medley_error_code code =
        http_status ? client_json_code(http_status) : client_json_code_of_type(type);
    if (text)
        client_json_fail(err, code, "%s", text);
    else
        client_json_fail(err, code, "the node answered with status %u and no reason", http_status);
}

bool client_json_read_models(yyjson_val *root, struct medley_model **models, uint32_t *n,
                             struct medley_error *err)
{
    yyjson_val *list = yyjson_obj_get(root, "data"), *item;
    size_t at, size;
    *n = 0;
    *models = NULL;
    if (!yyjson_is_arr(list))
        return client_json_fail(err, MEDLEY_ERROR_INTERNAL, "the node's answer lists no models");
    *models = mem_new_array(yyjson_arr_size(list) + 1, sizeof **models);
    if (!*models)
        return client_json_fail(err, MEDLEY_ERROR_NO_MEMORY, "not enough memory for the answer");
    yyjson_arr_foreach(list, at, size, item)
    {
        const char *id = yyjson_get_str(yyjson_obj_get(item, "id"));
        if (id)
            (*models)[(*n)++] = (struct medley_model){
                .id = id, .created_s = yyjson_get_uint(yyjson_obj_get(item, "created"))};
    }
    return true;
}

static uint32_t client_json_u32(yyjson_val *object, const char *key)
{
    const uint64_t value = yyjson_get_uint(yyjson_obj_get(object, key));
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static const char *client_json_text(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));
    return text ? text : "";
}

bool client_json_read_forecast(yyjson_val *root, struct medley_forecast *forecast,
                               struct medley_forecast_stage **stages, struct medley_error *err)
{
    yyjson_val *best = yyjson_obj_get(root, "best"), *list = yyjson_obj_get(best, "stages"), *item;
    size_t at, size;
    *forecast = (struct medley_forecast){
        .possible = yyjson_get_bool(yyjson_obj_get(root, "possible")),
        .problem = yyjson_get_str(yyjson_obj_get(root, "problem")),
        .decode_tokens_per_s = yyjson_get_num(yyjson_obj_get(best, "decode_tokens_per_s")),
        .prefill_tokens_per_s = yyjson_get_num(yyjson_obj_get(best, "prefill_tokens_per_s"))};
    *stages = mem_new_array(yyjson_arr_size(list) + 1, sizeof **stages);
    if (!yyjson_is_obj(root))
        return client_json_fail(err, MEDLEY_ERROR_INTERNAL, "the node's answer is no forecast");
    if (!*stages)
        return client_json_fail(err, MEDLEY_ERROR_NO_MEMORY, "not enough memory for the answer");
    yyjson_arr_foreach(list, at, size, item)
    {
        (*stages)[forecast->n_stages++] = (struct medley_forecast_stage){
            .node = client_json_text(item, "node"),
            .device = client_json_text(item, "device"),
            .first_layer = client_json_u32(item, "first_layer"),
            .n_layers = client_json_u32(item, "layers"),
            .memory_bytes = yyjson_get_uint(yyjson_obj_get(item, "memory_bytes"))};
    }
    forecast->stages = *stages;
    return true;
}

static void client_json_tell(yyjson_val *text, bool is_reasoning, uint32_t choice,
                             void (*tell)(void *self, const struct medley_piece *piece), void *self)
{
    if (yyjson_get_len(text))
        tell(self, &(struct medley_piece){.text = yyjson_get_str(text),
                                          .size = yyjson_get_len(text),
                                          .is_reasoning = is_reasoning,
                                          .choice = choice});
}

void client_json_read_event(yyjson_val *root, struct medley_client_request *request,
                            void (*tell)(void *self, const struct medley_piece *piece), void *self)
{
    yyjson_val *choice = yyjson_arr_get_first(yyjson_obj_get(root, "choices"));
    yyjson_val *delta = yyjson_obj_get(choice, "delta"), *usage = yyjson_obj_get(root, "usage");
    const char *reason = yyjson_get_str(yyjson_obj_get(choice, "finish_reason"));
    if (reason)
        snprintf(request->finish_reason, sizeof request->finish_reason, "%s", reason);
    if (yyjson_is_obj(usage)) {
        request->prompt_tokens = yyjson_get_uint(yyjson_obj_get(usage, "prompt_tokens"));
        request->completion_tokens = yyjson_get_uint(yyjson_obj_get(usage, "completion_tokens"));
    }
    const uint32_t index = client_json_u32(choice, "index");
    client_json_tell(yyjson_obj_get(delta, "reasoning_content"), true, index, tell, self);
    client_json_tell(yyjson_obj_get(delta, "content"), false, index, tell, self);
    client_json_tell(yyjson_obj_get(choice, "text"), false, index, tell, self);
}
