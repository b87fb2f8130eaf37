/* The answer of the HTTP API to a request of HTTP/1.0, read as it comes: a head, then a body that
 * the end of the connection ends. A body is whole, lines, or server-sent events.
 *
 * Pure; fuzzed. A reader is the caller's memory, zeroed; grpc_reply_deinit() frees what it holds,
 * which is at most `max` bytes and the head. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

enum { GRPC_REPLY_HEAD_MAX = 16 * 1024, GRPC_REPLY_NAME_MAX = 32 };

enum grpc_reply_kind {
    GRPC_REPLY_WHOLE,  /* one piece, at the end */
    GRPC_REPLY_LINES,  /* application/x-ndjson: a piece a line */
    GRPC_REPLY_EVENTS, /* text/event-stream: a piece an event */
};

struct grpc_reply_piece {
    const char *name; /* of an event; "": it has none */
    const char *data;
    size_t size;
};

struct grpc_reply {
    struct buffer in; /* bytes that are not a whole piece yet */
    size_t taken;     /* of them, by pieces */
    bool has_head;
    unsigned status;
    enum grpc_reply_kind kind;
    bool is_bad; /* no such answer, or a piece of more than `max` */
    char name[GRPC_REPLY_NAME_MAX];
    struct buffer data; /* of the event that is being put together … */
    bool is_given;      /* … or was given last */
};

/* More bytes; their pieces are then taken one by one. */
void grpc_reply_add(struct grpc_reply *reply, const char *bytes, size_t size, size_t max);
/* False: there is none (yet). `ended`: no more bytes will come. Good until the next call. */
bool grpc_reply_next(struct grpc_reply *reply, bool ended, struct grpc_reply_piece *out);
void grpc_reply_deinit(struct grpc_reply *reply);
