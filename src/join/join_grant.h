/* The last message of a join: what a member hands over, sealed with the key that was agreed on. */
#pragma once

#include "join/join_session.h"

/* Signs a certificate for the public key and writes JOIN_GRANT. */
enum error_code join_grant_make(const struct join_session *session,
                                const struct authority *authority,
                                const uint8_t public_key[PUBLIC_KEY_BYTES],
                                const struct join_grant *grant, uint64_t now_unix_s,
                                struct buffer *reply, struct error *err);

/* membership->authority.cluster_id says which cluster it must be. Also on failure the caller frees
 * what is in membership and payload. */
enum error_code join_grant_open(const struct join_session *session, const struct join_field *sealed,
                                const struct identity *identity, struct membership *membership,
                                struct buffer *payload, struct error *err);
