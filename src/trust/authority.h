/* A cluster's authority, and what makes a node a member: its certificate.
 *
 * The first node makes the cluster: a random cluster id, an Ed25519 key pair for the authority, and
 * a self-signed certificate that carries the id. The authority signs node certificates: subject
 * alternative names
 *     urn:medley:node:<64 digits>   urn:medley:cluster:<32 digits>
 * for both ends of TLS, not able to sign others, in force for AUTHORITY_NODE_DAYS.
 *
 * Admins hold the authority's key, so that each of them can let somebody in when the first node is
 * gone (docs/SECURITY.md says why that gives nothing away that the member list does not protect).
 * `key` is NULL on all others.
 *
 * Time is passed in, in seconds since 1970. Certificates start AUTHORITY_SKEW_S before they are
 * made, so that a reader whose clock is behind takes them.
 *
 * Ownership: authority_deinit(), membership_deinit(); both wipe keys. Threads: none. */
#pragma once

#include "base/buffer.h"
#include "trust/identity.h"

enum {
    AUTHORITY_KEY_BYTES = 32, /* Ed25519's seed */
    AUTHORITY_NODE_DAYS = 365,
    AUTHORITY_RENEW_DAYS = 120, /* a certificate with less left than this is renewed */
    AUTHORITY_SKEW_S = 86400,
    /* 2026-11-01: no clock that shows less is right. An authority is in force from here to the year
     * 9999: its life is the cluster's, and ends with it. */
    AUTHORITY_EPOCH_UNIX_S = 1793491200,
};

/* Zeroed: none. */
struct authority {
    uint8_t cluster_id[CLUSTER_ID_BYTES];
    X509 *certificate;
    EVP_PKEY *key; /* NULL: this node cannot sign */
};

/* A node's place in a cluster. Zeroed: it is in none. While the authority gets a new key, both are
 * believed and the old one's certificate is shown, since a node that was away knows that one alone.
 */
struct membership {
    struct authority authority;
    X509 *certificate;      /* of this node */
    struct authority next;  /* the new one; without a certificate: none */
    X509 *next_certificate; /* of this node by `next`; NULL: not yet */
};

enum error_code authority_make(struct authority *out, struct error *err);
/* Another key for the same cluster. */
enum error_code authority_make_next(const struct authority *of, struct authority *out,
                                    struct error *err);
void authority_deinit(struct authority *authority);

/* Of its certificate. */
enum error_code authority_public_key(const struct authority *authority,
                                     uint8_t public_key[PUBLIC_KEY_BYTES], struct error *err);

/* The old one signs for the new one's public key, of the same cluster. */
enum error_code authority_endorse(const struct authority *old,
                                  const uint8_t public_key[PUBLIC_KEY_BYTES], uint8_t *signature,
                                  struct error *err);
/* A function of its arguments alone, as signature_is_good() is. */
bool authority_endorsed(const uint8_t old_public_key[PUBLIC_KEY_BYTES],
                        const uint8_t cluster_id[CLUSTER_ID_BYTES],
                        const uint8_t public_key[PUBLIC_KEY_BYTES], const uint8_t *signature);
bool authority_is(const struct authority *authority, const uint8_t public_key[PUBLIC_KEY_BYTES]);

/* A certificate for the node that has this public key. *out is freed with X509_free(). */
enum error_code authority_sign(const struct authority *authority,
                               const uint8_t public_key[PUBLIC_KEY_BYTES], uint64_t now_unix_s,
                               X509 **out, struct error *err);

/* The first node of a new cluster. */
enum error_code membership_found(const struct identity *identity, uint64_t now_unix_s,
                                 struct membership *out, struct error *err);

/* Takes over the authority (also on failure) and signs this node's certificate with it. */
enum error_code membership_of_authority(struct authority *authority,
                                        const struct identity *identity, uint64_t now_unix_s,
                                        struct membership *out, struct error *err);

/* Does all of it belong together: authority's certificate and key, node's certificate and identity?
 * Says nothing about time. */
enum error_code membership_check(const struct membership *membership,
                                 const struct identity *identity, struct error *err);

/* Is it time to renew? Also when the certificate's time is over. */
bool membership_is_due(const struct membership *membership, uint64_t now_unix_s);

/* Signs this node a new certificate with the authority's key; ERROR_UNSUPPORTED where this node has
 * none: then a member that has it calls authority_sign(), and membership_set_certificate() takes
 * the result. */
enum error_code membership_renew(struct membership *membership, const struct identity *identity,
                                 uint64_t now_unix_s, struct error *err);

/* Counts the certificate up; refuses one of another node or cluster. */
enum error_code membership_set_certificate(struct membership *membership,
                                           const struct identity *identity, X509 *certificate,
                                           struct error *err);

/* ---- rotation ---- */

/* From now on `next` is to be the authority: takes it over, in place of another one. On errors it
 * is freed, and nothing has changed. */
enum error_code membership_expect(struct membership *membership, struct authority *next,
                                  struct error *err);
/* Of this node by `next`; counts it up. */
enum error_code membership_set_next_certificate(struct membership *membership,
                                                const struct identity *identity, X509 *certificate,
                                                struct error *err);
/* `next` is the authority now, and the old one is not believed any more. It has a certificate. */
void membership_promote(struct membership *membership);

void membership_deinit(struct membership *membership);

/* ---- as bytes, for messages (authority_bytes.c) --------------------------------------------- */

enum error_code certificate_encode(const X509 *certificate, struct buffer *out, struct error *err);
X509 *certificate_decode(const uint8_t *bytes, size_t size); /* NULL: it is none */
void certificate_free(X509 *certificate);                    /* NULL is fine */

/* ERROR_UNSUPPORTED: this node has none. The caller wipes it. */
enum error_code authority_key_bytes(const struct authority *authority,
                                    uint8_t key[AUTHORITY_KEY_BYTES], struct error *err);
void authority_key_wipe(uint8_t *key, size_t size);
/* ERROR_INVALID: it is not the certificate's. */
enum error_code authority_take_key(struct authority *authority,
                                   const uint8_t key[AUTHORITY_KEY_BYTES], struct error *err);
void authority_drop_key(struct authority *authority);

/* ---- certificates (authority_names.c) ------------------------------------------------------ */

/* What a node's certificate says: the node, and its cluster. False when it is not one: names
 * missing, doubled or malformed, or an id that is not the hash of its key. Whether its signature is
 * good is not looked at. */
bool certificate_names(const X509 *certificate, uint8_t node_id[NODE_ID_BYTES],
                       uint8_t cluster_id[CLUSTER_ID_BYTES]);

/* The cluster id in an authority's certificate. */
bool certificate_cluster(const X509 *certificate, uint8_t cluster_id[CLUSTER_ID_BYTES]);

/* The period in which it is in force, in seconds since 1970. */
bool certificate_period(const X509 *certificate, uint64_t *from_unix_s, uint64_t *until_unix_s);
