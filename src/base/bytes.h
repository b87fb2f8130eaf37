/* Little-endian numbers to and from byte strings.
 *
 * A reader never goes beyond its end: what is not there reads as zero and sets `short_`, so that a
 * caller may read many fields and check once. */
#pragma once

#include "base/buffer.h"

#include <stdint.h>
#include <string.h>

static inline void bytes_store(unsigned char *bytes, unsigned n_bytes, uint64_t value)
{
    for (unsigned i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t bytes_load(const unsigned char *bytes, unsigned n_bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n_bytes; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static inline void bytes_put(struct buffer *out, uint64_t value, unsigned n_bytes)
{
    unsigned char bytes[8];
    bytes_store(bytes, n_bytes, value);
    buffer_append(out, bytes, n_bytes);
}

static inline void bytes_put_float(struct buffer *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bytes_put(out, bits, 4);
}

struct bytes_reader {
    const unsigned char *at;
    size_t left;
    bool short_; /* more was read than there was */
};

/* The next n bytes where they stand; NULL when they are not there. */
static inline const void *bytes_take(struct bytes_reader *reader, size_t n)
{
    if (n > reader->left) {
        reader->short_ = true;
        reader->left = 0;
        return NULL;
    }
    const unsigned char *here = reader->at;
    reader->at += n;
    reader->left -= n;
    return here;
}

static inline uint64_t bytes_get(struct bytes_reader *reader, unsigned n_bytes)
{
    const unsigned char *here = bytes_take(reader, n_bytes);
    return here ? bytes_load(here, n_bytes) : 0;
}

static inline uint32_t bytes_get_u32(struct bytes_reader *reader)
{
    return (uint32_t)bytes_get(reader, 4);
}

static inline float bytes_get_float(struct bytes_reader *reader)
{
    uint32_t bits = bytes_get_u32(reader);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
