/* Who a node is: an Ed25519 key pair, and the node id that is the hash of its public key.
 *
 * The pair is made once, on the node's first start, and kept in the state folder
 * (identity_files.h). Nobody else can have the id without the private key, so an id needs no
 * authority to be believed: a certificate only says which cluster the id may ask to talk to.
 *
 * Ed25519 and not P-256: its signatures need no randomness, so a machine that was cloned or has
 * just booted cannot give its key away; keys are 32 bytes; and no browser ever sees these
 * certificates, which is what P-256 would be needed for.
 *
 * Ownership: an identity belongs to who made it; identity_deinit() wipes the private key. Threads:
 * an identity that is not changed may be read by several. */
#pragma once

#include "base/error.h"

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NODE_ID_BYTES = 32,    /* SHA-256 of the public key's DER SubjectPublicKeyInfo */
    NODE_ID_TEXT = 65,     /* as hexadecimal digits, with a NUL */
    PUBLIC_KEY_BYTES = 32, /* Ed25519, RFC 8032 */
    CLUSTER_ID_BYTES = 16, /* random, made with the cluster */
    CLUSTER_ID_TEXT = 33,
};

/* Zeroed: nobody. */
struct identity {
    EVP_PKEY *key; /* with the private half */
    uint8_t public_key[PUBLIC_KEY_BYTES];
    uint8_t node_id[NODE_ID_BYTES];
};

/* A new key pair, in memory only. */
enum error_code identity_make(struct identity *out, struct error *err);

/* The same pair each time, of the 32 bytes that RFC 8032 calls the private key. For the simulator:
 * who knows the bytes has the key. */
enum error_code identity_of_seed(const uint8_t seed[32], struct identity *out, struct error *err);

/* Takes over `key` (also on failure), which must be Ed25519 with its private half. */
enum error_code identity_of_key(EVP_PKEY *key, struct identity *out, struct error *err);

void identity_deinit(struct identity *identity);

/* The id that belongs to a public key. */
void node_id_of(const uint8_t public_key[PUBLIC_KEY_BYTES], uint8_t node_id[NODE_ID_BYTES]);

/* Lower-case hexadecimal digits; `text` has 2 * size + 1 places. id_parse() takes exactly such
 * text. */
void id_text(const uint8_t *id, size_t size, char *text);
bool id_parse(const char *text, uint8_t *id, size_t size);
