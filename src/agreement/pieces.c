#include "agreement/pieces.h"

#include "base/bytes.h"

#include <assert.h>

enum { WHOLE = 0, PIECE = 1, WHOLE_HEADER = 1, PIECE_HEADER = 13 };

/* ---- sending ---- */

bool pieces_next(struct pieces_cut *cut, struct buffer *out)
{
    assert(cut->frame_bytes_max > PIECE_HEADER && cut->size <= UINT32_MAX);
    buffer_clear(out);
    if (cut->at >= cut->size)
        return false;
    if (cut->at == 0 && cut->size + WHOLE_HEADER <= cut->frame_bytes_max) {
        bytes_put(out, WHOLE, 1);
        buffer_append(out, cut->bytes, cut->size);
        cut->at = cut->size;
        return !out->failed;
    }
    const size_t room = cut->frame_bytes_max - PIECE_HEADER, left = cut->size - cut->at;
    const size_t n = left < room ? left : room;
    bytes_put(out, PIECE, 1);
    bytes_put(out, cut->number, 4);
    bytes_put(out, cut->size, 4);
    bytes_put(out, cut->at, 4);
    buffer_append(out, cut->bytes + cut->at, n);
    cut->at += n;
    return !out->failed;
}

/* ---- joining ---- */

static void pieces_drop(struct pieces_message *message)
{
    buffer_deinit(&message->bytes);
    *message = (struct pieces_message){0};
}

static struct pieces_message *pieces_find(struct pieces *pieces, uint64_t from)
{
    for (int i = 0; i < LIMIT_PIECES_SENDERS; i++) {
        if (pieces->messages[i].from == from)
            return &pieces->messages[i];
    }
    return NULL;
}

/* A place for a sender's new message: its own, a free one, or that of the message that has waited
 * longest. */
static struct pieces_message *pieces_place(struct pieces *pieces, uint64_t from)
{
    assert(from);
    struct pieces_message *place = pieces_find(pieces, from);
    if (!place)
        place = pieces_find(pieces, 0);
    if (!place) {
        place = &pieces->messages[0];
        for (int i = 1; i < LIMIT_PIECES_SENDERS; i++) {
            if (pieces->messages[i].order < place->order)
                place = &pieces->messages[i];
        }
    }
    pieces_drop(place);
    return place;
}

static enum error_code pieces_take_one(struct pieces *pieces, uint64_t from,
                                       struct bytes_reader reader, const uint8_t **message,
                                       size_t *message_size, struct error *err)
{
    assert(from);
    const uint32_t number = bytes_get_u32(&reader), total = bytes_get_u32(&reader),
                   offset = bytes_get_u32(&reader);
    if (reader.short_ || !reader.left || total > LIMIT_CLUSTER_MESSAGE_BYTES || offset > total ||
        reader.left > total - offset)
        return error_set(err, ERROR_INVALID, "pieces: not a piece of a message");
    struct pieces_message *joined = offset ? pieces_find(pieces, from) : pieces_place(pieces, from);
    if (!offset)
        *joined = (struct pieces_message){.from = from, .number = number, .total = total};
    if (!joined)
        return ERROR_NONE;
    if (joined->number != number || joined->total != total || joined->bytes.size != offset) {
        pieces_drop(joined);
        return ERROR_NONE;
    }
    joined->order = ++pieces->order;
    buffer_append(&joined->bytes, reader.at, reader.left);
    if (joined->bytes.failed) {
        pieces_drop(joined);
        return error_set(err, ERROR_NO_MEMORY,
                         "pieces: not enough memory for a message of %u bytes", total);
    }
    if (joined->bytes.size == total) {
        *message = (const uint8_t *)joined->bytes.data;
        *message_size = total;
    }
    return ERROR_NONE;
}

/* The message that was handed out by the last call. */
static void pieces_drop_complete(struct pieces *pieces)
{
    for (int i = 0; i < LIMIT_PIECES_SENDERS; i++) {
        struct pieces_message *message = &pieces->messages[i];
        if (message->from && message->bytes.size == message->total)
            pieces_drop(message);
    }
}

enum error_code pieces_take(struct pieces *pieces, uint64_t from, const uint8_t *frame, size_t size,
                            const uint8_t **message, size_t *message_size, struct error *err)
{
    struct bytes_reader reader = {.at = frame, .left = size};
    const uint64_t kind = bytes_get(&reader, 1);
    assert(from);
    *message = NULL;
    *message_size = 0;
    pieces_drop_complete(pieces);
    if (!reader.left || kind > PIECE)
        return error_set(err, ERROR_INVALID, "pieces: not a replica's message");
    if (kind == PIECE)
        return pieces_take_one(pieces, from, reader, message, message_size, err);
    struct pieces_message *older = pieces_find(pieces, from);
    if (older)
        pieces_drop(older);
    *message = reader.at;
    *message_size = reader.left;
    return ERROR_NONE;
}

void pieces_deinit(struct pieces *pieces)
{
    for (int i = 0; i < LIMIT_PIECES_SENDERS; i++)
        pieces_drop(&pieces->messages[i]);
}
