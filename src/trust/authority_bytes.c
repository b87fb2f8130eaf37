/* Certificates and the authority's key as bytes, for messages. */
#include "trust/authority.h"

#include "trust/openssl_error.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

enum error_code certificate_encode(const X509 *certificate, struct buffer *out, struct error *err)
{
    uint8_t *bytes = NULL;
    const int size = i2d_X509(certificate, &bytes);
    if (size <= 0)
        return openssl_error(err, "encoding a certificate");
    buffer_append(out, bytes, (size_t)size);
    OPENSSL_free(bytes);
    return out->failed ? error_set(err, ERROR_NO_MEMORY, "out of memory") : ERROR_NONE;
}

X509 *certificate_decode(const uint8_t *bytes, size_t size)
{
    enum { CERTIFICATE_BYTES_MAX = 16 * 1024 };
    const uint8_t *at = bytes;
    X509 *certificate =
        size && size <= CERTIFICATE_BYTES_MAX ? d2i_X509(NULL, &at, (long)size) : NULL;
    if (certificate && at == bytes + size)
        return certificate;
    X509_free(certificate);
    ERR_clear_error();
    return NULL;
}

void certificate_free(X509 *certificate)
{
    X509_free(certificate);
}

/* ---- the authority's key ---- */

enum error_code authority_key_bytes(const struct authority *authority,
                                    uint8_t key[AUTHORITY_KEY_BYTES], struct error *err)
{
    size_t size = AUTHORITY_KEY_BYTES;
    if (!authority->key)
        return error_set(err, ERROR_UNSUPPORTED, "this node does not have the authority's key");
    if (EVP_PKEY_get_raw_private_key(authority->key, key, &size) != 1 ||
        size != AUTHORITY_KEY_BYTES)
        return openssl_error(err, "the authority's key");
    return ERROR_NONE;
}

void authority_key_wipe(uint8_t *key, size_t size)
{
    OPENSSL_cleanse(key, size);
}

enum error_code authority_take_key(struct authority *authority,
                                   const uint8_t key[AUTHORITY_KEY_BYTES], struct error *err)
{
    EVP_PKEY *own = X509_get0_pubkey(authority->certificate);
    EVP_PKEY *taken =
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, key, AUTHORITY_KEY_BYTES);
    if (!taken || !own || EVP_PKEY_eq(taken, own) != 1) {
        EVP_PKEY_free(taken);
        ERR_clear_error();
        return error_set(err, ERROR_INVALID,
                         "the authority's key does not belong to its certificate");
    }
    authority_drop_key(authority);
    authority->key = taken;
    return ERROR_NONE;
}

void authority_drop_key(struct authority *authority)
{
    EVP_PKEY_free(authority->key); /* wipes it */
    authority->key = NULL;
}
