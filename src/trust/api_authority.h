/* The authority that signs what the API shows its clients.
 *
 * The cluster's own authority has an Ed25519 key, which browsers and many clients do not take. So
 * the API has an authority of its own, ECDSA with P-256, which everybody who holds the cluster's
 * key can derive from it (HKDF, then RFC 9180's DeriveKeyPair) and nobody else can. Its
 * certificate, too, is the same bits wherever it is derived: clients trust one file for all nodes,
 * and nothing has to be stored or sent. A new cluster authority means a new API authority.
 *
 * A machine in no cluster makes an authority of its own, with a random key (pair_keeper.h).
 *
 * Clients that trust this authority give it no power over the rest of the web: name constraints
 * (RFC 5280, 4.2.1.10) allow names that mean something on the local network only (served_names.h),
 * and addresses; the key usage, servers of TLS only.
 *
 * Ownership: api_authority_deinit(), tls_pair_deinit(). Threads: none. */
#pragma once

#include "trust/authority.h"
#include "trust/served_names.h"
#include "trust/tls_pair.h"

enum {
    API_LEAF_DAYS = 90,
    API_LEAF_RENEW_DAYS = 30, /* a certificate with less left than this is renewed */
};

/* Zeroed: none. */
struct api_authority {
    X509 *certificate;
    EVP_PKEY *key;
};

/* Derived from the cluster's. ERROR_UNSUPPORTED: this node does not hold the cluster's key. */
enum error_code api_authority_of_cluster(const struct authority *cluster, struct api_authority *out,
                                         struct error *err);

/* With a random key, of this machine alone. */
enum error_code api_authority_make(struct api_authority *out, struct error *err);

void api_authority_deinit(struct api_authority *authority);

/* A certificate for a public key (P-256) under these names and addresses; names that the
 * authority's constraints forbid are left out. ERROR_INVALID: then none are left. *out is freed
 * with X509_free(). */
enum error_code api_authority_sign(const struct api_authority *authority, EVP_PKEY *public_key,
                                   const struct served_names *names, uint64_t now_unix_s,
                                   X509 **out, struct error *err);

/* The same with a new key: what a server shows. */
enum error_code api_authority_issue(const struct api_authority *authority,
                                    const struct served_names *names, uint64_t now_unix_s,
                                    struct tls_pair *out, struct error *err);

/* A number that is another one for another authority; never 0. */
uint64_t api_authority_version(const X509 *certificate);
