#include "audit/entry.h"

#include "audit/line.h"
#include "base/bytes.h"

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

void audit_text(char *out, size_t size, const char *text)
{
    size_t n = 0;
    assert(size);
    for (; text && text[n] && n + 1 < size; n++)
        out[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    out[n] = 0;
}

enum {
    HASHED_BYTES = 21 + 8 + 8 + 1 + DIGEST_BYTES + 5 * 2 + NODE_ID_TEXT + AUDIT_WHAT_TEXT +
                   AUDIT_WHO_TEXT + AUDIT_SUBJECT_TEXT + AUDIT_OUTCOME_TEXT
};

static uint8_t *hashed_number(uint8_t *at, uint64_t value, unsigned n_bytes)
{
    bytes_store(at, n_bytes, value);
    return at + n_bytes;
}

static uint8_t *hashed_text(uint8_t *at, const char *text)
{
    const size_t size = strlen(text);
    at = hashed_number(at, size, 2);
    memcpy(at, text, size);
    return at + size;
}

/* libsodium's SHA-256, which takes no memory: what is applied must not fail half-way. */
void audit_hash(const struct audit_entry *entry, struct digest *out)
{
    static const char mark[] = "medley audit entry 1";
    uint8_t bytes[HASHED_BYTES], *at = bytes;
    memcpy(at, mark, sizeof mark);
    at = hashed_number(at + sizeof mark, entry->number, 8);
    at = hashed_number(at, entry->time_ms, 8);
    at = hashed_number(at, entry->told, 1);
    memcpy(at, entry->before.bytes, DIGEST_BYTES);
    at = hashed_text(at + DIGEST_BYTES, entry->node);
    at = hashed_text(at, entry->what);
    at = hashed_text(at, entry->who);
    at = hashed_text(at, entry->subject);
    at = hashed_text(at, entry->outcome);
    assert(at <= bytes + sizeof bytes);
    crypto_hash_sha256(out->bytes, bytes, (unsigned long long)(at - bytes));
}

void audit_chain(struct audit_entry *entry, struct audit_end *end)
{
    assert(end->number < UINT64_MAX && entry->what[0]);
    entry->number = end->number + 1;
    entry->before = end->hash;
    audit_hash(entry, &entry->hash);
    *end = (struct audit_end){entry->number, entry->hash};
}

static void put_member(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, ",\"%s\":\"", name);
    line_put_text(out, text);
    buffer_text(out, "\"");
}

void audit_write_entry(const struct audit_entry *entry, struct buffer *out)
{
    const size_t before = out->size;
    buffer_printf(out, "{\"number\":%" PRIu64 ",\"time_ms\":%" PRIu64 ",\"told\":%s", entry->number,
                  entry->time_ms, entry->told ? "true" : "false");
    put_member(out, "node", entry->node);
    put_member(out, "what", entry->what);
    put_member(out, "who", entry->who);
    put_member(out, "subject", entry->subject);
    put_member(out, "outcome", entry->outcome);
    buffer_text(out, ",\"before\":\"");
    line_put_hex(out, entry->before.bytes, DIGEST_BYTES);
    buffer_text(out, "\",\"hash\":\"");
    line_put_hex(out, entry->hash.bytes, DIGEST_BYTES);
    buffer_text(out, "\"}\n");
    assert(out->failed || out->size - before <= AUDIT_LINE_BYTES);
}

static void read_member(struct line_reader *reader, const char *before, char *out, size_t size)
{
    line_expect(reader, before);
    line_text(reader, out, size);
}

bool audit_read_entry(const char *line, size_t size, struct audit_entry *out)
{
    struct line_reader reader = {line, size, size > AUDIT_LINE_BYTES};
    *out = (struct audit_entry){0};
    line_expect(&reader, "{\"number\":");
    out->number = line_number(&reader);
    line_expect(&reader, ",\"time_ms\":");
    out->time_ms = line_number(&reader);
    line_expect(&reader, ",\"told\":");
    out->told = line_bool(&reader);
    read_member(&reader, ",\"node\":\"", out->node, sizeof out->node);
    read_member(&reader, ",\"what\":\"", out->what, sizeof out->what);
    read_member(&reader, ",\"who\":\"", out->who, sizeof out->who);
    read_member(&reader, ",\"subject\":\"", out->subject, sizeof out->subject);
    read_member(&reader, ",\"outcome\":\"", out->outcome, sizeof out->outcome);
    line_expect(&reader, ",\"before\":\"");
    line_hex(&reader, out->before.bytes, DIGEST_BYTES);
    line_expect(&reader, "\",\"hash\":\"");
    line_hex(&reader, out->hash.bytes, DIGEST_BYTES);
    line_expect(&reader, "\"}");
    return line_ended(&reader) && out->number && out->what[0];
}
