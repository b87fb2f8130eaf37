/* The methods of proto/medley.proto: which request of the HTTP API each one is, and how that one's
 * answer becomes messages. Pure; fuzzed. */
#pragma once

#include "base/buffer.h"
#include "grpc/reply.h"
#include "grpc/status.h"

#include <protobuf-c/protobuf-c.h>

enum grpc_shape {
    GRPC_SHAPE_MEMBERS, /* the answer's members are the message's */
    GRPC_SHAPE_NAMED,   /* an event's name is that of the member that it is */
    GRPC_SHAPE_PLACE,   /* {"ready":…}, or an instance */
};

struct grpc_method {
    const char *path; /* "/medley.v1.Medley/ListModels" */
    const ProtobufCMessageDescriptor *request, *response;
    const char *http_path; /* NULL: chosen by the request */
    bool is_get;
    enum grpc_shape shape;
};

/* NULL: no such method. */
const struct grpc_method *grpc_method_find(const char *path);

/* A method that is called. */
struct grpc_asked {
    const struct grpc_method *method;
    bool events_only; /* of WatchRequest */
    bool is_complete; /* all that the answer has to say was said */
};

/* What a message becomes: a request of HTTP/1.0. `headers` are lines with their ends. False:
 * *status says what is wrong. */
bool grpc_method_ask(struct grpc_asked *asked, const void *message, size_t size,
                     const struct buffer *headers, struct buffer *request,
                     struct grpc_status *status);

/* A piece of the answer as a framed message, appended; or nothing, where it says nothing. False:
 * it is an error, which *status tells. */
bool grpc_method_answer(struct grpc_asked *asked, const struct grpc_reply_piece *piece,
                        struct buffer *out, struct grpc_status *status);
/* The body of an answer that is an error, by its status. */
void grpc_method_fail(unsigned http_status, const struct grpc_reply_piece *piece,
                      struct grpc_status *status);
