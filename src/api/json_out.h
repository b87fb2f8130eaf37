/* Writing JSON into a buffer. What comes out is valid JSON and valid UTF-8 whatever goes in:
 * a byte that belongs to no character becomes U+FFFD (one for each maximal ill-formed part,
 * as the Unicode standard, section 3.9, recommends). */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void json_out_string(struct buffer *out, const char *bytes, size_t size); /* with its quotes */
void json_out_text(struct buffer *out, const char *text); /* NUL-terminated; NULL: null */
void json_out_float(struct buffer *out, float value); /* shortest text that reads back the same */
void json_out_bytes(struct buffer *out, const char *bytes, size_t size); /* [104,105] */

/* Length of the whole character at the start of bytes (1 to 4); 0: none. Then *bad is how many
 * bytes one U+FFFD stands for. `size` is at least 1. */
size_t utf8_length(const char *bytes, size_t size, size_t *bad);
