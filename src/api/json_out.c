#include "api/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Table 3-7 of the Unicode standard: the second byte's range depends on the first. */
size_t utf8_length(const char *bytes, size_t size, size_t *bad)
{
    const unsigned char *s = (const unsigned char *)bytes;
    *bad = 1;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    size_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    unsigned low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (size < 2 || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (i >= size || (s[i] & 0xc0) != 0x80) {
            *bad = i;
            return 0;
        }
    }
    return length;
}

static void json_out_escape(struct buffer *out, unsigned char c)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (size_t i = 0; i < sizeof named - 1; i += 2) {
        if ((unsigned char)named[i] == c) {
            buffer_append(out, (char[]){'\\', named[i + 1]}, 2);
            return;
        }
    }
    buffer_printf(out, "\\u%04x", c);
}

void json_out_string(struct buffer *out, const char *bytes, size_t size)
{
    buffer_append(out, "\"", 1);
    size_t from = 0; /* start of what needs no change */
    for (size_t i = 0; i < size;) {
        size_t bad;
        size_t length = utf8_length(bytes + i, size - i, &bad);
        unsigned char c = (unsigned char)bytes[i];
        if (length && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            i += length;
            continue;
        }
        buffer_append(out, bytes + from, i - from);
        if (length) {
            json_out_escape(out, c);
            i++;
        } else {
            buffer_append(out, "\xef\xbf\xbd", 3);
            i += bad;
        }
        from = i;
    }
    buffer_append(out, bytes + from, size - from);
    buffer_append(out, "\"", 1);
}

void json_out_text(struct buffer *out, const char *text)
{
    if (text)
        json_out_string(out, text, strlen(text));
    else
        buffer_text(out, "null");
}

void json_out_float(struct buffer *out, float value)
{
    char text[32];
    if (!isfinite(value)) {
        buffer_text(out, "null");
        return;
    }
    for (int digits = 6; digits <= 9; digits++) { /* 9 always suffice for a binary32 */
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    buffer_text(out, text);
}

void json_out_bytes(struct buffer *out, const char *bytes, size_t size)
{
    buffer_append(out, "[", 1);
    for (size_t i = 0; i < size; i++)
        buffer_printf(out, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    buffer_append(out, "]", 1);
}
