#include "weights/shelf_record.h"

#include "base/bytes.h"

enum { FORMAT = 1 };
#define GONE (UINT32_C(1) << 31)

static const char magic[4] = {'M', 'd', 'S', 'h'};

void shelf_record_begin(const struct digest *identity, struct buffer *out)
{
    buffer_append(out, magic, sizeof magic);
    bytes_put(out, FORMAT, 4);
    buffer_append(out, identity->bytes, DIGEST_BYTES);
}

void shelf_record_add(uint32_t part, bool gone, struct buffer *out)
{
    uint32_t word = part | (gone ? GONE : 0);
    bytes_put(out, word, 4);
    bytes_put(out, ~word, 4);
}

size_t shelf_record_read(const void *bytes, size_t size, const struct digest *identity,
                         struct part_set *has)
{
    struct bytes_reader reader = {.at = bytes, .left = size};
    const void *begin = bytes_take(&reader, sizeof magic);
    if (size < SHELF_RECORD_HEAD || memcmp(begin, magic, sizeof magic) != 0 ||
        bytes_get_u32(&reader) != FORMAT ||
        memcmp(bytes_take(&reader, DIGEST_BYTES), identity->bytes, DIGEST_BYTES) != 0)
        return 0;
    while (reader.left >= SHELF_RECORD_ENTRY) {
        uint32_t word = bytes_get_u32(&reader), inverted = bytes_get_u32(&reader),
                 part = word & ~GONE;
        if (inverted != (uint32_t)~word || part >= has->n_parts)
            return size - reader.left - SHELF_RECORD_ENTRY;
        if (word & GONE)
            part_set_remove(has, part);
        else
            part_set_add(has, part);
    }
    return size - reader.left;
}
