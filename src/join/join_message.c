#include "join/join_message.h"

#include "base/limits.h"
#include "join/cpace.h"
#include "trust/identity.h"

#include <assert.h>
#include <string.h>

enum {
    NAME_BYTES_MAX = 63,
    SIGNATURE_BYTES = 64,
    TEXT_BYTES_MAX = 200,
    CERTIFICATE_BYTES_MAX = 2048,
    KEY_BYTES_MAX = 128
};

struct rule {
    uint16_t min, max;
};

struct rules {
    unsigned n;
    struct rule fields[JOIN_FIELDS_MAX];
};

static const struct rules rules[] = {
    [JOIN_HELLO] = {4,
                    {{1, 1}, {PUBLIC_KEY_BYTES, PUBLIC_KEY_BYTES}, {32, 32}, {1, NAME_BYTES_MAX}}},
    [JOIN_ANSWER] = {4,
                     {{CLUSTER_ID_BYTES, CLUSTER_ID_BYTES},
                      {NODE_ID_BYTES, NODE_ID_BYTES},
                      {32, 32},
                      {1, NAME_BYTES_MAX}}},
    [JOIN_PROOF] = {2, {{32, 32}, {SIGNATURE_BYTES, SIGNATURE_BYTES}}},
    [JOIN_ACCEPT] = {1, {{CPACE_TAG_BYTES, CPACE_TAG_BYTES}}},
    [JOIN_AGREE] = {1, {{CPACE_TAG_BYTES, CPACE_TAG_BYTES}}},
    [JOIN_GRANT] = {1, {{16, LIMIT_JOIN_MESSAGE_BYTES}}},
    [JOIN_DONE] = {1, {{CPACE_TAG_BYTES, CPACE_TAG_BYTES}}},
    [JOIN_REFUSE] = {2, {{1, 1}, {0, TEXT_BYTES_MAX}}},
};

static const struct rules grant_rules = {4,
                                         {{1, CERTIFICATE_BYTES_MAX},
                                          {1, CERTIFICATE_BYTES_MAX},
                                          {0, KEY_BYTES_MAX},
                                          {0, LIMIT_JOIN_PAYLOAD_BYTES}}};

static_assert(LIMIT_JOIN_MESSAGE_BYTES <= UINT16_MAX, "a field's length has two bytes");
static_assert(LIMIT_JOIN_PAYLOAD_BYTES + 2 * CERTIFICATE_BYTES_MAX + KEY_BYTES_MAX + 64 <=
                  LIMIT_JOIN_MESSAGE_BYTES,
              "the largest grant fits into a message");

void join_message_begin(struct buffer *out, enum join_type type)
{
    buffer_clear(out);
    buffer_append(out, (const uint8_t[]){JOIN_FORMAT, (uint8_t)type}, 2);
}

void join_message_field(struct buffer *out, const void *bytes, size_t size)
{
    assert(size <= UINT16_MAX);
    buffer_append(out, (const uint8_t[]){(uint8_t)size, (uint8_t)(size >> 8)}, 2);
    if (size)
        buffer_append(out, bytes, size);
}

static enum error_code join_message_read_fields(const uint8_t *at, size_t size,
                                                const struct rules *expected,
                                                struct join_field fields[JOIN_FIELDS_MAX],
                                                struct error *err)
{
    for (unsigned i = 0; size > 0 || i < expected->n; i++) {
        if (size < 2)
            return error_set(err, ERROR_INVALID, "the message ends early");
        size_t length = (size_t)(at[0] | at[1] << 8);
        if (length > size - 2)
            return error_set(err, ERROR_INVALID, "the message ends early");
        if (i < expected->n) {
            if (length < expected->fields[i].min || length > expected->fields[i].max)
                return error_set(err, ERROR_INVALID, "field %u of the message has %zu bytes", i,
                                 length);
            fields[i] = (struct join_field){at + 2, length};
        }
        at += 2 + length;
        size -= 2 + length;
    }
    return ERROR_NONE;
}

bool join_name_is_valid(const char *name, size_t size)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (size_t i = 0; i < size; i++) {
        if (!name[i] || !strchr(good, name[i]))
            return false;
    }
    return size >= 1 && size <= NAME_BYTES_MAX;
}

/* What is shown to people must be what a terminal prints as it is. */
static enum error_code check_texts(const struct join_message *message, struct error *err)
{
    if (message->type == JOIN_HELLO || message->type == JOIN_ANSWER) {
        if (!join_name_is_valid((const char *)message->fields[3].bytes, message->fields[3].size))
            return error_set(err, ERROR_INVALID, "the message has a malformed node name");
    }
    if (message->type == JOIN_REFUSE) {
        for (size_t i = 0; i < message->fields[1].size; i++) {
            if (message->fields[1].bytes[i] < ' ' || message->fields[1].bytes[i] > '~')
                return error_set(err, ERROR_INVALID, "the message has unprintable text");
        }
    }
    return ERROR_NONE;
}

enum error_code join_message_read(const void *bytes, size_t size, struct join_message *out,
                                  struct error *err)
{
    const uint8_t *at = bytes;
    *out = (struct join_message){0};
    if (size < 2)
        return error_set(err, ERROR_INVALID, "the message ends early");
    if (size > LIMIT_JOIN_MESSAGE_BYTES)
        return error_set(err, ERROR_INVALID, "the message is larger than the limit of %d bytes",
                         LIMIT_JOIN_MESSAGE_BYTES);
    if (at[0] != JOIN_FORMAT)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the message has another version of the join protocol (%u)", at[0]);
    if (at[1] < JOIN_HELLO || at[1] > JOIN_REFUSE)
        return error_set(err, ERROR_INVALID, "the message is of an unknown type (%u)", at[1]);
    out->type = (enum join_type)at[1];
    enum error_code code =
        join_message_read_fields(at + 2, size - 2, &rules[at[1]], out->fields, err);
    return code ? code : check_texts(out, err);
}

enum error_code join_grant_read(const void *bytes, size_t size,
                                struct join_field fields[JOIN_FIELDS_MAX], struct error *err)
{
    memset(fields, 0, JOIN_FIELDS_MAX * sizeof fields[0]);
    return join_message_read_fields(bytes, size, &grant_rules, fields, err);
}
