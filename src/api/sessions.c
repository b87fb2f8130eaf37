#include "api/sessions.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char token_prefix[] = "medley_"; /* of access_token.h, whose text and hash these are */

struct sessions {
    struct browser_session list[SESSIONS_MAX]; /* kind NONE: the place is free */
};

struct sessions *sessions_new(void)
{
    return mem_new(sizeof(struct sessions));
}

void sessions_free(struct sessions *sessions)
{
    if (sessions)
        explicit_bzero(sessions, sizeof *sessions);
    mem_free(sessions);
}

static bool session_is_older(const struct browser_session *session,
                             const struct browser_session *than)
{
    return !than || session->opened_ms < than->opened_ms;
}

/* A free place; else that of the oldest of the token, where it has its share, else of the oldest.
 */
static struct browser_session *sessions_make_room(struct sessions *sessions,
                                                  const uint8_t *token_hash, uint64_t now_ms)
{
    struct browser_session *empty = NULL, *oldest = NULL, *own = NULL;
    unsigned n_own = 0;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct browser_session *at = &sessions->list[i];
        if (at->kind == SESSION_NONE || now_ms >= at->ends_ms) {
            empty = at;
            continue;
        }
        if (session_is_older(at, oldest))
            oldest = at;
        if (!access_token_same(at->token_hash, token_hash))
            continue;
        n_own++;
        if (session_is_older(at, own))
            own = at;
    }
    if (n_own >= SESSIONS_OF_TOKEN_MAX)
        return own;
    return empty ? empty : oldest;
}

enum error_code sessions_open(struct sessions *sessions, enum session_kind kind,
                              const uint8_t *token_hash, uint32_t scopes, uint64_t now_ms,
                              uint64_t lasts_ms, char secret[SESSION_SECRET_TEXT],
                              struct error *err)
{
    char text[ACCESS_TOKEN_TEXT];
    struct browser_session session = {
        .kind = kind, .scopes = scopes, .opened_ms = now_ms, .ends_ms = now_ms + lasts_ms};
    assert(kind != SESSION_NONE && lasts_ms);
    enum error_code code = access_token_make(text, session.secret_hash, err);
    if (code)
        return code;
    assert(strncmp(text, token_prefix, sizeof token_prefix - 1) == 0);
    snprintf(secret, SESSION_SECRET_TEXT, "%s", text + sizeof token_prefix - 1);
    explicit_bzero(text, sizeof text);
    memcpy(session.token_hash, token_hash, sizeof session.token_hash);
    *sessions_make_room(sessions, token_hash, now_ms) = session;
    return ERROR_NONE;
}

bool sessions_find(struct sessions *sessions, enum session_kind kind, const char *secret,
                   size_t size, uint64_t now_ms, struct browser_session *out)
{
    char text[ACCESS_TOKEN_TEXT + 1];
    uint8_t hash[ACCESS_TOKEN_HASH_BYTES];
    if (size != SESSION_SECRET_TEXT - 1)
        return false;
    const int length = snprintf(text, sizeof text, "%s%.*s", token_prefix, (int)size, secret);
    if (access_token_read(text, (size_t)length, hash) != ACCESS_TOKEN_GOOD)
        return false;
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        struct browser_session *at = &sessions->list[i];
        if (at->kind != kind || now_ms >= at->ends_ms || !access_token_same(at->secret_hash, hash))
            continue;
        *out = *at;
        if (kind == SESSION_PASS)
            *at = (struct browser_session){0};
        return true;
    }
    return false;
}

void sessions_close(struct sessions *sessions, const struct browser_session *session)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++) {
        if (access_token_same(sessions->list[i].secret_hash, session->secret_hash))
            sessions->list[i] = (struct browser_session){0};
    }
}

const char *session_of_cookie(const char *header, const char *name, size_t *size)
{
    const size_t name_size = strlen(name);
    *size = 0;
    while (*header) {
        header += strspn(header, "; \t");
        const size_t pair = strcspn(header, ";");
        if (pair > name_size && header[name_size] == '=' && strncmp(header, name, name_size) == 0) {
            *size = pair - name_size - 1;
            while (*size && strchr(" \t", header[name_size + *size]))
                --*size;
            return header + name_size + 1;
        }
        header += pair;
    }
    return "";
}
