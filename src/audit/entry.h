/* An entry of the record of who did what: what it says, its hash, and its line.
 *
 * Entries are numbered from 1, without a gap, and each carries the hash of the one before (that of
 * entry 0 is all zeros). An entry's hash is the SHA-256 of these bytes, numbers little-endian:
 *
 *     "medley audit entry 1" and a NUL, number (8 bytes), time_ms (8), told (1), before (32),
 *     then node, what, who, subject, outcome: the length (2), the bytes without a NUL
 *
 * So a record can be checked by anybody, without Medley. As a line it is one JSON object, with
 * these members in this order and no blanks:
 *
 *     {"number":7,"time_ms":1764000000000,"told":false,"node":"4f0c…","what":"node.removed",
 *      "who":"alice at tower","subject":"9b1d…","outcome":"done","before":"…","hash":"…"}
 *
 * A line that says the same in other bytes is refused, so that no bit of a file can change unseen.
 *
 * Texts are printable ASCII: names come from strangers, and are shown on terminals. Pure; any
 * thread. */
#pragma once

#include "base/buffer.h"
#include "trust/digest.h"
#include "trust/identity.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    AUDIT_WHAT_TEXT = 32, /* places, with the NUL */
    AUDIT_WHO_TEXT = 128,
    AUDIT_SUBJECT_TEXT = 192,
    AUDIT_OUTCOME_TEXT = 288,
    AUDIT_LINE_BYTES = 2048, /* no line is longer */
};

struct audit_entry {
    uint64_t number;
    uint64_t time_ms; /* of the node's wall clock: for people */
    /* False: the cluster agreed on it; all members know that it happened. True: `node` told of it,
     * and it is as true as that node is. */
    bool told;
    char node[NODE_ID_TEXT]; /* where it was asked for or seen */
    char what[AUDIT_WHAT_TEXT];
    char who[AUDIT_WHO_TEXT]; /* "alice at tower", "token ci"; empty: the node itself */
    char subject[AUDIT_SUBJECT_TEXT];
    char outcome[AUDIT_OUTCOME_TEXT];
    struct digest before, hash;
};

/* Where a record ends: zeroed, before its first entry. */
struct audit_end {
    uint64_t number;
    struct digest hash;
};

/* A foreign text made safe: what is not printable ASCII becomes "?", and it is cut to fit. NULL is
 * the empty text. */
void audit_text(char *out, size_t size, const char *text);

/* Makes the entry the next after `end`, which then is the record's end. */
void audit_chain(struct audit_entry *entry, struct audit_end *end);
void audit_hash(const struct audit_entry *entry, struct digest *out);

/* Appends the line, with its line feed. */
void audit_write_entry(const struct audit_entry *entry, struct buffer *out);
/* A foreign line, without its line feed. False: it is no entry's. Whether its hash is right is not
 * looked at. */
bool audit_read_entry(const char *line, size_t size, struct audit_entry *out);
