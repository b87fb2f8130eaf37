/* Making and signing certificates: RFC 5280, RFC 8410. */
#include "trust/authority.h"

#include "trust/certificate_make.h"
#include "trust/openssl_error.h"
#include "trust/signature.h"

#include <assert.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

enum { DAY_S = 86400, NAME_TEXT = 192 };

/* ---- the authority --------------------------------------------------------------------- */

static void authority_name(const uint8_t cluster_id[CLUSTER_ID_BYTES], char name[NAME_TEXT])
{
    char digits[CLUSTER_ID_TEXT];
    id_text(cluster_id, CLUSTER_ID_BYTES, digits);
    snprintf(name, NAME_TEXT, "Medley cluster %s", digits);
}

static enum error_code make_for_cluster(const uint8_t cluster_id[CLUSTER_ID_BYTES],
                                        struct authority *out, struct error *err)
{
    *out = (struct authority){0};
    memcpy(out->cluster_id, cluster_id, CLUSTER_ID_BYTES);
    char name[NAME_TEXT], names[NAME_TEXT], digits[CLUSTER_ID_TEXT];
    id_text(out->cluster_id, CLUSTER_ID_BYTES, digits);
    authority_name(out->cluster_id, name);
    snprintf(names, sizeof names, "URI:urn:medley:cluster:%s", digits);
    struct certificate_statement what = {
        .subject = name,
        .issuer = name,
        .from_unix_s = AUTHORITY_EPOCH_UNIX_S,
        .until_unix_s = 253402300799, /* 9999-12-31 23:59:59: RFC 5280, 4.1.2.5 */
        .extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                       {NID_key_usage, "critical,keyCertSign,cRLSign"},
                       {NID_subject_key_identifier, "hash"},
                       {NID_subject_alt_name, names}},
    };
    out->key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    out->certificate = out->key ? certificate_make(&what, out->key, NULL, out->key) : NULL;
    if (out->certificate)
        return ERROR_NONE;
    authority_deinit(out);
    return openssl_error(err, "making the cluster's authority");
}

enum error_code authority_make(struct authority *out, struct error *err)
{
    uint8_t cluster_id[CLUSTER_ID_BYTES];
    *out = (struct authority){0};
    if (RAND_bytes(cluster_id, sizeof cluster_id) != 1)
        return openssl_error(err, "random numbers");
    return make_for_cluster(cluster_id, out, err);
}

enum error_code authority_make_next(const struct authority *of, struct authority *out,
                                    struct error *err)
{
    return make_for_cluster(of->cluster_id, out, err);
}

/* ---- one signs for the next ---- */

static const char endorsement_label[] = "medley authority 1"; /* with its NUL */
enum { ENDORSEMENT_BYTES = sizeof endorsement_label + CLUSTER_ID_BYTES + PUBLIC_KEY_BYTES };

static void endorsement_text(const uint8_t cluster_id[CLUSTER_ID_BYTES],
                             const uint8_t public_key[PUBLIC_KEY_BYTES],
                             uint8_t text[ENDORSEMENT_BYTES])
{
    memcpy(text, endorsement_label, sizeof endorsement_label);
    memcpy(text + sizeof endorsement_label, cluster_id, CLUSTER_ID_BYTES);
    memcpy(text + sizeof endorsement_label + CLUSTER_ID_BYTES, public_key, PUBLIC_KEY_BYTES);
}

enum error_code authority_endorse(const struct authority *old,
                                  const uint8_t public_key[PUBLIC_KEY_BYTES], uint8_t *signature,
                                  struct error *err)
{
    uint8_t text[ENDORSEMENT_BYTES];
    if (!old->key)
        return error_set(err, ERROR_UNSUPPORTED, "this node does not have the authority's key");
    endorsement_text(old->cluster_id, public_key, text);
    return signature_make(old->key, text, sizeof text, signature, err);
}

bool authority_endorsed(const uint8_t old_public_key[PUBLIC_KEY_BYTES],
                        const uint8_t cluster_id[CLUSTER_ID_BYTES],
                        const uint8_t public_key[PUBLIC_KEY_BYTES], const uint8_t *signature)
{
    uint8_t text[ENDORSEMENT_BYTES];
    endorsement_text(cluster_id, public_key, text);
    return signature_is_good(old_public_key, text, sizeof text, signature);
}

bool authority_is(const struct authority *authority, const uint8_t public_key[PUBLIC_KEY_BYTES])
{
    uint8_t own[PUBLIC_KEY_BYTES];
    return authority->certificate && !authority_public_key(authority, own, NULL) &&
           memcmp(own, public_key, sizeof own) == 0;
}

void authority_deinit(struct authority *authority)
{
    if (!authority)
        return;
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    *authority = (struct authority){0};
}

enum error_code authority_public_key(const struct authority *authority,
                                     uint8_t public_key[PUBLIC_KEY_BYTES], struct error *err)
{
    size_t size = PUBLIC_KEY_BYTES;
    EVP_PKEY *key = X509_get0_pubkey(authority->certificate);
    if (key && EVP_PKEY_get_raw_public_key(key, public_key, &size) == 1 && size == PUBLIC_KEY_BYTES)
        return ERROR_NONE;
    return openssl_error(err, "the authority's public key");
}

enum error_code authority_sign(const struct authority *authority,
                               const uint8_t public_key[PUBLIC_KEY_BYTES], uint64_t now_unix_s,
                               X509 **out, struct error *err)
{
    *out = NULL;
    assert(authority->certificate);
    if (!authority->key)
        return error_set(err, ERROR_UNSUPPORTED, "this node does not have the authority's key");
    uint8_t id[NODE_ID_BYTES];
    char node[NODE_ID_TEXT], cluster[CLUSTER_ID_TEXT], name[NAME_TEXT], subject[NAME_TEXT],
        names[NAME_TEXT];
    node_id_of(public_key, id);
    id_text(id, sizeof id, node);
    id_text(authority->cluster_id, CLUSTER_ID_BYTES, cluster);
    authority_name(authority->cluster_id, name);
    snprintf(subject, sizeof subject, "Medley node %.16s", node);
    snprintf(names, sizeof names, "URI:urn:medley:node:%s,URI:urn:medley:cluster:%s", node,
             cluster);
    if (now_unix_s < AUTHORITY_EPOCH_UNIX_S)
        now_unix_s = AUTHORITY_EPOCH_UNIX_S;
    struct certificate_statement what = {
        .subject = subject,
        .issuer = name,
        .from_unix_s = now_unix_s - AUTHORITY_SKEW_S,
        .until_unix_s = now_unix_s + AUTHORITY_NODE_DAYS * (uint64_t)DAY_S,
        .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                       {NID_key_usage, "critical,digitalSignature"},
                       {NID_ext_key_usage, "serverAuth,clientAuth"},
                       {NID_subject_key_identifier, "hash"},
                       {NID_authority_key_identifier, "keyid:always"},
                       {NID_subject_alt_name, names}},
    };
    EVP_PKEY *key =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key, PUBLIC_KEY_BYTES);
    *out = key ? certificate_make(&what, key, authority->certificate, authority->key) : NULL;
    EVP_PKEY_free(key);
    return *out ? ERROR_NONE : openssl_error(err, "signing a certificate");
}
