#include "audit/line.h"

#include <assert.h>
#include <string.h>

void line_expect(struct line_reader *reader, const char *literal)
{
    const size_t size = strlen(literal);
    if (reader->bad || reader->left < size || memcmp(reader->at, literal, size) != 0) {
        reader->bad = true;
        return;
    }
    reader->at += size;
    reader->left -= size;
}

static char line_next(struct line_reader *reader)
{
    if (reader->bad || !reader->left) {
        reader->bad = true;
        return 0;
    }
    reader->left--;
    return *reader->at++;
}

uint64_t line_number(struct line_reader *reader)
{
    uint64_t number = 0;
    uint32_t n = 0;
    for (; !reader->bad && reader->left && *reader->at >= '0' && *reader->at <= '9'; n++) {
        const uint64_t digit = (uint64_t)(line_next(reader) - '0');
        if ((n && !number) || number > (UINT64_MAX - digit) / 10)
            reader->bad = true;
        number = 10 * number + digit;
    }
    reader->bad |= !n;
    return reader->bad ? 0 : number;
}

bool line_bool(struct line_reader *reader)
{
    const bool value = reader->left && *reader->at == 't';
    line_expect(reader, value ? "true" : "false");
    return value && !reader->bad;
}

void line_text(struct line_reader *reader, char *out, size_t size)
{
    size_t n = 0;
    assert(size);
    for (char c; (c = line_next(reader)) != '"';) {
        if (c == '\\') {
            c = line_next(reader);
            reader->bad |= c != '\\' && c != '"';
        }
        reader->bad |= c < ' ' || c > '~' || n + 1 >= size;
        if (reader->bad)
            break;
        out[n++] = c;
    }
    out[reader->bad ? 0 : n] = 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void line_hex(struct line_reader *reader, uint8_t *out, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const int high = hex_value(line_next(reader)), low = hex_value(line_next(reader));
        reader->bad |= high < 0 || low < 0;
        out[i] = (uint8_t)(reader->bad ? 0 : high << 4 | low);
    }
}

bool line_ended(const struct line_reader *reader)
{
    return !reader->bad && !reader->left;
}

void line_put_text(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        assert(*text >= ' ' && *text <= '~');
        if (*text == '"' || *text == '\\')
            buffer_append(out, "\\", 1);
        buffer_append(out, text, 1);
    }
}

void line_put_hex(struct buffer *out, const uint8_t *bytes, size_t size)
{
    static const char letters[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        const char pair[] = {letters[bytes[i] >> 4], letters[bytes[i] & 15]};
        buffer_append(out, pair, sizeof pair);
    }
}
