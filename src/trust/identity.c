#include "trust/identity.h"

#include "trust/openssl_error.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <string.h>

/* SubjectPublicKeyInfo of an Ed25519 key, up to the key itself: RFC 8410, section 4. */
static const uint8_t spki_prefix[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                      0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

void node_id_of(const uint8_t public_key[PUBLIC_KEY_BYTES], uint8_t node_id[NODE_ID_BYTES])
{
    uint8_t info[sizeof spki_prefix + PUBLIC_KEY_BYTES];
    memcpy(info, spki_prefix, sizeof spki_prefix);
    memcpy(info + sizeof spki_prefix, public_key, PUBLIC_KEY_BYTES);
    crypto_hash_sha256(node_id, info, sizeof info); /* OpenSSL's needs memory, and may fail */
}

enum error_code identity_of_key(EVP_PKEY *key, struct identity *out, struct error *err)
{
    *out = (struct identity){0};
    size_t public_size = PUBLIC_KEY_BYTES, private_size = 0;
    if (!EVP_PKEY_is_a(key, "ED25519")) {
        EVP_PKEY_free(key);
        return error_set(err, ERROR_INVALID, "it is not an Ed25519 key");
    }
    if (EVP_PKEY_get_raw_private_key(key, NULL, &private_size) != 1 ||
        EVP_PKEY_get_raw_public_key(key, out->public_key, &public_size) != 1 ||
        public_size != PUBLIC_KEY_BYTES) {
        EVP_PKEY_free(key);
        *out = (struct identity){0};
        return openssl_error(err, "the key has no private half");
    }
    out->key = key;
    node_id_of(out->public_key, out->node_id);
    return ERROR_NONE;
}

enum error_code identity_make(struct identity *out, struct error *err)
{
    *out = (struct identity){0};
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    return key ? identity_of_key(key, out, err) : openssl_error(err, "making a key pair");
}

enum error_code identity_of_seed(const uint8_t seed[32], struct identity *out, struct error *err)
{
    *out = (struct identity){0};
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
    return key ? identity_of_key(key, out, err) : openssl_error(err, "making a key pair");
}

void identity_deinit(struct identity *identity)
{
    if (!identity)
        return;
    EVP_PKEY_free(identity->key); /* wipes an Ed25519 key: it lies in OpenSSL's secure memory */
    *identity = (struct identity){0};
}

void id_text(const uint8_t *id, size_t size, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[id[i] >> 4];
        text[2 * i + 1] = digits[id[i] & 15];
    }
    text[2 * size] = 0;
}

static int identity_digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool id_parse(const char *text, uint8_t *id, size_t size)
{
    if (strnlen(text, 2 * size + 1) != 2 * size)
        return false;
    for (size_t i = 0; i < size; i++) {
        int high = identity_digit_of(text[2 * i]), low = identity_digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        id[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
