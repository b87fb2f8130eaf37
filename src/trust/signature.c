#include "trust/signature.h"

#include "trust/openssl_error.h"

#include <assert.h>
#include <openssl/evp.h>
#include <sodium.h>

_Static_assert(crypto_sign_ed25519_BYTES == SIGNATURE_BYTES &&
                   crypto_sign_ed25519_PUBLICKEYBYTES == PUBLIC_KEY_BYTES,
               "one scheme, two libraries");

enum error_code signature_make(EVP_PKEY *key, const void *bytes, size_t size,
                               uint8_t signature[SIGNATURE_BYTES], struct error *err)
{
    assert(key && (bytes || !size));
    size_t n = SIGNATURE_BYTES;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool made = context && EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
                      EVP_DigestSign(context, signature, &n, bytes, size) == 1;
    EVP_MD_CTX_free(context);
    assert(!made || n == SIGNATURE_BYTES);
    return made ? ERROR_NONE : openssl_error(err, "signing");
}

bool signature_is_good(const uint8_t public_key[PUBLIC_KEY_BYTES], const void *bytes, size_t size,
                       const uint8_t signature[SIGNATURE_BYTES])
{
    return crypto_sign_ed25519_verify_detached(signature, bytes, size, public_key) == 0;
}
