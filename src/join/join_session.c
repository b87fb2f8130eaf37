#include "join/join_session.h"

#include "trust/openssl_error.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <sodium.h>
#include <string.h>

/* Each use of a key or hash has a label of its own, so that no value of one can pass for one of
 * another. */
static const char channel_label[] = "medley-join/1 joiner inviter",
                  commit_label[] = "medley-join/1 commitment",
                  hand_label[] = "medley-join/1 by hand", words_label[] = "medley-join/1 words",
                  seal_label[] = "medley-join/1 grant", note_label[] = "medley-join/1 note",
                  sign_label[] = "medley-join/1 possession";

static struct cpace_text join_session_text_of(const void *bytes, size_t size)
{
    return (struct cpace_text){bytes, size};
}

static struct cpace_text session_of(const struct join_session *session)
{
    return join_session_text_of(session->binding, sizeof session->binding);
}

void join_digest(const void *message, size_t size, uint8_t digest[JOIN_DIGEST_BYTES])
{
    crypto_hash_sha512(digest, message, size);
}

/* HMAC-SHA-512 of a label and up to three parts of fixed size. */
static void keyed_hash(const void *key, size_t key_size, const char *label,
                       const struct cpace_text *parts, size_t n, uint8_t out[64])
{
    crypto_auth_hmacsha512_state mac;
    crypto_auth_hmacsha512_init(&mac, key, key_size);
    crypto_auth_hmacsha512_update(&mac, (const uint8_t *)label, strlen(label) + 1);
    for (size_t i = 0; i < n; i++)
        crypto_auth_hmacsha512_update(&mac, parts[i].bytes, parts[i].size);
    crypto_auth_hmacsha512_final(&mac, out);
    sodium_memzero(&mac, sizeof mac);
}

/* ---- by code -------------------------------------------------------------------------------- */

bool join_session_share(struct join_session *session, const char code[JOIN_CODE_DIGITS],
                        uint8_t share[32])
{
    uint8_t generator[CPACE_POINT_BYTES];
    cpace_generator(join_session_text_of(code, JOIN_CODE_DIGITS),
                    join_session_text_of(channel_label, strlen(channel_label)), session_of(session),
                    generator);
    cpace_scalar(session->own_secret);
    bool made = cpace_share(generator, session->own_secret, share);
    sodium_memzero(generator, sizeof generator);
    return made;
}

static struct cpace_turn turn_of(const struct join_session *session, enum join_end end)
{
    struct cpace_turn turn = {
        .data = join_session_text_of(end == JOINER ? session->hello : session->answer,
                                     JOIN_DIGEST_BYTES)};
    memcpy(turn.share, end == JOINER ? session->joiner_share : session->inviter_share,
           sizeof turn.share);
    return turn;
}

bool join_session_key(struct join_session *session, enum join_end self)
{
    struct cpace_turn joiner = turn_of(session, JOINER), inviter = turn_of(session, INVITER);
    bool made = cpace_key(session->own_secret, self == JOINER ? inviter.share : joiner.share,
                          session_of(session), &joiner, &inviter, session->key);
    sodium_memzero(session->own_secret, sizeof session->own_secret);
    return made;
}

/* ---- by hand -------------------------------------------------------------------------------- */

void join_commitment(const uint8_t nonce[32], uint8_t commitment[32])
{
    uint8_t hash[64];
    keyed_hash(nonce, 32, commit_label, NULL, 0, hash);
    memcpy(commitment, hash, 32);
}

/* Key and words depend on both nonces, both messages and the channel. The inviter's nonce is
 * inviter_share. */
void join_session_words(struct join_session *session, const uint8_t joiner_nonce[32])
{
    struct cpace_text parts[] = {join_session_text_of(joiner_nonce, 32),
                                 join_session_text_of(session->hello, JOIN_DIGEST_BYTES),
                                 join_session_text_of(session->answer, JOIN_DIGEST_BYTES)};
    uint8_t hash[64];
    keyed_hash(session->binding, sizeof session->binding, hand_label, parts, 3, session->key);
    keyed_hash(session->key, sizeof session->key, words_label, NULL, 0, hash);
    join_words_text(hash, session->words);
    sodium_memzero(hash, sizeof hash);
}

/* ---- proofs --------------------------------------------------------------------------------- */

void join_session_tag(const struct join_session *session, enum join_end end,
                      uint8_t tag[CPACE_TAG_BYTES])
{
    struct cpace_turn turn = turn_of(session, end);
    cpace_tag(session->key, session_of(session), &turn, tag);
}

void join_session_note(const struct join_session *session, enum join_type type,
                       uint8_t tag[CPACE_TAG_BYTES])
{
    uint8_t hash[64], which = (uint8_t)type;
    keyed_hash(session->key, sizeof session->key, note_label, &(struct cpace_text){&which, 1}, 1,
               hash);
    memcpy(tag, hash, CPACE_TAG_BYTES);
    sodium_memzero(hash, sizeof hash);
}

enum { SIGNED_BYTES = sizeof sign_label + CHANNEL_BINDING_BYTES + 2 * JOIN_DIGEST_BYTES };

static void signed_text(const struct join_session *session, uint8_t text[SIGNED_BYTES])
{
    memcpy(text, sign_label, sizeof sign_label);
    memcpy(text + sizeof sign_label, session->binding, CHANNEL_BINDING_BYTES);
    memcpy(text + sizeof sign_label + CHANNEL_BINDING_BYTES, session->hello, JOIN_DIGEST_BYTES);
    memcpy(text + SIGNED_BYTES - JOIN_DIGEST_BYTES, session->answer, JOIN_DIGEST_BYTES);
}

enum error_code join_session_sign(const struct join_session *session,
                                  const struct identity *identity, uint8_t signature[64],
                                  struct error *err)
{
    uint8_t text[SIGNED_BYTES];
    size_t size = 64;
    signed_text(session, text);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool made = context && EVP_DigestSignInit(context, NULL, NULL, NULL, identity->key) == 1 &&
                EVP_DigestSign(context, signature, &size, text, sizeof text) == 1 && size == 64;
    EVP_MD_CTX_free(context);
    return made ? ERROR_NONE : openssl_error(err, "signing");
}

bool join_session_verify(const struct join_session *session,
                         const uint8_t public_key[PUBLIC_KEY_BYTES], const uint8_t signature[64])
{
    uint8_t text[SIGNED_BYTES];
    signed_text(session, text);
    EVP_PKEY *key =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key, PUBLIC_KEY_BYTES);
    EVP_MD_CTX *context = key ? EVP_MD_CTX_new() : NULL;
    bool good = context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestVerify(context, signature, 64, text, sizeof text) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return good;
}

/* ---- the seal ------------------------------------------------------------------------------- */

static_assert(JOIN_SEAL_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES,
              "the seal is the cipher's tag");

/* The key is used once, so the nonce may stay 0. */
static const uint8_t zero_nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

static void seal_key(const struct join_session *session, uint8_t key[64])
{
    keyed_hash(session->key, sizeof session->key, seal_label, NULL, 0, key);
}

void join_session_seal(const struct join_session *session, const void *plain, size_t size,
                       uint8_t *sealed)
{
    uint8_t key[64];
    seal_key(session, key);
    crypto_aead_chacha20poly1305_ietf_encrypt(sealed, NULL, plain, size, NULL, 0, NULL, zero_nonce,
                                              key);
    sodium_memzero(key, sizeof key);
}

bool join_session_unseal(const struct join_session *session, const uint8_t *sealed, size_t size,
                         uint8_t *plain)
{
    uint8_t key[64];
    seal_key(session, key);
    bool good = crypto_aead_chacha20poly1305_ietf_decrypt(plain, NULL, NULL, sealed, size, NULL, 0,
                                                          zero_nonce, key) == 0;
    sodium_memzero(key, sizeof key);
    return good;
}

/* ---- how a machine ends ------------------------------------------------------------------- */

enum join_result join_fail(struct join_session *session, enum join_refusal reason, const char *why,
                           struct buffer *reply)
{
    buffer_clear(reply);
    if (reason) {
        join_message_begin(reply, JOIN_REFUSE);
        join_message_field(reply, &(uint8_t){(uint8_t)reason}, 1);
        join_message_field(reply, why, strnlen(why, JOIN_WHY_MAX));
    }
    sodium_memzero(session, sizeof *session);
    session->state = JOIN_STATE_FAILED;
    return JOIN_FAILED;
}

enum join_refusal join_refusal_read(const struct join_message *message, const char *who,
                                    struct error *err)
{
    uint8_t reason = message->fields[0].bytes[0];
    switch (reason) {
    case JOIN_REFUSED_BROKEN:
        error_set(err, ERROR_INVALID, "%s could not read this machine's message", who);
        break;
    case JOIN_REFUSED_CODE:
        error_set(err, ERROR_INVALID, "%s says that the join code is wrong", who);
        break;
    case JOIN_REFUSED_NO_CODE:
        error_set(err, ERROR_NOT_FOUND,
                  "no join code is open on %s: make one there with `medley invite`", who);
        break;
    case JOIN_REFUSED_BUSY:
        error_set(err, ERROR_BUSY,
                  "%s is busy with another machine that wants to join: try again in a few seconds",
                  who);
        break;
    case JOIN_REFUSED_NOT_ADMIN:
        error_set(err, ERROR_UNSUPPORTED,
                  "%s is a plain member: an admin of its cluster must let this machine in", who);
        break;
    case JOIN_REFUSED_TIME:
        error_set(err, ERROR_CANCELLED, "%s waited too long for this machine", who);
        break;
    default:
        error_set(err, ERROR_CANCELLED, "%s said no%s%.*s", who,
                  message->fields[1].size ? ": " : "", (int)message->fields[1].size,
                  (const char *)message->fields[1].bytes);
        return JOIN_REFUSED_DECLINED;
    }
    return (enum join_refusal)reason;
}
