#include "grpc/method.h"

#include "grpc/frame.h"
#include "grpc/transcode.h"

#include "medley.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define GRPC_METHOD(Name, Message)                                                                 \
    "/medley.v1.Medley/" Name, &medley__v1__##Message##_request__descriptor,                       \
        &medley__v1__##Message##_response__descriptor

static const struct grpc_method grpc_methods[] = {
    {GRPC_METHOD("ListModels", list_models), "/v1/models", true, GRPC_SHAPE_MEMBERS},
    {GRPC_METHOD("ListNodes", list_nodes), "/api/nodes", true, GRPC_SHAPE_MEMBERS},
    {GRPC_METHOD("Watch", watch), "/api/live", true, GRPC_SHAPE_NAMED},
    {GRPC_METHOD("Forecast", forecast), "/api/plan", false, GRPC_SHAPE_MEMBERS},
    {GRPC_METHOD("Place", place), "/api/place", false, GRPC_SHAPE_PLACE},
    {GRPC_METHOD("Unload", unload), "/api/unload", false, GRPC_SHAPE_MEMBERS},
    {GRPC_METHOD("Generate", generate), NULL, false, GRPC_SHAPE_MEMBERS},
};

const struct grpc_method *grpc_method_find(const char *path)
{
    for (size_t i = 0; i < sizeof grpc_methods / sizeof *grpc_methods; i++) {
        if (strcmp(grpc_methods[i].path, path) == 0)
            return &grpc_methods[i];
    }
    return NULL;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Pieces as they come, and what they cost with the last. */
static bool grpc_method_stream(yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    yyjson_mut_val *options = yyjson_mut_obj_add_obj(doc, root, "stream_options");
    return yyjson_mut_obj_add_bool(doc, root, "stream", true) &&
           yyjson_mut_obj_add_bool(doc, options, "include_usage", true);
}

static void grpc_method_write(const struct grpc_method *method, const char *path,
                              const struct buffer *headers, const char *body, size_t size,
                              struct buffer *request)
{
    buffer_printf(request, "%s %s HTTP/1.0\r\n", method->is_get ? "GET" : "POST", path);
    if (headers->size)
        buffer_append(request, headers->data, headers->size);
    if (!method->is_get)
        buffer_printf(request, "Content-Type: application/json\r\nContent-Length: %zu\r\n", size);
    buffer_text(request, "\r\n");
    if (!method->is_get)
        buffer_append(request, body, size);
}

/* The message as JSON; NULL: *status says why not. To be freed. */
static char *grpc_method_body(const struct grpc_method *method, const ProtobufCMessage *message,
                              size_t *size, struct grpc_status *status)
{
    struct error err = {ERROR_NO_MEMORY, "not enough memory for the request"};
    yyjson_write_err problem = {.code = YYJSON_WRITE_ERROR_MEMORY_ALLOCATION};
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    char *body = NULL;
    if (root) {
        yyjson_mut_doc_set_root(doc, root);
        if (!transcode_to_json(message, doc, root, &err) &&
            (method->http_path || grpc_method_stream(doc, root)))
            body = yyjson_mut_write_opts(doc, 0, NULL, size, &problem);
    }
    yyjson_mut_doc_free(doc);
    if (body)
        return body;
    if (problem.code != YYJSON_WRITE_ERROR_MEMORY_ALLOCATION)
        grpc_status_set(status, GRPC_INVALID_ARGUMENT,
                        "a text of the message is not UTF-8, or a number is not finite: %s",
                        problem.msg);
    else
        grpc_status_set(status,
                        err.code == ERROR_INVALID ? GRPC_INVALID_ARGUMENT : GRPC_RESOURCE_EXHAUSTED,
                        "%s", err.text);
    return NULL;
}

bool grpc_method_ask(struct grpc_asked *asked, const void *message, size_t size,
                     const struct buffer *headers, struct buffer *request,
                     struct grpc_status *status)
{
    const struct grpc_method *method = asked->method;
    const char *path = method->http_path;
    ProtobufCMessage *read =
        protobuf_c_message_unpack(method->request, NULL, size, size ? message : "");
    if (!read) {
        grpc_status_set(status, GRPC_INVALID_ARGUMENT, "the message is no %s: see medley.proto",
                        method->request->name);
        return false;
    }
    if (method->request == &medley__v1__generate_request__descriptor) {
        const Medley__V1__GenerateRequest *generate = (const Medley__V1__GenerateRequest *)read;
        path =
            generate->n_messages || !generate->prompt ? "/v1/chat/completions" : "/v1/completions";
    } else if (method->request == &medley__v1__watch_request__descriptor) {
        asked->events_only = ((const Medley__V1__WatchRequest *)read)->events_only;
    }
    size_t body_size = 0;
    char *body = grpc_method_body(method, read, &body_size, status);
    protobuf_c_message_free_unpacked(read, NULL);
    if (!body)
        return false;
    grpc_method_write(method, path, headers, body, body_size, request);
    free(body);
    if (request->failed)
        grpc_status_set(status, GRPC_RESOURCE_EXHAUSTED, "not enough memory for the request");
    return !request->failed;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void grpc_method_read_error(yyjson_val *error, enum grpc_code code,
                                   struct grpc_status *status)
{
    const char *text = yyjson_get_str(yyjson_obj_get(error, "message"));
    if (!text)
        text = yyjson_get_str(yyjson_obj_get(error, "text"));
    grpc_status_set(status, code, "%s", text ? text : "the node gave no reason");
}

void grpc_method_fail(unsigned http_status, const struct grpc_reply_piece *piece,
                      struct grpc_status *status)
{
    yyjson_doc *doc =
        yyjson_read(piece->data ? piece->data : "", piece->size, YYJSON_READ_ALLOW_INVALID_UNICODE);
    grpc_method_read_error(yyjson_obj_get(yyjson_doc_get_root(doc), "error"),
                           grpc_code_of_http(http_status), status);
    yyjson_doc_free(doc);
}

static void grpc_method_write_message(struct grpc_asked *asked, const char *name, yyjson_val *root,
                                      struct buffer *message)
{
    const struct grpc_method *method = asked->method;
    yyjson_val *ready;
    switch (method->shape) {
    case GRPC_SHAPE_MEMBERS:
        asked->is_complete |= method->http_path != NULL;
        transcode_from_json(root, method->response, message);
        return;
    case GRPC_SHAPE_NAMED:
        if (!asked->events_only || strcmp(name, "event") == 0)
            transcode_from_member(name, root, method->response, message);
        return;
    case GRPC_SHAPE_PLACE:
        ready = yyjson_obj_get(root, "ready");
        asked->is_complete |= ready != NULL;
        transcode_from_member(ready ? "ready" : "instance", ready ? ready : root, method->response,
                              message);
        return;
    }
}

bool grpc_method_answer(struct grpc_asked *asked, const struct grpc_reply_piece *piece,
                        struct buffer *out, struct grpc_status *status)
{
    static const char done[] = "[DONE]"; /* OpenAI's end of a stream */
    if (piece->size == sizeof done - 1 && memcmp(piece->data, done, piece->size) == 0) {
        asked->is_complete = asked->method->shape == GRPC_SHAPE_MEMBERS; /* else a node stops */
        return true;
    }
    yyjson_doc *doc = yyjson_read(piece->data, piece->size, YYJSON_READ_ALLOW_INVALID_UNICODE);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *error = yyjson_obj_get(root, "error");
    bool good = yyjson_is_obj(root) && !yyjson_is_obj(error);
    if (good) {
        struct buffer message = {0};
        grpc_method_write_message(asked, piece->name, root, &message);
        if (message.failed) {
            grpc_status_set(status, GRPC_RESOURCE_EXHAUSTED, "not enough memory for the answer");
            good = false;
        } else if (message.size || asked->method->shape != GRPC_SHAPE_NAMED) {
            grpc_frame_write(message.data, message.size, out);
        }
        buffer_deinit(&message);
    } else if (error) {
        grpc_method_read_error(error,
                               grpc_code_of_name(yyjson_get_str(yyjson_obj_get(error, "code")),
                                                 yyjson_get_str(yyjson_obj_get(error, "type"))),
                               status);
    } else {
        grpc_status_set(status, GRPC_INTERNAL, "the node's answer is no JSON object");
    }
    yyjson_doc_free(doc);
    return good;
}
