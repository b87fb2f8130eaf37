/* What the two ends of a join compute alike. Pure but for random numbers. */
#pragma once

#include "join/join.h"
#include "join/join_message.h"

enum join_end { JOINER, INVITER };

/* Hash of a whole message: what CPace binds, and the signature signs. */
void join_digest(const void *message, size_t size, uint8_t digest[JOIN_DIGEST_BYTES]);

/* By code: draws own_secret and makes this end's share. False: libsodium refused. */
bool join_session_share(struct join_session *session, const char code[JOIN_CODE_DIGITS],
                        uint8_t share[32]);

/* By code: the key, once both messages are known. False: the other's share is no point. */
bool join_session_key(struct join_session *session, enum join_end self);

/* By hand: the commitment to a nonce, and key and words, once both nonces are known. */
void join_commitment(const uint8_t nonce[32], uint8_t commitment[32]);
void join_session_words(struct join_session *session, const uint8_t joiner_nonce[32]);

/* The proof that `end` has the key. */
void join_session_tag(const struct join_session *session, enum join_end end,
                      uint8_t tag[CPACE_TAG_BYTES]);

/* Tags of later messages: AGREE and DONE. */
void join_session_note(const struct join_session *session, enum join_type type,
                       uint8_t tag[CPACE_TAG_BYTES]);

/* The signature of the joiner's node key over this channel and the messages. */
enum error_code join_session_sign(const struct join_session *session,
                                  const struct identity *identity, uint8_t signature[64],
                                  struct error *err);
bool join_session_verify(const struct join_session *session,
                         const uint8_t public_key[PUBLIC_KEY_BYTES], const uint8_t signature[64]);

enum { JOIN_SEAL_BYTES = 16 };

/* One message is sealed in a session, from the inviter to the joiner. sealed has size +
 * JOIN_SEAL_BYTES places. */
void join_session_seal(const struct join_session *session, const void *plain, size_t size,
                       uint8_t *sealed);
bool join_session_unseal(const struct join_session *session, const uint8_t *sealed, size_t size,
                         uint8_t *plain);

/* ---- how a machine ends ------------------------------------------------------------------- */

/* Each machine has states of its own from 1 on. */
enum { JOIN_STATE_OVER = 100, JOIN_STATE_FAILED };

/* Ends the machine: the reply tells the other side (`reason`; 0 says nothing), and wipes the keys.
 * err has been filled.
 */
enum join_result join_fail(struct join_session *session, enum join_refusal reason, const char *why,
                           struct buffer *reply);

/* The other side's JOIN_REFUSE, in words. */
enum join_refusal join_refusal_read(const struct join_message *message, const char *who,
                                    struct error *err);
