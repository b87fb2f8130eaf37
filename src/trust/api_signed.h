/* A certificate for this machine's API that an admin of the cluster has signed, for a member that
 * cannot derive the API's authority itself (api_authority.h).
 *
 * The member makes a key, which never leaves it, and shows its public half: a point of P-256, not
 * compressed. What comes back is checked, because `medley ca export` hands the authority's
 * certificate to clients: it must sign, and its name constraints must keep it to the local network.
 *
 * It is kept in STATE/api/signed.pem, so that a restart without an admin shows it again, together
 * with the cluster authority from whose key the API's was derived: another one there means that
 * this one is out of date. Ownership: api_signed_deinit(). Threads: none. */
#pragma once

#include "trust/api_authority.h"

enum { API_POINT_BYTES = 65 };

/* Zeroed: none. */
struct api_signed {
    EVP_PKEY *key;
    X509 *certificate; /* of the server */
    X509 *authority;   /* that signed it: what clients trust */
    X509 *cluster;     /* the cluster's, of that time */
};

void api_signed_deinit(struct api_signed *made);

/* ---- the member ---- */

enum error_code api_key_new(EVP_PKEY **out, uint8_t point[API_POINT_BYTES], struct error *err);
void api_key_free(EVP_PKEY *key); /* NULL is fine */

/* Both certificates are DER; `key` and `cluster` are counted up. ERROR_INVALID: they do not belong
 * together, or the authority is none that a client should trust. */
enum error_code api_signed_take(EVP_PKEY *key, X509 *cluster, const uint8_t *certificate,
                                size_t certificate_size, const uint8_t *authority,
                                size_t authority_size, struct api_signed *out, struct error *err);

/* What a server shows. The parts are counted up. */
struct tls_pair api_signed_pair(const struct api_signed *made);
uint64_t api_signed_until(const struct api_signed *made); /* in seconds since 1970 */
/* Signed under this cluster's authority as it is now; under that of this cluster at all. */
bool api_signed_is_current(const struct api_signed *made, const struct authority *cluster);
bool api_signed_is_of(const struct api_signed *made, const uint8_t cluster_id[CLUSTER_ID_BYTES]);

enum error_code api_signed_store(const char *state_folder, const struct api_signed *made,
                                 struct error *err);
/* ERROR_NOT_FOUND: there is none. */
enum error_code api_signed_load(const char *state_folder, struct api_signed *out,
                                struct error *err);
enum error_code api_signed_forget(const char *state_folder, struct error *err);

/* ---- the admin ---- */

/* DER. ERROR_INVALID: the point is none, or there is no name to sign for. */
enum error_code api_point_sign(const struct api_authority *authority, const uint8_t *point,
                               size_t point_size, const struct served_names *names,
                               uint64_t now_unix_s, struct buffer *certificate, struct error *err);
