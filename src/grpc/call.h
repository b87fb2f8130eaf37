/* One call: what its caller sends, the request of the HTTP API that it becomes, and the messages
 * that come of the answer. Without sockets and clock: a session (session.h) gives it what arrived
 * and takes what is to be sent; a door opens the way to the API. On one thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "grpc/frame.h"
#include "grpc/method.h"
#include "grpc/reply.h"
#include "grpc/status.h"

#include <stdbool.h>
#include <stdint.h>

struct grpc_call;
struct grpc_session;

enum {
    GRPC_REQUEST_MAX = 4 << 20,   /* of one message: gRPC's usual limit */
    GRPC_ANSWER_MAX = 16 << 20,   /* of one piece of the API's answer */
    GRPC_HEADERS_MAX = 8 * 1024,  /* of those that are passed on */
    GRPC_AHEAD_BYTES = 64 * 1024, /* that the caller has not taken: then the API is not read */
    GRPC_PATH_MAX = 128,
};

/* What the owner of the sockets does for calls. */
struct grpc_door {
    /* A new way to the HTTP API, on which the request is sent; takes what is in *request. What
     * comes back is told by grpc_call_receive() and grpc_call_on_end(), later. NULL: *err. */
    void *(*open)(void *self, struct grpc_call *call, struct buffer *request, struct error *err);
    void (*set_reading)(void *way, bool on);
    void (*close)(void *way); /* nothing is told of it afterwards */
    void *self;
};

/* What the calls of all sessions hold, and may hold. */
struct grpc_memory {
    uint64_t used, max;
};

struct grpc_call {
    struct grpc_call *next, *before; /* the session's */
    struct grpc_session *session;
    int32_t stream;

    char path[GRPC_PATH_MAX];
    bool is_post, is_grpc, is_encoded, is_path_long, has_begun;
    struct buffer headers; /* for the API */
    uint64_t deadline_ns;  /* of the session's clock; UINT64_MAX: none */

    struct grpc_asked asked; /* its method NULL: reflection, or it has ended already */
    struct grpc_frame_reader reader;
    bool has_message, is_request_over;
    size_t asked_bytes; /* of the request, until the API has it */

    void *way;    /* NULL: none */
    bool is_held; /* it is not read */
    struct grpc_reply reply;

    struct buffer out; /* framed messages … */
    size_t out_sent;   /* … and what of them has gone */
    uint64_t moved_ns; /* when something last went */
    bool has_head, has_ended, has_trailers, is_reset;
    struct grpc_status status; /* where it has ended */
    uint64_t counted;          /* in the session's memory */
};

/* A header of the request; `name` in small letters. */
void grpc_call_header(struct grpc_call *call, const char *name, size_t name_size, const char *value,
                      size_t size, uint64_t now_ns);
void grpc_call_begin(struct grpc_call *call); /* the headers are there */
void grpc_call_data(struct grpc_call *call, const uint8_t *bytes, size_t size);
void grpc_call_request_over(struct grpc_call *call);

/* Of its way. */
void grpc_call_receive(struct grpc_call *call, const char *bytes, size_t size);
void grpc_call_on_end(struct grpc_call *call);

/* Ends it, if it has not ended. */
void grpc_call_end(struct grpc_call *call, enum grpc_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* At most `size` of the bytes that are to be sent. */
size_t grpc_call_take(struct grpc_call *call, uint8_t *bytes, size_t size, uint64_t now_ns);
void grpc_call_free(struct grpc_call *call);
