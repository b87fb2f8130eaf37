#include "join/cpace.h"

#include <sodium.h>
#include <string.h>

enum { BLOCK_BYTES = 128 /* of SHA-512: the draft's s_in_bytes */, LENGTH_BYTES_MAX = 10 };

static const char domain[] = "CPaceRistretto255", domain_key[] = "CPaceRistretto255_ISK",
                  domain_mac[] = "CPaceMac";

/* The draft's prepend_len: the length in LEB128. */
static size_t write_length(size_t length, uint8_t bytes[LENGTH_BYTES_MAX])
{
    size_t n = 0;
    do {
        bytes[n] = (uint8_t)((length & 0x7f) | (length > 0x7f ? 0x80 : 0));
        length >>= 7;
        n++;
    } while (length);
    return n;
}

/* One element of the draft's lv_cat. */
static size_t hash_element(crypto_hash_sha512_state *hash, const void *bytes, size_t size)
{
    uint8_t length[LENGTH_BYTES_MAX];
    size_t n = write_length(size, length);
    crypto_hash_sha512_update(hash, length, n);
    crypto_hash_sha512_update(hash, bytes, size);
    return n + size;
}

void cpace_scalar(uint8_t scalar[CPACE_SCALAR_BYTES])
{
    crypto_core_ristretto255_scalar_random(scalar);
}

/* generator_string: the code fills the first block alone, so that the time of hashing does not
 * depend on the rest. */
void cpace_generator(struct cpace_text code, struct cpace_text channel, struct cpace_text session,
                     uint8_t generator[CPACE_POINT_BYTES])
{
    static const uint8_t zeros[BLOCK_BYTES];
    crypto_hash_sha512_state hash;
    uint8_t digest[crypto_hash_sha512_BYTES];
    crypto_hash_sha512_init(&hash);
    size_t used = hash_element(&hash, domain, strlen(domain));
    used += hash_element(&hash, code.bytes, code.size);
    hash_element(&hash, zeros, used + 1 < BLOCK_BYTES ? BLOCK_BYTES - 1 - used : 0);
    hash_element(&hash, channel.bytes, channel.size);
    hash_element(&hash, session.bytes, session.size);
    crypto_hash_sha512_final(&hash, digest);
    crypto_core_ristretto255_from_hash(generator, digest);
    sodium_memzero(&hash, sizeof hash);
    sodium_memzero(digest, sizeof digest);
}

bool cpace_share(const uint8_t generator[CPACE_POINT_BYTES],
                 const uint8_t scalar[CPACE_SCALAR_BYTES], uint8_t share[CPACE_POINT_BYTES])
{
    return crypto_scalarmult_ristretto255(share, scalar, generator) == 0;
}

static void hash_turn(crypto_hash_sha512_state *hash, const struct cpace_turn *turn)
{
    hash_element(hash, turn->share, CPACE_POINT_BYTES);
    hash_element(hash, turn->data.bytes, turn->data.size);
}

bool cpace_key(const uint8_t scalar[CPACE_SCALAR_BYTES], const uint8_t other[CPACE_POINT_BYTES],
               struct cpace_text session, const struct cpace_turn *a, const struct cpace_turn *b,
               uint8_t key[CPACE_KEY_BYTES])
{
    uint8_t secret[CPACE_POINT_BYTES];
    memset(key, 0, CPACE_KEY_BYTES);
    if (crypto_scalarmult_ristretto255(secret, scalar, other) !=
        0) /* scalar_mult_vfy: no point, or the neutral one */
        return false;
    crypto_hash_sha512_state hash;
    crypto_hash_sha512_init(&hash);
    hash_element(&hash, domain_key, strlen(domain_key));
    hash_element(&hash, session.bytes, session.size);
    hash_element(&hash, secret, sizeof secret);
    hash_turn(&hash, a);
    hash_turn(&hash, b);
    crypto_hash_sha512_final(&hash, key);
    sodium_memzero(&hash, sizeof hash);
    sodium_memzero(secret, sizeof secret);
    return true;
}

static void mac_element(crypto_auth_hmacsha512256_state *mac, const void *bytes, size_t size)
{
    uint8_t length[LENGTH_BYTES_MAX];
    crypto_auth_hmacsha512256_update(mac, length, write_length(size, length));
    crypto_auth_hmacsha512256_update(mac, bytes, size);
}

void cpace_tag(const uint8_t key[CPACE_KEY_BYTES], struct cpace_text session,
               const struct cpace_turn *turn, uint8_t tag[CPACE_TAG_BYTES])
{
    crypto_hash_sha512_state hash;
    uint8_t mac_key[crypto_hash_sha512_BYTES];
    crypto_hash_sha512_init(&hash);
    crypto_hash_sha512_update(&hash, (const uint8_t *)domain_mac, strlen(domain_mac));
    crypto_hash_sha512_update(&hash, session.bytes, session.size);
    crypto_hash_sha512_update(&hash, key, CPACE_KEY_BYTES);
    crypto_hash_sha512_final(&hash, mac_key);
    crypto_auth_hmacsha512256_state mac;
    crypto_auth_hmacsha512256_init(&mac, mac_key, sizeof mac_key);
    mac_element(&mac, turn->share, CPACE_POINT_BYTES);
    mac_element(&mac, turn->data.bytes, turn->data.size);
    crypto_auth_hmacsha512256_final(&mac, tag);
    sodium_memzero(&hash, sizeof hash);
    sodium_memzero(&mac, sizeof mac);
    sodium_memzero(mac_key, sizeof mac_key);
}
