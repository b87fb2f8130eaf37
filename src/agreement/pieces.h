/* A replica's messages as frames: a message that is larger than a frame may be travels in pieces.
 *
 * A frame begins with a byte that says how it goes on, numbers are little-endian:
 *     0: the whole message
 *     1: number (4 bytes), total (4), offset (4), then bytes of the message from `offset` on. The
 *     pieces of a message
 *        have its number and its total, and are sent in order, the first with offset 0.
 *
 * Losing is allowed, mixing is not: what does not continue the message that is being joined is
 * dropped with that message. A sender's newer message drops its older one that is not complete. At
 * most LIMIT_PIECES_SENDERS messages of LIMIT_CLUSTER_MESSAGE_BYTES are being joined; one more
 * drops the one that has waited longest. Memory grows with what has come, not with what was
 * announced. Pure. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/limits.h"

#include <stdint.h>

/* ---- sending ---- */

struct pieces_cut {
    uint32_t number; /* of the message: another one for each */
    uint32_t frame_bytes_max;
    const uint8_t *bytes;
    size_t size, at;
};

/* The next frame, in place of what is in `out`. False: there is none, all were made; or
 * out->failed. */
bool pieces_next(struct pieces_cut *cut, struct buffer *out);

/* ---- joining ---- */

struct pieces_message {
    uint64_t from; /* 0: none */
    uint32_t number, total;
    uint64_t order; /* of its last piece */
    struct buffer bytes;
};

struct pieces {
    struct pieces_message messages[LIMIT_PIECES_SENDERS];
    uint64_t order;
};

/* A frame from a member (not 0). *message is then the whole message, good until the next call, or
 * NULL: it is not complete. ERROR_INVALID: that is no frame of a message. ERROR_NO_MEMORY: the
 * message is dropped. */
enum error_code pieces_take(struct pieces *pieces, uint64_t from, const uint8_t *frame, size_t size,
                            const uint8_t **message, size_t *message_size, struct error *err);
void pieces_deinit(struct pieces *pieces);
