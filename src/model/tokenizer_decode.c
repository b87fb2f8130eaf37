/* Tokens back to text, as libllama's llama_token_to_piece and llama_detokenize. */
#include "base/mem.h"
#include "base/work_limit.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char escaped_space[] = "\xE2\x96\x81";
enum { ESCAPED_SPACE_BYTES = sizeof escaped_space - 1 };

void spaces_escape(const char *text, size_t size, struct buffer *out)
{
    while (size) {
        const char *space = memchr(text, ' ', size);
        size_t before = space ? (size_t)(space - text) : size;
        buffer_append(out, text, before);
        if (!space)
            return;
        buffer_append(out, escaped_space, ESCAPED_SPACE_BYTES);
        text += before + 1;
        size -= before + 1;
    }
    buffer_append(out, "", 0); /* out->data is never NULL after this */
}

void spaces_unescape(const char *text, size_t size, struct buffer *out)
{
    const char *space;
    while ((space = memmem(text, size, escaped_space, ESCAPED_SPACE_BYTES))) {
        size_t before = (size_t)(space - text);
        buffer_append(out, text, before);
        buffer_append(out, " ", 1);
        text += before + ESCAPED_SPACE_BYTES;
        size -= before + ESCAPED_SPACE_BYTES;
    }
    buffer_append(out, text, size);
}

/* ---- pieces ---- */

/* libllama repeats the whole token for each character that is no byte; beyond this, a hostile
 * token would make gigabytes of that, and is shown as it is instead. */
enum { UNKNOWN_BYTE_TOKEN_MAX = 256 };

/* Appends bytes up to the first character that spells none, or fewer; returns how much of the text
 * they took. */
static size_t append_spelled(const char *text, size_t size, struct buffer *out)
{
    char bytes[UNKNOWN_BYTE_TOKEN_MAX];
    size_t n = 0, at = 0;
    for (size_t length; at < size && n < sizeof bytes; at += length) {
        int byte = byte_alphabet_decode(unicode_decode(text + at, size - at, &length));
        if (byte < 0)
            break;
        bytes[n++] = (char)byte;
    }
    buffer_append(out, bytes, n);
    return at;
}

static bool is_spelled(const char *text, size_t size)
{
    for (size_t at = 0, length; at < size; at += length) {
        if (byte_alphabet_decode(unicode_decode(text + at, size - at, &length)) < 0)
            return false;
    }
    return true;
}

static void tokenizer_decode_unspell(const char *text, size_t size, struct buffer *out)
{
    if (size > UNKNOWN_BYTE_TOKEN_MAX && !is_spelled(text, size)) {
        buffer_append(out, text, size);
        return;
    }
    for (size_t at = 0; at < size;) {
        at += append_spelled(text + at, size - at, out);
        if (at == size)
            return;
        size_t length;
        uint32_t code_point = unicode_decode(text + at, size - at, &length);
        if (byte_alphabet_decode(code_point) >= 0)
            continue;
        char utf8[4];
        size_t n = unicode_encode(code_point, utf8);
        at += length;
        buffer_text(out, "[UNK_BYTE_0x");
        for (size_t i = 0; i < n; i++)
            buffer_printf(out, "%02x", (uint8_t)utf8[i]);
        buffer_append(out, text, size);
        buffer_text(out, "]");
    }
}

/* "<0x0A>" is the byte 10. */
static void append_byte_token(const char *text, size_t size, struct buffer *out)
{
    if (size < 5 || memcmp(text, "<0x", 3) != 0 || !isxdigit((unsigned char)text[3]) ||
        !isxdigit((unsigned char)text[4]))
        return;
    const char digits[3] = {text[3], text[4]};
    buffer_append(out, &(char){(char)strtoul(digits, NULL, 16)}, 1);
}

static void append_piece(const struct tokenizer *tokenizer, uint32_t token, struct buffer *out)
{
    size_t size;
    const char *text = text_table_at(&tokenizer->texts, token, &size);
    unsigned attributes = tokenizer->attributes[token];
    bool spelled = tokenizer->family == FAMILY_BPE && !(tokenizer->rule->flags & PRE_RAW_UTF8);
    if (attributes & ATTRIBUTE_SPECIAL)
        buffer_append(out, text, size);
    else if ((attributes & ATTRIBUTE_NORMAL) && spelled)
        tokenizer_decode_unspell(text, size, out);
    else if (attributes & ATTRIBUTE_NORMAL)
        spaces_unescape(text, size, out);
    else if (attributes & ATTRIBUTE_BYTE)
        append_byte_token(text, size, out);
}

enum error_code pieces_load(struct tokenizer *tokenizer, struct error *err)
{
    tokenizer->piece_ends = mem_new_array(tokenizer->n_tokens, sizeof *tokenizer->piece_ends);
    if (!tokenizer->piece_ends)
        return tokenizer_no_memory(err);
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        append_piece(tokenizer, i, &tokenizer->pieces);
        tokenizer->piece_ends[i] = tokenizer->pieces.size;
    }
    return tokenizer->pieces.failed ? tokenizer_no_memory(err) : ERROR_NONE;
}

static const char *piece_of(const struct tokenizer *tokenizer, int32_t id, bool special,
                            size_t *size)
{
    *size = 0;
    if (id < 0 || (uint32_t)id >= tokenizer->n_tokens)
        return "";
    if (!special && (tokenizer->attributes[id] & ATTRIBUTE_HIDDEN))
        return "";
    size_t start = id ? tokenizer->piece_ends[id - 1] : 0;
    *size = tokenizer->piece_ends[id] - start;
    return *size ? tokenizer->pieces.data + start : "";
}

void tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, bool special,
                     struct buffer *out)
{
    size_t size;
    const char *piece = piece_of(tokenizer, id, special, &size);
    buffer_append(out, piece, size);
}

/* ---- whole sequences ---- */

/* Drops the space of " ?", " !", " ." and " ,". */
static size_t tidy_sentence_ends(char *text, size_t size)
{
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        bool drops = i > 0 && text[i] && text[i - 1] == ' ' && strchr("?!.,", text[i]);
        kept -= drops;
        text[kept++] = text[i];
    }
    return kept;
}

/* " ' " becomes "'". */
static size_t tidy_lone_apostrophes(char *text, size_t size)
{
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        bool lone =
            i > 0 && text[i] == '\'' && i + 1 < size && text[i - 1] == ' ' && text[i + 1] == ' ';
        kept -= lone;
        text[kept++] = text[i];
        if (lone)
            text[++i] = '\0'; /* skipped, and no space for what follows */
    }
    return kept;
}

/* Drops the space of " 's", " 'm", " 're" and " 've". */
static size_t tidy_contractions(char *text, size_t size)
{
    size_t kept = 0;
    for (size_t i = 0; i < size; i++) {
        bool drops = false;
        if (i > 0 && text[i] == '\'' && text[i - 1] == ' ' && i + 1 < size) {
            char next = text[i + 1];
            drops = next == 's' || next == 'm' ||
                    (i + 2 < size && (next == 'r' || next == 'v') && text[i + 2] == 'e');
        }
        kept -= drops;
        text[kept++] = text[i];
    }
    return kept;
}

void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                      bool remove_special, bool unparse_special, struct buffer *out)
{
    bool drop_space = tokenizer->add_space_prefix;
    if (remove_special && tokenizer->adds_bos && count && ids[0] == tokenizer->bos) {
        drop_space = false;
        ids++;
        count--;
    }
    if (remove_special && tokenizer->adds_eos && count && ids[count - 1] == tokenizer->eos)
        count--;
    size_t start = out->size;
    for (size_t i = 0; i < count && !out->failed; i++) {
        size_t size;
        out->failed = !work_limit_goes_on();
        const char *piece = piece_of(tokenizer, ids[i], unparse_special, &size);
        bool dropped = i == 0 && drop_space && size && piece[0] == ' ';
        buffer_append(out, piece + dropped, size - dropped);
    }
    if (!tokenizer->clean_spaces || out->failed || out->size == start)
        return;
    char *text = out->data + start;
    size_t size = tidy_sentence_ends(text, out->size - start);
    size = tidy_lone_apostrophes(text, size);
    out->size = start + tidy_contractions(text, size);
    out->data[out->size] = '\0';
}

/* ---- streaming ---- */

/* Whether `size` bytes (1 to 3) begin a character that more bytes could complete. The second byte's
 * range keeps out overlong forms, surrogates and what is past U+10FFFF (Unicode 16, table 3-7). */
static bool may_continue(const unsigned char *bytes, uint32_t size)
{
    unsigned first = bytes[0];
    if (first < 0xC2 || first > 0xF4 || size >= unicode_length((char)first))
        return false;
    if (size >= 2) {
        unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (bytes[1] < low || bytes[1] > high)
            return false;
    }
    return size < 3 || (bytes[2] & 0xC0) == 0x80;
}

static bool tokenizer_decode_is_whole(const unsigned char *bytes, uint32_t size)
{
    if (bytes[0] < 0x80)
        return true;
    return size > 1 && size == unicode_length((char)bytes[0]) && may_continue(bytes, size - 1) &&
           (size > 2 ? (bytes[size - 1] & 0xC0) == 0x80 : bytes[1] >= 0x80 && bytes[1] <= 0xBF);
}

static void append_replacement(struct buffer *out)
{
    buffer_append(out, "\xEF\xBF\xBD", 3);
}

static void push_byte(struct token_stream *stream, char byte, struct buffer *out)
{
    const unsigned char *pending = (const unsigned char *)stream->pending;
    stream->pending[stream->n_pending++] = byte;
    if (tokenizer_decode_is_whole(pending, stream->n_pending)) {
        buffer_append(out, stream->pending, stream->n_pending);
        stream->n_pending = 0;
    } else if (!may_continue(pending, stream->n_pending)) {
        bool retry = stream->n_pending > 1; /* the byte that broke a character may begin one */
        stream->n_pending = 0;
        append_replacement(out);
        if (retry)
            push_byte(stream, byte, out);
    }
}

void token_stream_push(struct token_stream *stream, const struct tokenizer *tokenizer, int32_t id,
                       bool special, struct buffer *out)
{
    size_t size;
    const char *piece = piece_of(tokenizer, id, special, &size);
    for (size_t i = 0; i < size; i++)
        push_byte(stream, piece[i], out);
}

void token_stream_finish(struct token_stream *stream, struct buffer *out)
{
    if (stream->n_pending)
        append_replacement(out);
    stream->n_pending = 0;
}
