#include "trust/api_signed.h"

#include "base/durable_file.h"
#include "trust/openssl_error.h"
#include "trust/secret_files.h"

#include <assert.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>

static const char signed_file[] = "signed.pem";

void api_signed_deinit(struct api_signed *made)
{
    if (!made)
        return;
    EVP_PKEY_free(made->key);
    X509_free(made->certificate);
    X509_free(made->authority);
    X509_free(made->cluster);
    *made = (struct api_signed){0};
}

/* ---- the key ---- */

enum error_code api_key_new(EVP_PKEY **out, uint8_t point[API_POINT_BYTES], struct error *err)
{
    size_t size = 0;
    *out = EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    if (*out &&
        EVP_PKEY_get_octet_string_param(*out, OSSL_PKEY_PARAM_PUB_KEY, point, API_POINT_BYTES,
                                        &size) == 1 &&
        size == API_POINT_BYTES)
        return ERROR_NONE;
    api_key_free(*out);
    *out = NULL;
    return openssl_error(err, "making the API's key");
}

void api_key_free(EVP_PKEY *key)
{
    EVP_PKEY_free(key);
}

/* NULL: it is no point of the curve. OpenSSL looks (EC_POINT_oct2point()). */
static EVP_PKEY *api_point_read(const uint8_t *point, size_t size)
{
    EVP_PKEY *key = NULL;
    char group[] = "P-256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, (void *)(uintptr_t)point, size),
        OSSL_PARAM_construct_end()};
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    if (size == API_POINT_BYTES && point[0] == POINT_CONVERSION_UNCOMPRESSED && context &&
        EVP_PKEY_fromdata_init(context) == 1)
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, params);
    EVP_PKEY_CTX_free(context);
    return key;
}

enum error_code api_point_sign(const struct api_authority *authority, const uint8_t *point,
                               size_t point_size, const struct served_names *names,
                               uint64_t now_unix_s, struct buffer *certificate, struct error *err)
{
    X509 *made = NULL;
    EVP_PKEY *key = api_point_read(point, point_size);
    enum error_code code =
        key ? api_authority_sign(authority, key, names, now_unix_s, &made, err)
            : error_set(err, ERROR_INVALID, "that is no public key of an API (P-256)");
    if (!code)
        code = certificate_encode(made, certificate, err);
    certificate_free(made);
    EVP_PKEY_free(key);
    return code;
}

/* ---- what came back ---- */

/* What clients would trust from now on: an authority that is kept to local names, as ours are. */
static bool api_authority_is_bounded(X509 *authority)
{
    return X509_check_ca(authority) == 1 &&
           X509_get_ext_by_NID(authority, NID_name_constraints, -1) >= 0 &&
           X509_self_signed(authority, 1) == 1;
}

static enum error_code api_signed_check(const struct api_signed *made, struct error *err)
{
    if (!api_authority_is_bounded(made->authority))
        return error_set(err, ERROR_INVALID, "that is no authority for an API");
    if (X509_verify(made->certificate, X509_get0_pubkey(made->authority)) != 1)
        return error_set(err, ERROR_INVALID, "the authority did not sign the API's certificate");
    if (X509_check_private_key(made->certificate, made->key) != 1)
        return error_set(err, ERROR_INVALID, "the API's certificate is for another key");
    return api_signed_until(made) ? ERROR_NONE
                                  : error_set(err, ERROR_INVALID, "the certificate has no end");
}

enum error_code api_signed_take(EVP_PKEY *key, X509 *cluster, const uint8_t *certificate,
                                size_t certificate_size, const uint8_t *authority,
                                size_t authority_size, struct api_signed *out, struct error *err)
{
    *out = (struct api_signed){.certificate = certificate_decode(certificate, certificate_size),
                               .authority = certificate_decode(authority, authority_size)};
    assert(key && cluster);
    EVP_PKEY_up_ref(key);
    X509_up_ref(cluster);
    out->key = key;
    out->cluster = cluster;
    const enum error_code code =
        out->certificate && out->authority
            ? api_signed_check(out, err)
            : error_set(err, ERROR_INVALID, "that is no certificate for an API");
    if (code)
        api_signed_deinit(out);
    return code;
}

struct tls_pair api_signed_pair(const struct api_signed *made)
{
    assert(made->key && made->certificate);
    EVP_PKEY_up_ref(made->key);
    X509_up_ref(made->certificate);
    return (struct tls_pair){.key = made->key, .certificate = made->certificate};
}

uint64_t api_signed_until(const struct api_signed *made)
{
    uint64_t from, until;
    return made->certificate && certificate_period(made->certificate, &from, &until) ? until : 0;
}

bool api_signed_is_current(const struct api_signed *made, const struct authority *cluster)
{
    return made->cluster && cluster->certificate &&
           X509_cmp(made->cluster, cluster->certificate) == 0;
}

bool api_signed_is_of(const struct api_signed *made, const uint8_t cluster_id[CLUSTER_ID_BYTES])
{
    uint8_t id[CLUSTER_ID_BYTES];
    return made->cluster && certificate_cluster(made->cluster, id) &&
           memcmp(id, cluster_id, sizeof id) == 0;
}

/* ---- its file ---- */

static enum error_code api_signed_folder(const char *state_folder, struct secret_folder *out,
                                         struct error *err)
{
    char path[PATH_MAX];
    const enum error_code code = durable_path(state_folder, "api", "", path, err);
    return code ? code : secret_folder_open(path, out, err);
}

enum error_code api_signed_store(const char *state_folder, const struct api_signed *made,
                                 struct error *err)
{
    struct secret_folder folder;
    char *bytes = NULL;
    enum error_code code = api_signed_folder(state_folder, &folder, err);
    if (code)
        return code;
    BIO *text = BIO_new(BIO_s_secmem());
    if (text && PEM_write_bio_X509(text, made->certificate) == 1 &&
        PEM_write_bio_X509(text, made->authority) == 1 &&
        PEM_write_bio_X509(text, made->cluster) == 1 &&
        PEM_write_bio_PrivateKey(text, made->key, NULL, NULL, 0, NULL, NULL) == 1) {
        const long size = BIO_get_mem_data(text, &bytes);
        code = secret_replace(&folder, signed_file, bytes, (size_t)size, err);
    } else {
        code = openssl_error(err, "writing the API's certificate");
    }
    BIO_free(text);
    secret_folder_close(&folder);
    return code;
}

static enum error_code api_signed_read(const struct secret_folder *folder, struct api_signed *out,
                                       struct error *err)
{
    struct secret secret;
    struct tls_pair pair;
    enum error_code code = secret_read(folder, signed_file, &secret, err);
    if (code)
        return code;
    code = tls_pair_parse(secret.bytes, secret.size, secret.bytes, secret.size, &pair, err);
    secret_wipe(&secret);
    if (!code && sk_X509_num(pair.chain) != 2)
        code = error_set(err, ERROR_INVALID, "it does not hold three certificates");
    if (!code) {
        *out = (struct api_signed){.key = pair.key, .certificate = pair.certificate};
        out->cluster = sk_X509_pop(pair.chain);
        out->authority = sk_X509_pop(pair.chain);
        pair.key = NULL;
        pair.certificate = NULL;
        code = api_signed_check(out, err);
    }
    tls_pair_deinit(&pair);
    return code ? error_wrap(err, "%s/%s", folder->path, signed_file) : code;
}

enum error_code api_signed_load(const char *state_folder, struct api_signed *out, struct error *err)
{
    struct secret_folder folder;
    *out = (struct api_signed){0};
    enum error_code code = api_signed_folder(state_folder, &folder, err);
    if (code)
        return code;
    code = api_signed_read(&folder, out, err);
    secret_folder_close(&folder);
    if (code)
        api_signed_deinit(out);
    return code;
}

enum error_code api_signed_forget(const char *state_folder, struct error *err)
{
    struct secret_folder folder;
    enum error_code code = api_signed_folder(state_folder, &folder, err);
    if (code)
        return code;
    code = secret_remove(&folder, signed_file, err);
    secret_folder_close(&folder);
    return code;
}
