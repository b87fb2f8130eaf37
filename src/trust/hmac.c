#include "trust/hmac.h"

#include <sodium.h>

void hmac_text(const void *key, size_t key_size, const void *bytes, size_t size,
               char out[HMAC_TEXT])
{
    crypto_auth_hmacsha256_state state;
    uint8_t mac[HMAC_BYTES];
    _Static_assert(sizeof mac == crypto_auth_hmacsha256_BYTES, "SHA-256's");
    crypto_auth_hmacsha256_init(&state, key, key_size);
    crypto_auth_hmacsha256_update(&state, bytes, size);
    crypto_auth_hmacsha256_final(&state, mac);
    sodium_bin2hex(out, HMAC_TEXT, mac, sizeof mac);
    sodium_memzero(&state, sizeof state);
}
