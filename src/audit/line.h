/* Lines of the record, piece by piece: a reader that takes exactly what the writers write.
 *
 *     struct line_reader reader = {line, size};
 *     line_expect(&reader, "{\"number\":");
 *     entry.number = line_number(&reader);
 *     ...
 *     return line_ended(&reader);
 *
 * After the first piece that does not fit, all others are empty. Pure. */
#pragma once

#include "base/buffer.h"

#include <stdint.h>

struct line_reader {
    const char *at;
    size_t left;
    bool bad;
};

void line_expect(struct line_reader *reader, const char *literal);
uint64_t line_number(struct line_reader *reader); /* no sign, no zero in front */
bool line_bool(struct line_reader *reader);
/* The text up to its closing quote, which is taken; what does not fit into `size` is bad. */
void line_text(struct line_reader *reader, char *out, size_t size);
void line_hex(struct line_reader *reader, uint8_t *out, size_t size); /* lower-case, 2 * size */
bool line_ended(const struct line_reader *reader);

void line_put_text(struct buffer *out, const char *text); /* printable ASCII; escaped */
void line_put_hex(struct buffer *out, const uint8_t *bytes, size_t size);
