#include "grpc/frame.h"

#include <assert.h>
#include <string.h>

/* Of the head; false: more is to come. */
static bool grpc_frame_read_head(struct grpc_frame_reader *reader, const uint8_t *bytes,
                                 size_t size, size_t *used)
{
    while (reader->n_head < GRPC_FRAME_HEAD && *used < size)
        reader->head[reader->n_head++] = bytes[(*used)++];
    if (reader->n_head < GRPC_FRAME_HEAD)
        return false;
    reader->size = (uint32_t)reader->head[1] << 24 | (uint32_t)reader->head[2] << 16 |
                   (uint32_t)reader->head[3] << 8 | reader->head[4];
    return true;
}

enum grpc_frame_state grpc_frame_read(struct grpc_frame_reader *reader, const uint8_t *bytes,
                                      size_t size, uint32_t max, size_t *used)
{
    *used = 0;
    if (reader->is_whole) {
        reader->is_whole = false;
        reader->n_head = 0;
        buffer_clear(&reader->message);
    }
    if (!grpc_frame_read_head(reader, bytes, size, used))
        return GRPC_FRAME_MORE;
    if (reader->head[0])
        return GRPC_FRAME_COMPRESSED;
    if (reader->size > max)
        return GRPC_FRAME_TOO_LARGE;
    const size_t left = reader->size - reader->message.size;
    const size_t take = size - *used < left ? size - *used : left;
    if (take)
        buffer_append(&reader->message, bytes + *used, take);
    if (reader->message.failed)
        return GRPC_FRAME_NO_MEMORY;
    *used += take;
    reader->is_whole = reader->message.size == reader->size;
    assert(reader->message.size <= max);
    return reader->is_whole ? GRPC_FRAME_WHOLE : GRPC_FRAME_MORE;
}

bool grpc_frame_may_end(const struct grpc_frame_reader *reader)
{
    return !reader->n_head || reader->is_whole;
}

void grpc_frame_deinit(struct grpc_frame_reader *reader)
{
    buffer_deinit(&reader->message);
    *reader = (struct grpc_frame_reader){0};
}

void grpc_frame_write(const void *message, size_t size, struct buffer *out)
{
    const uint8_t head[GRPC_FRAME_HEAD] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16),
                                           (uint8_t)(size >> 8), (uint8_t)size};
    out->failed |= size > UINT32_MAX;
    buffer_append(out, head, sizeof head);
    if (size)
        buffer_append(out, message, size);
}
