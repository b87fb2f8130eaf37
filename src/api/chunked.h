/* Bodies with Transfer-Encoding: chunked (RFC 9112, section 7.1), as they come. Pure. Trailers and
 * chunk extensions are read over. A zeroed decoder is at the beginning. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum chunked_state {
    CHUNKED_SIZE, /* hexadecimal digits */
    CHUNKED_EXTENSION,
    CHUNKED_SIZE_LF,
    CHUNKED_DATA,
    CHUNKED_DATA_CR,
    CHUNKED_DATA_LF,
    CHUNKED_TRAILER,      /* at the beginning of a line */
    CHUNKED_TRAILER_LINE, /* in one */
    CHUNKED_END_LF,
    CHUNKED_DONE,
    CHUNKED_BAD,
};

struct chunked_decoder {
    enum chunked_state state;
    uint64_t left; /* bytes of the chunk */
    uint32_t n_digits;
    uint32_t n_overhead; /* bytes of extensions and trailers so far */
};

/* Reads up to a piece of data, the end, or the end of the bytes: returns how many bytes it used,
 * and sets *data and *data_size to the piece (inside `bytes`; 0: none). Call again with the rest
 * while state is neither DONE nor BAD. */
size_t chunked_decode(struct chunked_decoder *decoder, const char *bytes, size_t size,
                      const char **data, size_t *data_size);
