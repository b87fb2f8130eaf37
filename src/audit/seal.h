/* A node's signed word about a record: what it holds, and how it ended at a moment.
 *
 *     SEAL_HEAD   "I hold entries first to last (but for the gaps that I have sealed); `before` is
 *                 the hash of entry first - 1, `hash` that of entry last."
 *     SEAL_GAP    "I do not hold entries first to last: I learned the state that followed from them
 *                 as a whole." The hashes likewise.
 *
 * A record whose tail was cut off no longer ends where its head says. Who could make another head
 * has the node's key, and with it the node; then the heads of others and the cluster's own state
 * say otherwise.
 *
 * What is signed (numbers little-endian): "medley audit seal 1" and a NUL, type (1 byte), first
 * (8), last (8), before (32), hash (32), time_ms (8), public key (32). As a line it is, without
 * blanks,
 *
 *     {"head":{"first":1,"last":7,"before":"…","hash":"…","time_ms":1764000000000,"key":"…",
 *      "signature":"…"}}
 *
 * Pure; any thread. */
#pragma once

#include "audit/entry.h"
#include "trust/signature.h"

enum seal_type { SEAL_HEAD = 1, SEAL_GAP = 2 };

struct audit_seal {
    enum seal_type type;
    uint64_t first, last;
    struct digest before, hash;
    uint64_t time_ms;
    uint8_t key[PUBLIC_KEY_BYTES];
    uint8_t signature[SIGNATURE_BYTES];
};

/* Sets key and signature. */
enum error_code seal_sign(struct audit_seal *seal, const struct identity *identity,
                          struct error *err);
bool seal_is_good(const struct audit_seal *seal);
void seal_signer(const struct audit_seal *seal, char node[NODE_ID_TEXT]);

void audit_write_seal(const struct audit_seal *seal, struct buffer *out); /* with its line feed */
bool audit_read_seal(const char *line, size_t size, struct audit_seal *out);

/* ---- heads that the cluster agrees on ----
 * From time to time the leader signs the end of the record, and the cluster agrees on that: an
 * entry AUDIT_SIGNED, whose outcome is the seal. So every node has heads of others. */
#define AUDIT_SIGNED "record.signed"
void seal_to_entry(const struct audit_seal *seal, struct audit_entry *out); /* told, what, … */
/* False: it is no such entry, or its outcome is not one. */
bool seal_of_entry(const struct audit_entry *entry, struct audit_seal *out);
