#include "mesh/frame.h"

#include "base/bytes.h"

#include <assert.h>

enum { MAGIC_0 = 'M', MAGIC_1 = 'd' };

void frame_header_write(const struct frame_header *header, uint8_t bytes[static FRAME_HEADER_BYTES])
{
    bytes[0] = MAGIC_0;
    bytes[1] = MAGIC_1;
    bytes[2] = FRAME_FORMAT;
    bytes[3] = 0;
    bytes_store(bytes + 4, 2, header->type);
    bytes_store(bytes + 6, 2, header->flags);
    bytes_store(bytes + 8, 4, header->length);
    bytes_store(bytes + 12, 4, header->tag);
}

enum error_code frame_header_read(const uint8_t bytes[static FRAME_HEADER_BYTES],
                                  uint32_t length_max, struct frame_header *header,
                                  struct error *err)
{
    *header = (struct frame_header){0};
    if (bytes[0] != MAGIC_0 || bytes[1] != MAGIC_1)
        return error_set(err, ERROR_INVALID, "not a frame: it starts with %02x %02x", bytes[0],
                         bytes[1]);
    if (bytes[2] != FRAME_FORMAT)
        return error_set(err, ERROR_INVALID, "a frame of format %u; this version knows format %d",
                         bytes[2], FRAME_FORMAT);
    *header = (struct frame_header){
        .type = (uint16_t)bytes_load(bytes + 4, 2),
        .flags = (uint16_t)bytes_load(bytes + 6, 2),
        .length = (uint32_t)bytes_load(bytes + 8, 4),
        .tag = (uint32_t)bytes_load(bytes + 12, 4),
    };
    if (header->length > length_max)
        return error_set(err, ERROR_INVALID,
                         "a frame of type %u with %u bytes; at most %u are allowed here",
                         header->type, header->length, length_max);
    return ERROR_NONE;
}

void frame_reader_init(struct frame_reader *reader, uint32_t length_max)
{
    *reader = (struct frame_reader){.length_max = length_max, .state = FRAME_MORE};
}

static bool has_header(const struct frame_reader *reader)
{
    return reader->payload != NULL;
}

void frame_reader_want(const struct frame_reader *reader, void **into, size_t *size)
{
    *into = NULL;
    *size = 0;
    if (reader->state != FRAME_MORE)
        return;
    if (has_header(reader)) {
        *into = reader->payload + reader->got;
        *size = reader->header.length - reader->got;
    } else {
        *into = (void *)(reader->bytes + reader->got);
        *size = FRAME_HEADER_BYTES - reader->got;
    }
}

enum frame_event frame_reader_took(struct frame_reader *reader, size_t size, struct error *err)
{
    assert(reader->state == FRAME_MORE);
    const size_t whole = has_header(reader) ? reader->header.length : FRAME_HEADER_BYTES;
    assert(size <= whole - reader->got);
    reader->got += size;
    if (reader->got < whole)
        return FRAME_MORE;
    if (has_header(reader))
        reader->state = FRAME_COMPLETE;
    else if (frame_header_read(reader->bytes, reader->length_max, &reader->header, err))
        reader->state = FRAME_BROKEN;
    else
        reader->state = reader->header.length ? FRAME_BEGUN : FRAME_COMPLETE;
    return reader->state;
}

void frame_reader_payload(struct frame_reader *reader, uint8_t *memory)
{
    assert(reader->state == FRAME_BEGUN && memory);
    reader->payload = memory;
    reader->got = 0;
    reader->state = FRAME_MORE;
}

void frame_reader_next(struct frame_reader *reader)
{
    assert(reader->state == FRAME_COMPLETE);
    frame_reader_init(reader, reader->length_max);
}

bool frame_reader_is_inside(const struct frame_reader *reader)
{
    return reader->state != FRAME_BROKEN && (reader->got > 0 || reader->payload);
}
