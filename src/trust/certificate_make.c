#include "trust/certificate_make.h"

#include <assert.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <time.h>

static bool certificate_set_name(X509_NAME *name, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)text, -1, -1,
                                      0) == 1;
}

/* A random serial number is what keeps two certificates of one authority apart without a counter in
 * a file. The top bits are fixed: it is positive, and has no leading zeros. */
static bool certificate_set_serial(X509 *certificate, const uint8_t *serial)
{
    BIGNUM *number = serial ? BN_bin2bn(serial, SERIAL_BYTES, NULL) : BN_new();
    bool done = number != NULL;
    if (done && !serial)
        done = BN_rand(number, 8 * SERIAL_BYTES - 2, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1;
    else if (done)
        done = BN_mask_bits(number, 8 * SERIAL_BYTES - 3) == 1 &&
               BN_set_bit(number, 8 * SERIAL_BYTES - 3) == 1;
    done = done && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return done;
}

static bool certificate_set_fields(X509 *certificate, const struct certificate_statement *what,
                                   EVP_PKEY *public_key)
{
    return X509_set_version(certificate, X509_VERSION_3) == 1 &&
           certificate_set_serial(certificate, what->serial) &&
           certificate_set_name(X509_get_subject_name(certificate), what->subject) &&
           certificate_set_name(X509_get_issuer_name(certificate), what->issuer) &&
           ASN1_TIME_set(X509_getm_notBefore(certificate), (time_t)what->from_unix_s) &&
           ASN1_TIME_set(X509_getm_notAfter(certificate), (time_t)what->until_unix_s) &&
           X509_set_pubkey(certificate, public_key) == 1;
}

/* The issuer is needed for its key's identifier; a self-signed certificate is its own. */
static bool certificate_add_extensions(X509 *certificate, const struct certificate_statement *what,
                                       X509 *issuer)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    for (size_t i = 0; i < sizeof what->extensions / sizeof *what->extensions; i++) {
        if (!what->extensions[i].value)
            break;
        X509_EXTENSION *extension =
            X509V3_EXT_conf_nid(NULL, &context, what->extensions[i].nid, what->extensions[i].value);
        bool added = extension && X509_add_ext(certificate, extension, -1) == 1;
        X509_EXTENSION_free(extension);
        if (!added)
            return false;
    }
    return true;
}

/* Ed25519 signs the message itself, so there is no digest to choose, and needs no nonce. */
static bool certificate_sign(X509 *certificate, EVP_PKEY *signer)
{
    const bool is_ed25519 = EVP_PKEY_is_a(signer, "ED25519");
    unsigned rfc_6979 = 1;
    OSSL_PARAM nonce[] = {OSSL_PARAM_construct_uint(OSSL_SIGNATURE_PARAM_NONCE_TYPE, &rfc_6979),
                          OSSL_PARAM_construct_end()};
    EVP_PKEY_CTX *key = NULL; /* belongs to the context */
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool done =
        context &&
        EVP_DigestSignInit(context, &key, is_ed25519 ? NULL : EVP_sha256(), NULL, signer) == 1 &&
        (is_ed25519 || EVP_PKEY_CTX_set_params(key, nonce) == 1) &&
        X509_sign_ctx(certificate, context) > 0;
    EVP_MD_CTX_free(context);
    return done;
}

X509 *certificate_make(const struct certificate_statement *what, EVP_PKEY *public_key, X509 *issuer,
                       EVP_PKEY *signer)
{
    assert(what->from_unix_s < what->until_unix_s);
    X509 *certificate = X509_new();
    if (certificate && certificate_set_fields(certificate, what, public_key) &&
        certificate_add_extensions(certificate, what, issuer ? issuer : certificate) &&
        certificate_sign(certificate, signer))
        return certificate;
    X509_free(certificate);
    return NULL;
}
