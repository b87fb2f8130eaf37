/* gRPC's messages in a stream of bytes: a flag, a length of four bytes, and so many bytes
 * (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, "Length-Prefixed-Message").
 *
 * Pure; fuzzed. A reader is the caller's memory, zeroed; grpc_frame_deinit() frees what it holds.
 * It holds one message at most, of a size that was announced and bounded. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GRPC_FRAME_HEAD = 5 };

enum grpc_frame_state {
    GRPC_FRAME_MORE,       /* all bytes are taken; the message goes on */
    GRPC_FRAME_WHOLE,      /* reader->message is whole until the next call */
    GRPC_FRAME_TOO_LARGE,  /* it is announced with more than `max` bytes */
    GRPC_FRAME_COMPRESSED, /* nothing here asked for that */
    GRPC_FRAME_NO_MEMORY,
};

struct grpc_frame_reader {
    uint8_t head[GRPC_FRAME_HEAD];
    uint32_t n_head;
    uint32_t size; /* that was announced */
    struct buffer message;
    bool is_whole;
};

/* Takes bytes as far as the end of a message; *used says how many. Whatever is no MORE or WHOLE
 * stays so. */
enum grpc_frame_state grpc_frame_read(struct grpc_frame_reader *reader, const uint8_t *bytes,
                                      size_t size, uint32_t max, size_t *used);
/* Whether the stream may end here: not within a message. */
bool grpc_frame_may_end(const struct grpc_frame_reader *reader);
void grpc_frame_deinit(struct grpc_frame_reader *reader);

/* A message with its head. out->failed without memory, or where it has 4 GiB. */
void grpc_frame_write(const void *message, size_t size, struct buffer *out);
