/* The messages of the join protocol (join.h), as bytes.
 *
 *     byte 0  format: 1
 *          1  type
 *             fields in the order below, each two bytes of length (little-endian) and that many
 *             bytes
 *
 * Fields behind those that this version knows are skipped, so that a newer node may say more.
 * Everything else that is not exactly as listed is refused. Reading allocates nothing; what it
 * gives points into the message. Pure. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum join_type {
    JOIN_HELLO = 1,  /* mode, public key, share or commitment, name */
    JOIN_ANSWER = 2, /* cluster id, node id, share or nonce, name */
    JOIN_PROOF = 3,  /* tag or nonce, signature */
    JOIN_ACCEPT = 4, /* tag */
    JOIN_AGREE = 5,  /* tag */
    JOIN_GRANT = 6,  /* the sealed fields of struct join_grant_fields */
    JOIN_DONE = 7,   /* tag */
    JOIN_REFUSE = 8, /* reason, text */
};

enum { JOIN_FORMAT = 1, JOIN_FIELDS_MAX = 4 };

struct join_field {
    const uint8_t *bytes;
    size_t size;
};

struct join_message {
    enum join_type type;
    struct join_field fields[JOIN_FIELDS_MAX];
};

/* What a grant carries, under its seal. */
enum { GRANT_AUTHORITY, GRANT_CERTIFICATE, GRANT_KEY, GRANT_PAYLOAD };

void join_message_begin(struct buffer *out, enum join_type type); /* clears `out` */
void join_message_field(struct buffer *out, const void *bytes, size_t size);

enum error_code join_message_read(const void *bytes, size_t size, struct join_message *out,
                                  struct error *err);
enum error_code join_grant_read(const void *bytes, size_t size,
                                struct join_field fields[JOIN_FIELDS_MAX], struct error *err);

/* A node's name: 1 to 63 letters, digits, and `.`, `_`, `-`; it is shown on terminals and typed by
 * people. */
bool join_name_is_valid(const char *name, size_t size);
