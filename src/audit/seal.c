#include "audit/seal.h"

#include "audit/line.h"
#include "base/bytes.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SEALED_BYTES = 20 + 1 + 8 + 8 + DIGEST_BYTES + DIGEST_BYTES + 8 + PUBLIC_KEY_BYTES };

static void seal_bytes(const struct audit_seal *seal, uint8_t out[SEALED_BYTES])
{
    static const char mark[] = "medley audit seal 1";
    uint8_t *at = out;
    memcpy(at, mark, sizeof mark), at += sizeof mark;
    *at++ = (uint8_t)seal->type;
    bytes_store(at, 8, seal->first), at += 8;
    bytes_store(at, 8, seal->last), at += 8;
    memcpy(at, seal->before.bytes, DIGEST_BYTES), at += DIGEST_BYTES;
    memcpy(at, seal->hash.bytes, DIGEST_BYTES), at += DIGEST_BYTES;
    bytes_store(at, 8, seal->time_ms), at += 8;
    memcpy(at, seal->key, PUBLIC_KEY_BYTES), at += PUBLIC_KEY_BYTES;
    assert(at == out + SEALED_BYTES);
}

enum error_code seal_sign(struct audit_seal *seal, const struct identity *identity,
                          struct error *err)
{
    uint8_t bytes[SEALED_BYTES];
    assert(seal->type == SEAL_HEAD || seal->type == SEAL_GAP);
    memcpy(seal->key, identity->public_key, PUBLIC_KEY_BYTES);
    seal_bytes(seal, bytes);
    return signature_make(identity->key, bytes, sizeof bytes, seal->signature, err);
}

bool seal_is_good(const struct audit_seal *seal)
{
    uint8_t bytes[SEALED_BYTES];
    seal_bytes(seal, bytes);
    return signature_is_good(seal->key, bytes, sizeof bytes, seal->signature);
}

void seal_signer(const struct audit_seal *seal, char node[NODE_ID_TEXT])
{
    uint8_t id[NODE_ID_BYTES];
    node_id_of(seal->key, id);
    id_text(id, NODE_ID_BYTES, node);
}

/* ---- as a line ---- */

static const char *seal_name(enum seal_type type)
{
    return type == SEAL_GAP ? "gap" : "head";
}

void audit_write_seal(const struct audit_seal *seal, struct buffer *out)
{
    buffer_printf(out, "{\"%s\":{\"first\":%" PRIu64 ",\"last\":%" PRIu64 ",\"before\":\"",
                  seal_name(seal->type), seal->first, seal->last);
    line_put_hex(out, seal->before.bytes, DIGEST_BYTES);
    buffer_text(out, "\",\"hash\":\"");
    line_put_hex(out, seal->hash.bytes, DIGEST_BYTES);
    buffer_printf(out, "\",\"time_ms\":%" PRIu64 ",\"key\":\"", seal->time_ms);
    line_put_hex(out, seal->key, PUBLIC_KEY_BYTES);
    buffer_text(out, "\",\"signature\":\"");
    line_put_hex(out, seal->signature, SIGNATURE_BYTES);
    buffer_text(out, "\"}}\n");
}

bool audit_read_seal(const char *line, size_t size, struct audit_seal *out)
{
    struct line_reader reader = {line, size, size > AUDIT_LINE_BYTES || size < 3};
    *out = (struct audit_seal){.type = size > 2 && line[2] == 'g' ? SEAL_GAP : SEAL_HEAD};
    line_expect(&reader, out->type == SEAL_GAP ? "{\"gap\":{\"first\":" : "{\"head\":{\"first\":");
    out->first = line_number(&reader);
    line_expect(&reader, ",\"last\":");
    out->last = line_number(&reader);
    line_expect(&reader, ",\"before\":\"");
    line_hex(&reader, out->before.bytes, DIGEST_BYTES);
    line_expect(&reader, "\",\"hash\":\"");
    line_hex(&reader, out->hash.bytes, DIGEST_BYTES);
    line_expect(&reader, "\",\"time_ms\":");
    out->time_ms = line_number(&reader);
    line_expect(&reader, ",\"key\":\"");
    line_hex(&reader, out->key, PUBLIC_KEY_BYTES);
    line_expect(&reader, "\",\"signature\":\"");
    line_hex(&reader, out->signature, SIGNATURE_BYTES);
    line_expect(&reader, "\"}}");
    return line_ended(&reader) && out->first && out->first <= out->last + 1;
}

/* ---- as an entry ---- */

/* "entry 7 <hash>", and "<time> <key> <signature>": first and before are 1 and zeros. */
void seal_to_entry(const struct audit_seal *seal, struct audit_entry *out)
{
    struct buffer text = {0};
    char hash[DIGEST_TEXT];
    assert(seal->type == SEAL_HEAD && seal->first == 1);
    snprintf(out->what, sizeof out->what, "%s", AUDIT_SIGNED);
    snprintf(out->subject, sizeof out->subject, "entry %" PRIu64 " %s", seal->last,
             digest_text(&seal->hash, hash));
    buffer_printf(&text, "%" PRIu64 " ", seal->time_ms);
    line_put_hex(&text, seal->key, PUBLIC_KEY_BYTES);
    buffer_text(&text, " ");
    line_put_hex(&text, seal->signature, SIGNATURE_BYTES);
    snprintf(out->outcome, sizeof out->outcome, "%s", text.data ? text.data : "");
    buffer_deinit(&text);
}

bool seal_of_entry(const struct audit_entry *entry, struct audit_seal *out)
{
    struct line_reader subject = {entry->subject, strlen(entry->subject), !entry->told};
    struct line_reader outcome = {entry->outcome, strlen(entry->outcome), false};
    *out = (struct audit_seal){.type = SEAL_HEAD, .first = 1};
    if (strcmp(entry->what, AUDIT_SIGNED) != 0)
        return false;
    line_expect(&subject, "entry ");
    out->last = line_number(&subject);
    line_expect(&subject, " ");
    line_hex(&subject, out->hash.bytes, DIGEST_BYTES);
    out->time_ms = line_number(&outcome);
    line_expect(&outcome, " ");
    line_hex(&outcome, out->key, PUBLIC_KEY_BYTES);
    line_expect(&outcome, " ");
    line_hex(&outcome, out->signature, SIGNATURE_BYTES);
    return line_ended(&subject) && line_ended(&outcome);
}
