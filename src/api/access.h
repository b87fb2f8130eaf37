/* Who may use the API, and for what: access tokens (trust/access_token.h), as clients show them.
 *
 * A token comes as `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`. Which tokens there are is
 * the server's owner's to say (struct api_access): in a cluster the replicated state has them, for
 * `medley serve` a file. A request that was let in bears a grant. While it runs, the server asks
 * for its token again and again (ACCESS_SWEEP_MS): one that was revoked, or has expired, ends it.
 *
 * A wrong token is answered late, and more and more of them from one address are not looked at
 * (429). A right one is never slowed. All on the loop's thread. */
#pragma once

#include "api/client.h"
#include "api/errors.h"
#include "api/sessions.h"
#include "audit/note.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "trust/access_token.h"

#include <stdbool.h>
#include <stdint.h>

struct access;
struct api_server;
struct exchange;

/* The tokens that there are; a zeroed one has none. */
struct api_access {
    /* The token with that hash; false: there is none. What has expired is still found. */
    bool (*find)(void *self, const uint8_t *hash, struct access_grant *out);
    /* Whether they are known yet; NULL: they are. */
    bool (*is_ready)(void *self);
    /* Whether there has ever been a token: then one is needed on the loopback, too. */
    bool (*is_required)(void *self);
    /* Whether the token may use the model by its id, where it would run now. False: `why` says what
     * it is bound to. `lists`: only whether it may know of the model. */
    bool (*may_use)(void *self, const uint8_t *hash, const char *model, bool lists,
                    struct error *why);
    void *self;
    /* Is told of what was refused, and of each token's first use since the server began. */
    struct audit_sink audit;
};

struct access_options {
    struct api_access tokens;
    bool is_loopback; /* the address that is listened on */
    bool is_open;     /* no token is ever needed (--open) */
    bool
        requires; /* one always is (--require-token) */
};

enum {
    ACCESS_SWEEP_MS = 200, /* between two looks at the tokens of requests under way */
    ACCESS_WRONG_MS = 500, /* an answer to a wrong token waits so long */
    ACCESS_WRONG_MAX = 20, /* wrong ones of one address in ACCESS_WRONG_WINDOW_S: then 429 */
    ACCESS_WRONG_WINDOW_S = 60,
    ACCESS_ADDRESSES = 256, /* that are remembered; then the one that was seen longest ago goes */
};

/* The answer to a request that is not let in: when it is due. */
struct access_refusal {
    struct api_error err;
    uint32_t delay_ms;
};

struct access *access_new(const struct access_options *options); /* NULL: no memory */
void access_free(struct access *access);

/* Whether tokens are needed but not known yet: nobody can be let in. */
bool access_is_early(const struct access *access);
/* Whether a token is needed now. */
bool access_is_guarded(const struct access *access);
/* What may be done without one. --open gives models to whoever reaches the address, but where other
 * machines do, not the cluster: admin needs a token all the same. */
uint32_t access_open_scopes(const struct access *access);

/* `authorization` and `key` are the headers' values, NULL where they are missing; where both are,
 * `session` counts (NULL: none), whose token is asked for again. `scopes`: any of
 * these lets in; 0: the route is public. True: *grant is set, and access_end() is owed. */
bool access_begin(struct access *access, const struct api_client *client, const char *authorization,
                  const char *key, const struct browser_session *session, uint32_t scopes,
                  uint64_t now_ms, uint64_t wall_ms, struct access_grant *grant,
                  struct access_refusal *refusal);
void access_end(struct access *access, const struct access_grant *grant);

/* Whether the grant holds still; false: `err` says that it was revoked or has expired. */
bool access_holds(const struct access *access, const struct access_grant *grant, uint64_t wall_ms,
                  struct api_error *err);

/* Whether it may use the model; 403 with the reason. */
bool access_may_use(const struct access *access, const struct access_grant *grant,
                    const char *model, struct api_error *err);
/* Whether it is told of the model. */
bool access_may_list(const struct access *access, const struct access_grant *grant,
                     const char *model);

/* Tokens of the model that were read or written for the grant: what tokens_per_day counts. */
void access_count(struct access *access, uint64_t id, uint64_t n_tokens, uint64_t wall_ms);

/* ---- what was used today, as text (access_kept.h) ---- */

uint64_t access_usage_version(const struct access *access); /* another one when it has changed */
void access_usage_write(const struct access *access, uint64_t wall_ms, struct buffer *out);
/* Lines of another day, and what is no such line, are left out. */
void access_usage_read(struct access *access, const char *text, size_t size, uint64_t wall_ms);

/* ---- sessions (sessions.h) ---- */

/* A token that a browser shows to sign in: wrong ones are counted and answered late. Nothing is
 * owed afterwards. */
bool access_sign_in(struct access *access, const struct api_client *client, const char *token,
                    uint64_t now_ms, uint64_t wall_ms, struct access_grant *grant,
                    struct access_refusal *refusal);
/* A pass that is not known counts as a wrong token. */
void access_refuse_pass(struct access *access, const struct api_client *client, uint64_t now_ms,
                        struct access_refusal *refusal);
/* What a session's token grants now, of the session's scopes; false: it was revoked, or has
 * expired. */
bool access_recall(const struct access *access, const struct browser_session *session,
                   uint64_t wall_ms, struct access_grant *grant);
/* For the record of who did what. */
void access_tell(const struct access *access, const struct api_client *client,
                 const struct access_grant *grant, const char *what, const char *outcome);
