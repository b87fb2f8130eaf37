#include "api/chunked.h"

enum { OVERHEAD_MAX = 16 * 1024 };

static int chunked_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

static enum chunked_state after_size(const struct chunked_decoder *decoder, char c)
{
    if (!decoder->n_digits)
        return CHUNKED_BAD;
    if (c == '\r')
        return CHUNKED_SIZE_LF;
    return c == ';' || c == ' ' || c == '\t' ? CHUNKED_EXTENSION : CHUNKED_BAD;
}

/* One byte that is not data. */
static enum chunked_state chunked_step(struct chunked_decoder *decoder, char c)
{
    switch (decoder->state) {
    case CHUNKED_SIZE:
        if (chunked_digit(c) < 0)
            return after_size(decoder, c);
        decoder->left = decoder->left * 16 + (uint64_t)chunked_digit(c);
        return ++decoder->n_digits > 15 ? CHUNKED_BAD : CHUNKED_SIZE;
    case CHUNKED_EXTENSION:
        decoder->n_overhead++;
        return c == '\r' ? CHUNKED_SIZE_LF : CHUNKED_EXTENSION;
    case CHUNKED_SIZE_LF:
        decoder->n_digits = 0;
        return c != '\n' ? CHUNKED_BAD : decoder->left ? CHUNKED_DATA : CHUNKED_TRAILER;
    case CHUNKED_DATA_CR:
        return c == '\r' ? CHUNKED_DATA_LF : CHUNKED_BAD;
    case CHUNKED_DATA_LF:
        return c == '\n' ? CHUNKED_SIZE : CHUNKED_BAD;
    case CHUNKED_TRAILER:
        return c == '\r' ? CHUNKED_END_LF : CHUNKED_TRAILER_LINE;
    case CHUNKED_TRAILER_LINE:
        decoder->n_overhead++;
        return c == '\n' ? CHUNKED_TRAILER : CHUNKED_TRAILER_LINE;
    case CHUNKED_END_LF:
        return c == '\n' ? CHUNKED_DONE : CHUNKED_BAD;
    case CHUNKED_DATA:
    case CHUNKED_DONE:
    case CHUNKED_BAD:
        break;
    }
    return CHUNKED_BAD;
}

size_t chunked_decode(struct chunked_decoder *decoder, const char *bytes, size_t size,
                      const char **data, size_t *data_size)
{
    size_t used = 0;
    *data_size = 0;
    while (used < size && decoder->state != CHUNKED_DATA && decoder->state != CHUNKED_DONE &&
           decoder->state != CHUNKED_BAD) {
        decoder->state = chunked_step(decoder, bytes[used++]);
        if (decoder->n_overhead > OVERHEAD_MAX)
            decoder->state = CHUNKED_BAD;
    }
    if (decoder->state != CHUNKED_DATA)
        return used;
    *data = bytes + used;
    *data_size = size - used < decoder->left ? size - used : (size_t)decoder->left;
    decoder->left -= *data_size;
    if (!decoder->left)
        decoder->state = CHUNKED_DATA_CR;
    return used + *data_size;
}
