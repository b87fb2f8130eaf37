#include "trust/access_token.h"

#include "base/limits.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

enum {
    SECRET_BYTES = 32,
    CHECK_BYTES = 4,
    BYTES = SECRET_BYTES + CHECK_BYTES,
    DIGITS = 58, /* of 5 bits; the last two bits of the last one are 0 */
};

static const char prefix[] = "medley_";
static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

_Static_assert(sizeof prefix - 1 + DIGITS + 1 == ACCESS_TOKEN_TEXT && DIGITS * 5 >= BYTES * 8 &&
                   (DIGITS - 1) * 5 < BYTES * 8,
               "as many digits as the bytes need");

static bool token_sha256(const char *label, const uint8_t *secret, uint8_t out[32])
{
    uint8_t bytes[32 + SECRET_BYTES];
    const size_t n = strlen(label);
    assert(n <= 32);
    memcpy(bytes, label, n);
    memcpy(bytes + n, secret, SECRET_BYTES);
    const bool done = EVP_Digest(bytes, n + SECRET_BYTES, out, NULL, EVP_sha256(), NULL) == 1;
    OPENSSL_cleanse(bytes, sizeof bytes);
    return done;
}

/* Of the hash nothing is told by it: it is of other bytes. */
static bool token_checksum(const uint8_t *secret, uint8_t out[CHECK_BYTES])
{
    uint8_t whole[32];
    const bool done = token_sha256("medley token checksum", secret, whole);
    memcpy(out, whole, CHECK_BYTES);
    return done;
}

static void token_write_digits(const uint8_t bytes[BYTES], char *out)
{
    uint32_t held = 0, n_bits = 0, n = 0;
    for (int i = 0; i < BYTES; i++) {
        held = held << 8 | bytes[i];
        for (n_bits += 8; n_bits >= 5; n_bits -= 5)
            out[n++] = digits[held >> (n_bits - 5) & 31];
    }
    out[n++] = digits[held << (5 - n_bits) & 31];
    assert(n == DIGITS);
    out[n] = 0;
}

/* False: a character that is no digit, or bits behind the last byte. So a token has one text. */
static bool token_read_digits(const char *text, uint8_t bytes[BYTES])
{
    uint32_t held = 0, n_bits = 0, n = 0;
    for (int i = 0; i < DIGITS; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        held = held << 5 | (uint32_t)(digit - digits);
        n_bits += 5;
        if (n_bits < 8)
            continue;
        n_bits -= 8;
        bytes[n++] = (uint8_t)(held >> n_bits);
    }
    assert(n == BYTES);
    return (held & ((1U << n_bits) - 1)) == 0;
}

enum error_code access_token_make(char text[ACCESS_TOKEN_TEXT],
                                  uint8_t hash[ACCESS_TOKEN_HASH_BYTES], struct error *err)
{
    uint8_t bytes[BYTES];
    if (RAND_priv_bytes(bytes, SECRET_BYTES) != 1 || !token_checksum(bytes, bytes + SECRET_BYTES) ||
        !token_sha256("", bytes, hash))
        return error_set(err, ERROR_INTERNAL, "no random numbers can be had for a token");
    memcpy(text, prefix, sizeof prefix - 1);
    token_write_digits(bytes, text + sizeof prefix - 1);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return ERROR_NONE;
}

enum access_token_kind access_token_read(const char *text, size_t size,
                                         uint8_t hash[ACCESS_TOKEN_HASH_BYTES])
{
    uint8_t bytes[BYTES], check[CHECK_BYTES];
    const size_t n_prefix = sizeof prefix - 1;
    assert(text || !size);
    if (size < n_prefix || memcmp(text, prefix, n_prefix) != 0)
        return ACCESS_TOKEN_OTHER;
    if (size != n_prefix + DIGITS || !token_read_digits(text + n_prefix, bytes))
        return ACCESS_TOKEN_TYPO;
    const bool good = token_checksum(bytes, check) &&
                      CRYPTO_memcmp(check, bytes + SECRET_BYTES, CHECK_BYTES) == 0 &&
                      token_sha256("", bytes, hash);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return good ? ACCESS_TOKEN_GOOD : ACCESS_TOKEN_TYPO;
}

bool access_token_same(const uint8_t *a, const uint8_t *b)
{
    return CRYPTO_memcmp(a, b, ACCESS_TOKEN_HASH_BYTES) == 0;
}

void access_token_id_text(const uint8_t *hash, char out[ACCESS_TOKEN_ID_TEXT])
{
    for (int i = 0; i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

uint64_t access_token_id(const uint8_t *hash)
{
    uint64_t id = 0;
    for (int i = 0; i < 8; i++)
        id = id << 8 | hash[i];
    return id ? id : 1;
}

/* ---- scopes and names ---- */

static const struct {
    uint32_t scope;
    const char *name;
} scope_names[] = {
    {ACCESS_READ, "read"},
    {ACCESS_GENERATE, "generate"},
    {ACCESS_MODELS, "models"},
    {ACCESS_ADMIN, "admin"},
};

enum { N_SCOPES = sizeof scope_names / sizeof *scope_names };

static uint32_t scope_find(const char *text, size_t size)
{
    for (size_t i = 0; i < N_SCOPES; i++) {
        if (strlen(scope_names[i].name) == size && memcmp(scope_names[i].name, text, size) == 0)
            return scope_names[i].scope;
    }
    return 0;
}

bool access_scopes_parse(const char *text, uint32_t *scopes, char *unknown, size_t size)
{
    *scopes = 0;
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        const uint32_t scope = scope_find(at, n);
        if (!scope) {
            snprintf(unknown, size, "%.*s", n < 64 ? (int)n : 64, at);
            return false;
        }
        *scopes |= scope;
        at += n;
        if (!*at)
            return true;
    }
}

const char *access_scope_name(uint32_t scope)
{
    for (size_t i = 0; i < N_SCOPES; i++) {
        if (scope_names[i].scope == scope)
            return scope_names[i].name;
    }
    return NULL;
}

void access_scopes_text(uint32_t scopes, char *out, size_t size)
{
    size_t n = 0;
    assert(size);
    out[0] = 0;
    for (size_t i = 0; i < N_SCOPES && n < size; i++) {
        if (scopes & scope_names[i].scope)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "", scope_names[i].name);
    }
}

bool access_token_name_is_valid(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@";
    const size_t n = name ? strspn(name, allowed) : 0;
    return n && !name[n] && n <= LIMIT_ACCESS_TOKEN_NAME_BYTES;
}
