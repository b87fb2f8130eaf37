#include "trust/api_authority.h"

#include "trust/certificate_make.h"
#include "trust/openssl_error.h"

#include <assert.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

enum {
    SECRET_BYTES = 32,
    API_DAY_S = 86400,
    API_NAME_TEXT = 96,
    SAN_TEXT = SERVED_NAMES_MAX * (SERVED_NAME_TEXT + 5) +
               SERVED_ADDRESSES_MAX * (SERVED_ADDRESS_TEXT + 4),
};

/* 2049-12-31 23:59:59: the last time that UTCTime can say; not all clients read more. */
static const uint64_t api_authority_until_unix_s = 2524607999;

/* ---- the key ---------------------------------------------------------------------------- */

/* RFC 9180, section 7.1.3: DeriveKeyPair for P-256. */
static EVP_PKEY *api_key_derive(uint8_t secret[SECRET_BYTES])
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    char group[] = "P-256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_DHKEM_IKM, secret, SECRET_BYTES),
        OSSL_PARAM_construct_end()};
    if (context && EVP_PKEY_keygen_init(context) == 1 &&
        EVP_PKEY_CTX_set_params(context, params) == 1)
        EVP_PKEY_generate(context, &key);
    EVP_PKEY_CTX_free(context);
    return key;
}

/* RFC 5869, so that the key which is derived tells nothing about the one it comes from. */
static bool api_secret_expand(const uint8_t *ikm, size_t size, const uint8_t *salt,
                              size_t salt_size, uint8_t secret[SECRET_BYTES])
{
    char digest[] = "SHA256", info[] = "medley api authority 1";
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)ikm, size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt, salt_size),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, sizeof info - 1),
        OSSL_PARAM_construct_end()};
    bool done = context && EVP_KDF_derive(context, secret, SECRET_BYTES, params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return done;
}

/* ---- the authority ---------------------------------------------------------------------- */

/* "permitted;DNS:local,permitted;DNS:lan,…": the name itself and all below it. */
static void api_constraints_write(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "critical,permitted;DNS:localhost");
    for (const char *const *suffix = served_suffixes; *suffix; suffix++)
        used += (size_t)snprintf(text + used, size - used, ",permitted;DNS:%s", *suffix);
    assert(used < size);
}

/* All of it follows from the key and the name, the serial number and the signature included. */
static X509 *api_authority_certify(EVP_PKEY *key, const char *name)
{
    uint8_t point[128], hash[SHA256_DIGEST_LENGTH];
    size_t size = 0;
    char constraints[512];
    if (EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point, &size) !=
        1)
        return NULL;
    SHA256(point, size, hash);
    api_constraints_write(constraints, sizeof constraints);
    const struct certificate_statement what = {
        .subject = name,
        .issuer = name,
        .serial = hash,
        .from_unix_s = AUTHORITY_EPOCH_UNIX_S,
        .until_unix_s = api_authority_until_unix_s,
        .extensions = {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                       {NID_key_usage, "critical,keyCertSign,cRLSign"},
                       {NID_ext_key_usage, "serverAuth"},
                       {NID_subject_key_identifier, "hash"},
                       {NID_name_constraints, constraints}},
    };
    return certificate_make(&what, key, NULL, key);
}

static enum error_code api_authority_of_secret(uint8_t secret[SECRET_BYTES], const uint8_t *id,
                                               const char *words, struct api_authority *out,
                                               struct error *err)
{
    char name[API_NAME_TEXT], digits[CLUSTER_ID_TEXT];
    id_text(id, CLUSTER_ID_BYTES, digits);
    snprintf(name, sizeof name, "Medley API, %s %.8s", words, digits);
    out->key = api_key_derive(secret);
    out->certificate = out->key ? api_authority_certify(out->key, name) : NULL;
    OPENSSL_cleanse(secret, SECRET_BYTES);
    if (out->certificate)
        return ERROR_NONE;
    api_authority_deinit(out);
    return openssl_error(err, "making the API's authority");
}

enum error_code api_authority_of_cluster(const struct authority *cluster, struct api_authority *out,
                                         struct error *err)
{
    uint8_t seed[SECRET_BYTES], secret[SECRET_BYTES];
    size_t size = sizeof seed;
    *out = (struct api_authority){0};
    if (!cluster->key)
        return error_set(err, ERROR_UNSUPPORTED, "this node does not have the authority's key");
    bool done = EVP_PKEY_get_raw_private_key(cluster->key, seed, &size) == 1 &&
                size == sizeof seed &&
                api_secret_expand(seed, sizeof seed, cluster->cluster_id, CLUSTER_ID_BYTES, secret);
    OPENSSL_cleanse(seed, sizeof seed);
    if (!done)
        return openssl_error(err, "deriving the API's authority");
    return api_authority_of_secret(secret, cluster->cluster_id, "cluster", out, err);
}

enum error_code api_authority_make(struct api_authority *out, struct error *err)
{
    uint8_t secret[SECRET_BYTES], id[CLUSTER_ID_BYTES];
    *out = (struct api_authority){0};
    if (RAND_priv_bytes(secret, sizeof secret) != 1 || RAND_bytes(id, sizeof id) != 1)
        return openssl_error(err, "random numbers");
    return api_authority_of_secret(secret, id, "machine", out, err);
}

void api_authority_deinit(struct api_authority *authority)
{
    if (!authority)
        return;
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    *authority = (struct api_authority){0};
}

uint64_t api_authority_version(const X509 *certificate)
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    uint64_t version = 0;
    if (X509_digest(certificate, EVP_sha256(), hash, &size) == 1)
        memcpy(&version, hash, sizeof version);
    return version ? version : 1;
}

/* ---- signing ---------------------------------------------------------------------------- */

/* The names were checked to be host names, so none can carry OpenSSL's notation. */
static size_t api_san_write(const struct served_names *names, char text[SAN_TEXT])
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < names->n_names; i++) {
        if (served_name_is_local(names->names[i]))
            used += (size_t)snprintf(text + used, SAN_TEXT - used, "%sDNS:%s", used ? "," : "",
                                     names->names[i]);
    }
    for (uint32_t i = 0; i < names->n_addresses; i++)
        used += (size_t)snprintf(text + used, SAN_TEXT - used, "%sIP:%s", used ? "," : "",
                                 names->addresses[i]);
    assert(used < SAN_TEXT);
    return used;
}

static bool api_authority_name(const X509 *certificate, char name[API_NAME_TEXT])
{
    return X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                                     API_NAME_TEXT) > 0;
}

enum error_code api_authority_sign(const struct api_authority *authority, EVP_PKEY *public_key,
                                   const struct served_names *names, uint64_t now_unix_s,
                                   X509 **out, struct error *err)
{
    char san[SAN_TEXT], name[API_NAME_TEXT];
    *out = NULL;
    assert(authority->certificate && authority->key);
    if (!api_san_write(names, san))
        return error_set(err, ERROR_INVALID, "there is no name or address for a certificate");
    if (now_unix_s < AUTHORITY_EPOCH_UNIX_S)
        now_unix_s = AUTHORITY_EPOCH_UNIX_S;
    if (!api_authority_name(authority->certificate, name))
        return openssl_error(err, "the API authority's name");
    const struct certificate_statement what = {
        .subject = "Medley API",
        .issuer = name,
        .from_unix_s = now_unix_s - AUTHORITY_SKEW_S,
        .until_unix_s = now_unix_s + API_LEAF_DAYS * (uint64_t)API_DAY_S,
        .extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                       {NID_key_usage, "critical,digitalSignature"},
                       {NID_ext_key_usage, "serverAuth"},
                       {NID_subject_key_identifier, "hash"},
                       {NID_authority_key_identifier, "keyid:always"},
                       {NID_subject_alt_name, san}},
    };
    *out = certificate_make(&what, public_key, authority->certificate, authority->key);
    return *out ? ERROR_NONE : openssl_error(err, "signing the API's certificate");
}

enum error_code api_authority_issue(const struct api_authority *authority,
                                    const struct served_names *names, uint64_t now_unix_s,
                                    struct tls_pair *out, struct error *err)
{
    *out = (struct tls_pair){0};
    out->key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    if (!out->key)
        return openssl_error(err, "making the API's key");
    enum error_code code =
        api_authority_sign(authority, out->key, names, now_unix_s, &out->certificate, err);
    if (code)
        tls_pair_deinit(out);
    return code;
}
