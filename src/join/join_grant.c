#include "join/join_grant.h"

#include "base/limits.h"
#include "base/mem.h"
#include "trust/openssl_error.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <sodium.h>
#include <string.h>

/* ---- making -------------------------------------------------------------------------------- */

/* DER, in memory that is wiped. */
struct der {
    uint8_t *bytes;
    int size;
};

static void der_wipe(struct der *der)
{
    OPENSSL_clear_free(der->bytes, der->size > 0 ? (size_t)der->size : 0);
    *der = (struct der){0};
}

static uint8_t *put_field(uint8_t *at, const void *bytes, size_t size)
{
    at[0] = (uint8_t)size;
    at[1] = (uint8_t)(size >> 8);
    if (size)
        memcpy(at + 2, bytes, size);
    return at + 2 + size;
}

/* Sealed in its place of the message, so that the plain text lies in one block that is wiped. */
static enum error_code write_grant(const struct join_session *session, const struct der parts[3],
                                   const struct join_grant *grant, struct buffer *reply,
                                   struct error *err)
{
    size_t size = 4 * 2 + (size_t)parts[0].size + (size_t)parts[1].size + (size_t)parts[2].size +
                  grant->payload_size;
    uint8_t *plain = mem_new(size), *sealed = mem_new(size + JOIN_SEAL_BYTES);
    if (plain && sealed) {
        uint8_t *at = plain;
        for (int i = 0; i < 3; i++)
            at = put_field(at, parts[i].bytes, (size_t)parts[i].size);
        at = put_field(at, grant->payload, grant->payload_size);
        assert(at == plain + size);
        join_session_seal(session, plain, size, sealed);
        join_message_begin(reply, JOIN_GRANT);
        join_message_field(reply, sealed, size + JOIN_SEAL_BYTES);
    }
    bool done = plain && sealed && !reply->failed;
    if (plain)
        sodium_memzero(plain, size);
    mem_free(plain);
    mem_free(sealed);
    return done ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

enum error_code join_grant_make(const struct join_session *session,
                                const struct authority *authority,
                                const uint8_t public_key[PUBLIC_KEY_BYTES],
                                const struct join_grant *grant, uint64_t now_unix_s,
                                struct buffer *reply, struct error *err)
{
    X509 *certificate = NULL;
    struct der parts[3] = {0};
    if (grant->payload_size > LIMIT_JOIN_PAYLOAD_BYTES)
        return error_set(err, ERROR_INVALID,
                         "the grant for a new member is larger than the limit of %d bytes",
                         LIMIT_JOIN_PAYLOAD_BYTES);
    enum error_code code = authority_sign(authority, public_key, now_unix_s, &certificate, err);
    if (code)
        return code;
    parts[GRANT_AUTHORITY].size = i2d_X509(authority->certificate, &parts[GRANT_AUTHORITY].bytes);
    parts[GRANT_CERTIFICATE].size = i2d_X509(certificate, &parts[GRANT_CERTIFICATE].bytes);
    if (grant->with_key)
        parts[GRANT_KEY].size = i2d_PrivateKey(authority->key, &parts[GRANT_KEY].bytes);
    if (parts[0].size <= 0 || parts[1].size <= 0 || parts[2].size < grant->with_key)
        code = openssl_error(err, "encoding certificates");
    else
        code = write_grant(session, parts, grant, reply, err);
    for (int i = 0; i < 3; i++)
        der_wipe(&parts[i]);
    X509_free(certificate);
    return code;
}

/* ---- opening ------------------------------------------------------------------------------- */

static X509 *certificate_of(const struct join_field *field)
{
    const uint8_t *at = field->bytes;
    X509 *certificate = d2i_X509(NULL, &at, (long)field->size);
    if (certificate && at == field->bytes + field->size)
        return certificate;
    X509_free(certificate);
    return NULL;
}

static bool join_grant_read_key(const struct join_field *field, EVP_PKEY **key)
{
    const uint8_t *at = field->bytes;
    if (!field->size)
        return true;
    *key = d2i_AutoPrivateKey(NULL, &at, (long)field->size);
    return *key && at == field->bytes + field->size;
}

/* The member is trusted by now, but a membership that does not fit would be found out only at the
 * next start. */
static enum error_code read_grant(const uint8_t *plain, size_t size,
                                  const struct identity *identity, struct membership *membership,
                                  struct buffer *payload, struct error *err)
{
    struct join_field fields[JOIN_FIELDS_MAX];
    enum error_code code = join_grant_read(plain, size, fields, err);
    if (code)
        return code;
    membership->authority.certificate = certificate_of(&fields[GRANT_AUTHORITY]);
    membership->certificate = certificate_of(&fields[GRANT_CERTIFICATE]);
    if (!membership->authority.certificate || !membership->certificate ||
        !join_grant_read_key(&fields[GRANT_KEY], &membership->authority.key)) {
        ERR_clear_error();
        return error_set(err, ERROR_INVALID,
                         "the member sent something that is not a certificate or key");
    }
    code = membership_check(membership, identity, err);
    if (code)
        return code;
    buffer_append(payload, fields[GRANT_PAYLOAD].bytes, fields[GRANT_PAYLOAD].size);
    return payload->failed ? error_set(err, ERROR_NO_MEMORY, "out of memory") : ERROR_NONE;
}

enum error_code join_grant_open(const struct join_session *session, const struct join_field *sealed,
                                const struct identity *identity, struct membership *membership,
                                struct buffer *payload, struct error *err)
{
    size_t size = sealed->size - JOIN_SEAL_BYTES;
    uint8_t *plain = mem_new(size);
    if (!plain)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    bool opened = join_session_unseal(session, sealed->bytes, sealed->size, plain);
    enum error_code code =
        opened ? read_grant(plain, size, identity, membership, payload, err)
               : error_set(err, ERROR_INVALID, "the member's grant was changed on the way");
    sodium_memzero(plain, size);
    mem_free(plain);
    return code;
}
