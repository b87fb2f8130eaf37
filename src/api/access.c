#include "api/access.h"

#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DAY_MS = 24 * 60 * 60 * 1000, MINUTE_MS = 60 * 1000 };

/* What a token has used on this node. */
struct access_usage {
    uint64_t id; /* 0: the place is free */
    uint64_t seen_ms;
    uint64_t credit_ms; /* of the rate: a request costs a minute / requests_per_min */
    uint64_t filled_ms; /* when credit_ms was counted last */
    uint64_t day;       /* since 1970, UTC */
    uint64_t tokens;    /* of that day */
    uint32_t streams;   /* under way */
};

struct access_address {
    char share[API_CLIENT_SHARE_MAX]; /* "": the place is free */
    uint64_t since_ms;                /* of n_wrong */
    uint64_t seen_ms;
    uint32_t n_wrong;
};

struct access {
    struct access_options options;
    /* A token may be revoked while requests of it are under way, and another be made. */
    struct access_usage usages[2 * LIMIT_ACCESS_TOKENS];
    struct access_address addresses[ACCESS_ADDRESSES];
    uint64_t version; /* of what was used */
};

struct access *access_new(const struct access_options *options)
{
    assert(options);
    struct access *access = mem_new(sizeof *access);
    if (access)
        access->options = *options;
    return access;
}

void access_free(struct access *access)
{
    for (size_t i = 0; access && i < sizeof access->usages / sizeof *access->usages; i++)
        assert(!access->usages[i].streams);
    mem_free(access);
}

bool access_is_early(const struct access *access)
{
    const struct api_access *tokens = &access->options.tokens;
    return tokens->is_required && tokens->is_required(tokens->self) && tokens->is_ready &&
           !tokens->is_ready(tokens->self);
}

bool access_is_guarded(const struct access *access)
{
    const struct access_options *options = &access->options;
    const struct api_access *tokens = &options->tokens;
    if (options->is_open)
        return false;
    return options->
        requires ||
                 !options
                     ->is_loopback ||
        (tokens->is_required && tokens->is_required(tokens->self));
}

uint32_t access_open_scopes(const struct access *access)
{
    if (access_is_guarded(access))
        return 0;
    return access->options.is_loopback ? ACCESS_SCOPES_ALL : ACCESS_SCOPES_ALL & ~ACCESS_ADMIN;
}

/* ---- refusing -------------------------------------------------------------------------------- */

static bool access_refuse(struct access_refusal *refusal, unsigned status, const char *code,
                          const char *text)
{
    refusal->delay_ms = 0;
    return api_error_set(&refusal->err, status,
                         status == 401   ? "authentication_error"
                         : status == 403 ? "permission_error"
                                         : "rate_limit_error",
                         code, "%s", text);
}

static bool access_refuse_limit(struct access_refusal *refusal, const char *code, uint64_t wait_ms,
                                const char *text)
{
    access_refuse(refusal, 429, code, text);
    refusal->err.retry_after_s = (uint32_t)(wait_ms / 1000) + 1;
    return false;
}

/* Its entry; a new one takes a free place, or that of whoever was seen longest ago. */
static struct access_address *access_address_of(struct access *access, const char *share,
                                                uint64_t now_ms)
{
    struct access_address *oldest = &access->addresses[0];
    for (size_t i = 0; i < ACCESS_ADDRESSES; i++) {
        struct access_address *address = &access->addresses[i];
        if (strcmp(address->share, share) == 0)
            return address;
        if (oldest->share[0] && (!address->share[0] || address->seen_ms < oldest->seen_ms))
            oldest = address;
    }
    *oldest = (struct access_address){.since_ms = now_ms};
    snprintf(oldest->share, sizeof oldest->share, "%s", share);
    return oldest;
}

/* Trying tokens is hopeless, and costs us little; what is kept away is the noise. */
static bool access_refuse_wrong(struct access *access, const struct api_client *client,
                                uint64_t now_ms, const char *text, struct access_refusal *refusal)
{
    struct access_address *address = access_address_of(access, client->share, now_ms);
    address->seen_ms = now_ms;
    if (now_ms - address->since_ms >= ACCESS_WRONG_WINDOW_S * UINT64_C(1000)) {
        address->since_ms = now_ms;
        address->n_wrong = 0;
    }
    if (address->n_wrong >= ACCESS_WRONG_MAX)
        return access_refuse_limit(refusal, "too_many_wrong_tokens",
                                   address->since_ms + ACCESS_WRONG_WINDOW_S * UINT64_C(1000) -
                                       now_ms,
                                   "too many wrong tokens came from this address; wait, then show "
                                   "one that `medley token list` has");
    address->n_wrong++;
    access_refuse(refusal, 401, "invalid_api_key", text);
    refusal->delay_ms = ACCESS_WRONG_MS;
    return false;
}

/* ---- what a token has used ------------------------------------------------------------------- */

static struct access_usage *access_usage_find(struct access *access, uint64_t id)
{
    for (size_t i = 0; i < sizeof access->usages / sizeof *access->usages; i++) {
        if (access->usages[i].id == id)
            return &access->usages[i];
    }
    return NULL;
}

/* NULL: every place has requests under way, of more tokens than there can be. */
static struct access_usage *access_usage_of(struct access *access, const struct access_grant *grant,
                                            uint64_t now_ms)
{
    struct access_usage *usage = access_usage_find(access, grant->id);
    if (usage)
        return usage;
    for (size_t i = 0; i < sizeof access->usages / sizeof *access->usages; i++) {
        struct access_usage *at = &access->usages[i];
        if (!at->streams && (!usage || !at->id || (usage->id && at->seen_ms < usage->seen_ms)))
            usage = at;
    }
    if (usage)
        *usage = (struct access_usage){
            .id = grant->id, .credit_ms = MINUTE_MS, .filled_ms = now_ms, .seen_ms = now_ms};
    return usage;
}

static void usage_begin_day(struct access_usage *usage, uint64_t wall_ms)
{
    if (usage->day != wall_ms / DAY_MS)
        usage->day = wall_ms / DAY_MS, usage->tokens = 0;
}

/* A bucket that holds a minute's requests and fills within a minute. */
static bool usage_take_request(struct access_usage *usage, uint32_t per_min, uint64_t now_ms,
                               uint64_t *wait_ms)
{
    const uint64_t cost = MINUTE_MS / per_min ? MINUTE_MS / per_min : 1;
    usage->credit_ms += now_ms - usage->filled_ms;
    usage->filled_ms = now_ms;
    if (usage->credit_ms > MINUTE_MS)
        usage->credit_ms = MINUTE_MS;
    *wait_ms = usage->credit_ms < cost ? cost - usage->credit_ms : 0;
    if (*wait_ms)
        return false;
    usage->credit_ms -= cost;
    return true;
}

static bool access_check_limits(struct access_usage *usage, const struct access_grant *grant,
                                uint64_t now_ms, uint64_t wall_ms, struct access_refusal *refusal)
{
    char text[160];
    uint64_t wait_ms;
    usage_begin_day(usage, wall_ms);
    if (grant->streams && usage->streams >= grant->streams) {
        snprintf(text, sizeof text, "token '%s' may have %u requests at once, and has", grant->name,
                 grant->streams);
        return access_refuse_limit(refusal, "token_streams", 0, text);
    }
    if (grant->tokens_per_day && usage->tokens >= grant->tokens_per_day) {
        snprintf(text, sizeof text,
                 "token '%s' may use %" PRIu64 " tokens a day (UTC) here, and has used %" PRIu64,
                 grant->name, grant->tokens_per_day, usage->tokens);
        return access_refuse_limit(refusal, "token_tokens_per_day", DAY_MS - wall_ms % DAY_MS,
                                   text);
    }
    if (grant->requests_per_min &&
        !usage_take_request(usage, grant->requests_per_min, now_ms, &wait_ms)) {
        snprintf(text, sizeof text, "token '%s' may make %u requests a minute, and has",
                 grant->name, grant->requests_per_min);
        return access_refuse_limit(refusal, "token_rate", wait_ms, text);
    }
    return true;
}

/* ---- letting in ------------------------------------------------------------------------------ */

/* The token of either header: RFC 6750, section 2.1; RFC 9110, section 11.1: the scheme's case does
 * not matter. NULL: none. */
static const char *access_shown(const char *authorization, const char *key)
{
    static const char bearer[] = "bearer ";
    if (authorization && strncasecmp(authorization, bearer, sizeof bearer - 1) == 0) {
        authorization += sizeof bearer - 1;
        return authorization + strspn(authorization, " ");
    }
    return key && key[0] ? key : NULL;
}

static bool has_expired(const struct access_grant *grant, uint64_t wall_ms)
{
    return grant->expires_ms && wall_ms >= grant->expires_ms;
}

/* The token that was shown: known, and in force. */
static bool access_recognise(struct access *access, const struct api_client *client,
                             const char *shown, uint64_t now_ms, uint64_t wall_ms,
                             struct access_grant *grant, struct access_refusal *refusal)
{
    const struct api_access *tokens = &access->options.tokens;
    uint8_t hash[ACCESS_TOKEN_HASH_BYTES];
    if (tokens->is_ready && !tokens->is_ready(tokens->self))
        return api_error_set(&refusal->err, 503, "server_error", "tokens_not_known",
                             "this machine does not know its cluster's tokens yet; try again");
    char text[160];
    const enum access_token_kind kind = access_token_read(shown, strlen(shown), hash);
    if (kind == ACCESS_TOKEN_TYPO)
        return access_refuse_wrong(access, client, now_ms,
                                   "the token is mistyped or cut: it must be 'medley_' and 58 "
                                   "characters, as it was shown when it was made",
                                   refusal);
    if (kind != ACCESS_TOKEN_GOOD || !tokens->find || !tokens->find(tokens->self, hash, grant))
        return access_refuse_wrong(access, client, now_ms,
                                   "this token is not known here, or was revoked; `medley token "
                                   "create NAME` makes one",
                                   refusal);
    assert(access_token_same(grant->hash, hash) && grant->id);
    if (!has_expired(grant, wall_ms))
        return true;
    snprintf(text, sizeof text, "token '%s' has expired; `medley token create` makes another",
             grant->name);
    return access_refuse_wrong(access, client, now_ms, text, refusal);
}

static bool access_check_scopes(const struct access_grant *grant, uint32_t scopes,
                                struct access_refusal *refusal)
{
    char wanted[32], has[32], text[200];
    if (grant->scopes & scopes)
        return true;
    access_scopes_text(scopes, wanted, sizeof wanted);
    access_scopes_text(grant->scopes, has, sizeof has);
    snprintf(text, sizeof text, "token '%s' has the scopes %s; this needs one of: %s", grant->name,
             has, wanted);
    return access_refuse(refusal, 403, "insufficient_scope", text);
}

/* For the record of who did what: never what was shown, which may be a token all the same. */
void access_tell(const struct access *access, const struct api_client *client,
                 const struct access_grant *grant, const char *what, const char *outcome)
{
    char who[LIMIT_ACCESS_TOKEN_NAME_BYTES + 8], subject[API_CLIENT_SHARE_MAX + 8];
    snprintf(who, sizeof who, "token %s", grant->name);
    snprintf(subject, sizeof subject, "from %s", client->share);
    audit_tell(&access->options.tokens.audit, what, grant->id ? who : NULL, client->share, subject,
               outcome);
}

bool access_recall(const struct access *access, const struct browser_session *session,
                   uint64_t wall_ms, struct access_grant *grant)
{
    const struct api_access *tokens = &access->options.tokens;
    *grant = (struct access_grant){0};
    if (!tokens->find || !tokens->find(tokens->self, session->token_hash, grant) ||
        has_expired(grant, wall_ms)) {
        *grant = (struct access_grant){0};
        return false;
    }
    grant->scopes &= session->scopes;
    return true;
}

/* The token that is shown, or the session's. */
static bool access_identify(struct access *access, const struct api_client *client,
                            const char *shown, const struct browser_session *session,
                            uint64_t now_ms, uint64_t wall_ms, struct access_grant *grant,
                            struct access_refusal *refusal)
{
    if (shown)
        return access_recognise(access, client, shown, now_ms, wall_ms, grant, refusal);
    if (!session)
        return access_refuse(refusal, 401, "missing_api_key",
                             "a token is needed, as 'Authorization: Bearer TOKEN' or 'x-api-key: "
                             "TOKEN'; `medley token create NAME` makes one");
    return access_recall(access, session, wall_ms, grant) ||
           access_refuse(refusal, 401, "session_over",
                         "the session is over: its token was revoked or has expired; sign in with "
                         "another");
}

static bool access_let_in(struct access *access, const struct api_client *client,
                          const char *authorization, const char *key,
                          const struct browser_session *session, uint32_t scopes, uint64_t now_ms,
                          uint64_t wall_ms, struct access_grant *grant,
                          struct access_refusal *refusal)
{
    const char *shown = access_shown(authorization, key);
    *grant = (struct access_grant){0};
    *refusal = (struct access_refusal){0};
    if (!scopes || (scopes & access_open_scopes(access)))
        return true;
    if (!access_identify(access, client, shown, session, now_ms, wall_ms, grant, refusal) ||
        !access_check_scopes(grant, scopes, refusal))
        return false;
    if (!access_usage_find(access, grant->id))
        access_tell(access, client, grant, AUDIT_TOKEN_USED, "for the first time here");
    struct access_usage *usage = access_usage_of(access, grant, now_ms);
    if (!usage)
        return access_refuse_limit(refusal, "too_many_tokens", 0,
                                   "requests of too many tokens are under way");
    if (!access_check_limits(usage, grant, now_ms, wall_ms, refusal))
        return false;
    usage->seen_ms = now_ms;
    usage->streams++;
    return true;
}

bool access_begin(struct access *access, const struct api_client *client, const char *authorization,
                  const char *key, const struct browser_session *session, uint32_t scopes,
                  uint64_t now_ms, uint64_t wall_ms, struct access_grant *grant,
                  struct access_refusal *refusal)
{
    if (access_let_in(access, client, authorization, key, session, scopes, now_ms, wall_ms, grant,
                      refusal))
        return true;
    if (refusal->err.status != 503) /* then nobody was judged */
        access_tell(access, client, grant, grant->id ? AUDIT_TOKEN_REFUSED : AUDIT_LOGIN_REFUSED,
                    refusal->err.code);
    return false;
}

bool access_sign_in(struct access *access, const struct api_client *client, const char *token,
                    uint64_t now_ms, uint64_t wall_ms, struct access_grant *grant,
                    struct access_refusal *refusal)
{
    *grant = (struct access_grant){0};
    *refusal = (struct access_refusal){0};
    if (access_recognise(access, client, token, now_ms, wall_ms, grant, refusal))
        return true;
    if (refusal->err.status != 503)
        access_tell(access, client, grant, grant->id ? AUDIT_TOKEN_REFUSED : AUDIT_LOGIN_REFUSED,
                    refusal->err.code);
    return false;
}

void access_refuse_pass(struct access *access, const struct api_client *client, uint64_t now_ms,
                        struct access_refusal *refusal)
{
    *refusal = (struct access_refusal){0};
    access_refuse_wrong(access, client, now_ms,
                        "this pass was used before, is over, or was made by another machine; ask "
                        "for a new one",
                        refusal);
    access_tell(access, client, &(struct access_grant){0}, AUDIT_LOGIN_REFUSED, "pass");
}

void access_end(struct access *access, const struct access_grant *grant)
{
    struct access_usage *usage = grant->id ? access_usage_find(access, grant->id) : NULL;
    assert(!grant->id || (usage && usage->streams));
    if (usage)
        usage->streams--;
}

bool access_holds(const struct access *access, const struct access_grant *grant, uint64_t wall_ms,
                  struct api_error *err)
{
    const struct api_access *tokens = &access->options.tokens;
    struct access_grant now;
    if (!grant->id)
        return true;
    if (!tokens->find(tokens->self, grant->hash, &now))
        return api_error_set(err, 401, "authentication_error", "token_revoked",
                             "token '%s' was revoked", grant->name);
    if (has_expired(&now, wall_ms))
        return api_error_set(err, 401, "authentication_error", "token_expired",
                             "token '%s' has expired", grant->name);
    return true;
}

/* ---- models ---------------------------------------------------------------------------------- */

bool access_may_use(const struct access *access, const struct access_grant *grant,
                    const char *model, struct api_error *err)
{
    const struct api_access *tokens = &access->options.tokens;
    struct error why;
    if (!grant->id || !grant->is_bound ||
        tokens->may_use(tokens->self, grant->hash, model, false, &why))
        return true;
    api_error_set(err, 403, "permission_error", "token_bound", "token '%s': %s", grant->name,
                  why.text);
    char who[LIMIT_ACCESS_TOKEN_NAME_BYTES + 8];
    snprintf(who, sizeof who, "token %s", grant->name);
    audit_tell(&tokens->audit, AUDIT_TOKEN_REFUSED, who, NULL, "a model", "token_bound");
    return false;
}

bool access_may_list(const struct access *access, const struct access_grant *grant,
                     const char *model)
{
    const struct api_access *tokens = &access->options.tokens;
    struct error why;
    return !grant->id || !grant->is_bound ||
           tokens->may_use(tokens->self, grant->hash, model, true, &why);
}

void access_count(struct access *access, uint64_t id, uint64_t n_tokens, uint64_t wall_ms)
{
    struct access_usage *usage = id ? access_usage_find(access, id) : NULL;
    if (!usage)
        return;
    usage_begin_day(usage, wall_ms);
    usage->tokens += n_tokens;
    access->version++;
}

/* ---- what was used today, as text ---- */

uint64_t access_usage_version(const struct access *access)
{
    return access->version;
}

void access_usage_write(const struct access *access, uint64_t wall_ms, struct buffer *out)
{
    for (size_t i = 0; i < sizeof access->usages / sizeof *access->usages; i++) {
        const struct access_usage *usage = &access->usages[i];
        if (usage->id && usage->tokens && usage->day == wall_ms / DAY_MS)
            buffer_printf(out, "%016" PRIx64 " %" PRIu64 " %" PRIu64 "\n", usage->id, usage->day,
                          usage->tokens);
    }
}

static void access_usage_read_line(struct access *access, const char *text, size_t size,
                                   uint64_t wall_ms)
{
    char line[80];
    uint64_t id, day, tokens;
    if (size >= sizeof line)
        return;
    memcpy(line, text, size);
    line[size] = 0;
    if (sscanf(line, "%16" SCNx64 " %10" SCNu64 " %19" SCNu64, &id, &day, &tokens) != 3 || !id ||
        day != wall_ms / DAY_MS || access_usage_find(access, id))
        return;
    struct access_usage *usage = access_usage_of(access, &(struct access_grant){.id = id}, 0);
    if (!usage)
        return;
    usage->day = day;
    usage->tokens = tokens;
}

void access_usage_read(struct access *access, const char *text, size_t size, uint64_t wall_ms)
{
    const char *end = text + size;
    const char *next;
    for (; size && (next = memchr(text, '\n', (size_t)(end - text))); text = next + 1)
        access_usage_read_line(access, text, (size_t)(next - text), wall_ms); /* cut: no end */
}
