/* A node's place in a cluster. */
#include "trust/authority.h"
#include "trust/openssl_error.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>

enum { DAY_S = 86400 };

void membership_deinit(struct membership *membership)
{
    if (!membership)
        return;
    authority_deinit(&membership->authority);
    X509_free(membership->certificate);
    authority_deinit(&membership->next);
    X509_free(membership->next_certificate);
    *membership = (struct membership){0};
}

enum error_code membership_of_authority(struct authority *authority,
                                        const struct identity *identity, uint64_t now_unix_s,
                                        struct membership *out, struct error *err)
{
    *out = (struct membership){.authority = *authority};
    *authority = (struct authority){0};
    enum error_code code =
        authority_sign(&out->authority, identity->public_key, now_unix_s, &out->certificate, err);
    if (code)
        membership_deinit(out);
    return code;
}

enum error_code membership_found(const struct identity *identity, uint64_t now_unix_s,
                                 struct membership *out, struct error *err)
{
    *out = (struct membership){0};
    struct authority authority;
    enum error_code code = authority_make(&authority, err);
    return code ? code : membership_of_authority(&authority, identity, now_unix_s, out, err);
}

static enum error_code check_authority(const struct authority *authority, struct error *err)
{
    uint8_t cluster_id[CLUSTER_ID_BYTES];
    EVP_PKEY *key = authority->certificate ? X509_get0_pubkey(authority->certificate) : NULL;
    if (!key || !EVP_PKEY_is_a(key, "ED25519") ||
        !certificate_cluster(authority->certificate, cluster_id) ||
        X509_check_ca(authority->certificate) != 1 ||
        X509_verify(authority->certificate, key) != 1) {
        ERR_clear_error();
        return error_set(err, ERROR_INVALID,
                         "the authority's certificate is not from a Medley cluster");
    }
    if (memcmp(cluster_id, authority->cluster_id, sizeof cluster_id) != 0)
        return error_set(err, ERROR_INVALID,
                         "the authority's certificate belongs to another cluster");
    if (authority->key && EVP_PKEY_eq(authority->key, key) != 1) {
        ERR_clear_error();
        return error_set(err, ERROR_INVALID,
                         "the authority's key does not belong to its certificate");
    }
    return ERROR_NONE;
}

/* The node's certificate against the identity and the authority. */
static enum error_code check_certificate(const struct authority *authority,
                                         const struct identity *identity, X509 *certificate,
                                         struct error *err)
{
    uint8_t node_id[NODE_ID_BYTES], cluster_id[CLUSTER_ID_BYTES];
    if (!certificate || !certificate_names(certificate, node_id, cluster_id))
        return error_set(err, ERROR_INVALID, "the node's certificate is not from a Medley node");
    if (!authority->certificate)
        return error_set(err, ERROR_INVALID, "there is no authority that could have signed it");
    if (memcmp(node_id, identity->node_id, sizeof node_id) != 0)
        return error_set(err, ERROR_INVALID, "the certificate belongs to another node");
    if (memcmp(cluster_id, authority->cluster_id, sizeof cluster_id) != 0)
        return error_set(err, ERROR_INVALID, "the certificate belongs to another cluster");
    if (X509_check_issued(authority->certificate, certificate) != X509_V_OK ||
        X509_verify(certificate, X509_get0_pubkey(authority->certificate)) != 1) {
        ERR_clear_error();
        return error_set(err, ERROR_INVALID,
                         "the certificate was not signed by the cluster's authority");
    }
    return ERROR_NONE;
}

/* It is of the same cluster, whole, and has a name to be found by. */
static enum error_code check_next(const struct authority *authority, const struct authority *next,
                                  struct error *err)
{
    if (memcmp(next->cluster_id, authority->cluster_id, CLUSTER_ID_BYTES) != 0)
        return error_set(err, ERROR_INVALID, "the new authority belongs to another cluster");
    return check_authority(next, err);
}

enum error_code membership_check(const struct membership *membership,
                                 const struct identity *identity, struct error *err)
{
    const struct authority *next = &membership->next;
    enum error_code code = check_authority(&membership->authority, err);
    if (!code)
        code = check_certificate(&membership->authority, identity, membership->certificate, err);
    if (!code && next->certificate)
        code = check_next(&membership->authority, next, err);
    if (!code && membership->next_certificate)
        code = check_certificate(next, identity, membership->next_certificate, err);
    return code;
}

/* ---- rotation ---- */

enum error_code membership_expect(struct membership *membership, struct authority *next,
                                  struct error *err)
{
    const enum error_code code = check_next(&membership->authority, next, err);
    if (code) {
        authority_deinit(next);
        return code;
    }
    authority_deinit(&membership->next);
    X509_free(membership->next_certificate);
    membership->next_certificate = NULL;
    membership->next = *next;
    *next = (struct authority){0};
    return ERROR_NONE;
}

enum error_code membership_set_next_certificate(struct membership *membership,
                                                const struct identity *identity, X509 *certificate,
                                                struct error *err)
{
    const enum error_code code = check_certificate(&membership->next, identity, certificate, err);
    if (code)
        return code;
    X509_up_ref(certificate);
    X509_free(membership->next_certificate);
    membership->next_certificate = certificate;
    return ERROR_NONE;
}

void membership_promote(struct membership *membership)
{
    assert(membership->next.certificate && membership->next_certificate);
    authority_deinit(&membership->authority);
    X509_free(membership->certificate);
    membership->authority = membership->next;
    membership->certificate = membership->next_certificate;
    membership->next = (struct authority){0};
    membership->next_certificate = NULL;
}

bool membership_is_due(const struct membership *membership, uint64_t now_unix_s)
{
    uint64_t from, until;
    return membership->certificate &&
           (!certificate_period(membership->certificate, &from, &until) ||
            now_unix_s + AUTHORITY_RENEW_DAYS * (uint64_t)DAY_S > until);
}

enum error_code membership_set_certificate(struct membership *membership,
                                           const struct identity *identity, X509 *certificate,
                                           struct error *err)
{
    enum error_code code = check_certificate(&membership->authority, identity, certificate, err);
    if (code)
        return code;
    X509_up_ref(certificate);
    X509_free(membership->certificate);
    membership->certificate = certificate;
    return ERROR_NONE;
}

enum error_code membership_renew(struct membership *membership, const struct identity *identity,
                                 uint64_t now_unix_s, struct error *err)
{
    X509 *certificate;
    enum error_code code =
        authority_sign(&membership->authority, identity->public_key, now_unix_s, &certificate, err);
    if (code)
        return code;
    code = membership_set_certificate(membership, identity, certificate, err);
    X509_free(certificate);
    return code;
}
