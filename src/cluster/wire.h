/* A replica's messages as bytes.
 *
 * Every message: version (1 byte), type (1), lineage (8 + 8); then by type the fields below in
 * their order, numbers little-endian in 8 bytes, flags in 1, bytes with their length in 4 before
 * them. What a later version appends is ignored; a message with a higher version is read as far as
 * this one knows it. A type it does not know is WIRE_UNKNOWN. Foreign bytes: decoding is bounded
 * (base/limits.h) and refuses what no replica may be given: terms out of order, lists of members
 * that are none, entries beyond their limits.
 *
 * Pure. A decoded message owns its entries and snapshot: wire_clear(). */
#pragma once

#include "base/buffer.h"
#include "cluster/log.h"

enum wire_type {
    WIRE_UNKNOWN = 0,
    WIRE_VOTE = 1,
    WIRE_VOTE_RESULT = 2,
    WIRE_APPEND = 3,
    WIRE_APPEND_RESULT = 4,
    WIRE_INSTALL = 5,
    WIRE_TIMEOUT_NOW = 6,
    WIRE_STATUS = 7, /* to find out who is left, and in which lineage */
};

struct wire_vote {
    uint64_t term, last_index, last_term;
    bool disrupt, pre_vote;
};
struct wire_vote_result {
    uint64_t term;
    bool granted, pre_vote;
};
struct wire_append {
    uint64_t term, prev_index, prev_term, commit;
    struct log entries; /* entries.first is prev_index + 1 */
};
struct wire_append_result {
    uint64_t term, rejected, last_index;
};
struct wire_install {
    uint64_t term;
    struct log_snapshot snapshot;
};
struct wire_timeout_now {
    uint64_t term, last_index, last_term;
};
struct wire_status {
    uint64_t last_term, last_index;
    bool led;  /* it hears a leader */
    bool asks; /* for the same in return */
};

struct wire_message {
    enum wire_type type;
    struct lineage lineage;
    union {
        struct wire_vote vote;
        struct wire_vote_result vote_result;
        struct wire_append append;
        struct wire_append_result append_result;
        struct wire_install install;
        struct wire_timeout_now timeout_now;
        struct wire_status status;
    };
};

/* Appends to `out`; on lack of memory out->failed. The type must be known. */
void wire_encode(struct buffer *out, const struct wire_message *message);

/* ERROR_INVALID says what is wrong; ERROR_NO_MEMORY. */
enum error_code wire_decode(const uint8_t *bytes, size_t size, struct wire_message *out,
                            struct error *err);
void wire_clear(struct wire_message *message);
