/* Browsers that have signed in, and passes that sign another one in.
 *
 * A browser shows a token once and gets a session: a secret of 256 random bits in a cookie that no
 * script can read. A pass is the same for a browser that has no token: good for minutes, and once;
 * the page draws it for a phone's camera. Both stand for a token, with all or some of its scopes,
 * and end with it: whoever looks one up asks for its token again.
 *
 * They are in this node's memory alone, as hashes: another node does not know them, nor does this
 * one after a restart. When there are too many, the oldest of the same token goes, else the oldest.
 * Times are monotonic. On one thread. */
#pragma once

#include "base/error.h"
#include "trust/access_token.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SESSIONS_MAX = 256,
    SESSIONS_OF_TOKEN_MAX = 16,
    SESSION_MS = 12 * 60 * 60 * 1000,
    SESSION_PASS_MS_MAX = 60 * 60 * 1000,
    SESSION_SECRET_TEXT = 59, /* with the NUL: a token's text without "medley_" */
};

enum session_kind { SESSION_NONE, SESSION_BROWSER, SESSION_PASS };

struct browser_session {
    uint8_t secret_hash[ACCESS_TOKEN_HASH_BYTES];
    uint8_t token_hash[ACCESS_TOKEN_HASH_BYTES];
    enum session_kind kind;
    uint32_t scopes; /* of the token's, at most these */
    uint64_t opened_ms, ends_ms;
};

struct sessions;
struct sessions *sessions_new(void); /* NULL: no memory */
void sessions_free(struct sessions *sessions);

/* A new one that lasts so long, for a token; `secret` is told once. ERROR_INTERNAL: no random
 * numbers. */
enum error_code sessions_open(struct sessions *sessions, enum session_kind kind,
                              const uint8_t *token_hash, uint32_t scopes, uint64_t now_ms,
                              uint64_t lasts_ms, char secret[SESSION_SECRET_TEXT],
                              struct error *err);
/* A foreign secret; false: there is no such session, or it is over. A pass is taken by this: it is
 * not found again. */
bool sessions_find(struct sessions *sessions, enum session_kind kind, const char *secret,
                   size_t size, uint64_t now_ms, struct browser_session *out);
void sessions_close(struct sessions *sessions, const struct browser_session *session);

/* The secret in a Cookie header (RFC 6265, section 5.4), by the cookie's name; size 0: none. */
const char *session_of_cookie(const char *header, const char *name, size_t *size);
