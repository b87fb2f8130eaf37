/* /api/session and /api/passes: a browser signs in, and signs another one in. */
#include "api/address.h"
#include "api/exchange_impl.h"
#include "api/json_out.h"
#include "api/server_session.h"
#include "api/sessions.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"

#include <yyjson.h>

#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { PASS_MINUTES = 10, SCOPES_TEXT = 32 };

static uint64_t session_now_ms(void)
{
    return clock_now_ns() / 1000000;
}

/* ---- what the client may do ------------------------------------------------------------------ */

static void session_put_scopes(uint32_t scopes, struct buffer *out)
{
    bool any = false;
    buffer_text(out, "[");
    for (uint32_t scope = 1; scope <= ACCESS_SCOPES_ALL; scope <<= 1) {
        if (!(scopes & scope))
            continue;
        if (any)
            buffer_text(out, ",");
        json_out_text(out, access_scope_name(scope));
        any = true;
    }
    buffer_text(out, "]");
}

/* `grant` of id 0: it showed no token. Who may not look is not told what machine this is. */
static void session_answer(struct exchange *exchange, const struct access_grant *grant)
{
    const struct api_server *server = exchange_server(exchange);
    const bool guarded = access_is_guarded(server->access), may_look = !guarded || grant->id;
    struct buffer body = {0};
    buffer_printf(&body,
                  "{\"needs_token\":%s,\"signed_in\":%s,\"token\":", guarded ? "true" : "false",
                  grant->id ? "true" : "false");
    json_out_text(&body, grant->id ? grant->name : NULL);
    buffer_text(&body, ",\"scopes\":");
    session_put_scopes(grant->scopes | access_open_scopes(server->access), &body);
    buffer_text(&body, ",\"node\":{\"id\":");
    json_out_text(&body, may_look ? server->node_id : NULL);
    buffer_text(&body, ",\"name\":");
    json_out_text(&body, may_look ? server->node_name : NULL);
    buffer_printf(&body, "},\"cluster\":%s,\"version\":\"%s\",\"api_base\":\"/\"}",
                  server->bridge.ask ? "true" : "false", MEDLEY_VERSION);
    exchange_answer_json(exchange, &body);
}

static void session_refuse(struct exchange *exchange, const struct access_refusal *refusal)
{
    log_line(LOG_INFO, "api", "%s: sign-in: %s", exchange->client.share, refusal->err.message);
    exchange_fail_late(exchange, &refusal->err, refusal->delay_ms);
}

/* A program may ask with a token in the header. */
void session_get_handle(struct exchange *exchange)
{
    static const char bearer[] = "bearer ";
    struct access *access = exchange->server->access;
    struct access_grant grant = {0};
    struct access_refusal refusal;
    char shown[256];
    if (exchange->has_session) {
        access_recall(access, &exchange->session, server_wall_ms(), &grant);
    } else if (access_open_scopes(access) != ACCESS_SCOPES_ALL &&
               exchange_header(exchange, EXCHANGE_AUTHORIZATION, shown, sizeof shown) &&
               strncasecmp(shown, bearer, sizeof bearer - 1) == 0) {
        const bool good = access_sign_in(access, &exchange->client, shown + sizeof bearer - 1,
                                         session_now_ms(), server_wall_ms(), &grant, &refusal);
        explicit_bzero(shown, sizeof shown);
        if (!good) {
            session_refuse(exchange, &refusal);
            return;
        }
    }
    session_answer(exchange, &grant);
}

/* ---- signing in and out ---------------------------------------------------------------------- */

/* The server's own port is in the name: cookies do not look at ports, and several nodes may run on
 * one machine. */
void server_session_cookie_name(const struct api_server *server, char *out, size_t size)
{
    snprintf(out, size, "medley_session_%u", server->port);
}

static void session_set_cookie(struct exchange *exchange, const char *secret, uint32_t lasts_s)
{
    char name[SERVER_COOKIE_NAME_MAX], cookie[256];
    server_session_cookie_name(exchange->server, name, sizeof name);
    snprintf(cookie, sizeof cookie, "%s=%s; Path=/; Max-Age=%u; HttpOnly; SameSite=Strict%s", name,
             secret, lasts_s, exchange->server->tls ? "; Secure" : "");
    exchange_set_header(exchange, "set-cookie:", cookie);
    explicit_bzero(cookie, sizeof cookie);
}

/* The session that the browser had is over: what it had before is of no use to anybody. */
static void browser_sign_in(struct exchange *exchange, const struct access_grant *grant,
                            const char *how)
{
    struct api_server *server = exchange->server;
    char secret[SESSION_SECRET_TEXT];
    struct api_error err;
    struct error why;
    if (exchange->has_session)
        sessions_close(server->sessions, &exchange->session);
    if (sessions_open(server->sessions, SESSION_BROWSER, grant->hash, grant->scopes,
                      session_now_ms(), SESSION_MS, secret, &why)) {
        api_error_from(&err, &why);
        exchange_fail(exchange, &err);
        return;
    }
    access_tell(server->access, &exchange->client, grant, AUDIT_SESSION_OPENED, how);
    session_set_cookie(exchange, secret, SESSION_MS / 1000);
    explicit_bzero(secret, sizeof secret);
    session_answer(exchange, grant);
}

static void session_take_pass(struct exchange *exchange, const char *pass, size_t size)
{
    struct api_server *server = exchange->server;
    struct browser_session session;
    struct access_grant grant;
    struct access_refusal refusal;
    if (sessions_find(server->sessions, SESSION_PASS, pass, size, session_now_ms(), &session) &&
        access_recall(server->access, &session, server_wall_ms(), &grant)) {
        browser_sign_in(exchange, &grant, "with a pass");
        return;
    }
    access_refuse_pass(server->access, &exchange->client, session_now_ms(), &refusal);
    session_refuse(exchange, &refusal);
}

static void session_take_token(struct exchange *exchange, const char *token)
{
    struct access_grant grant;
    struct access_refusal refusal;
    if (access_sign_in(exchange->server->access, &exchange->client, token, session_now_ms(),
                       server_wall_ms(), &grant, &refusal))
        browser_sign_in(exchange, &grant, "with a token");
    else
        session_refuse(exchange, &refusal);
}

/* NULL: it is no JSON object, and the exchange has been answered. */
static yyjson_doc *session_read_body(struct exchange *exchange)
{
    const struct text body = exchange_body(exchange);
    struct api_error err;
    yyjson_doc *doc = yyjson_read(body.data, body.size, 0);
    if (yyjson_is_obj(yyjson_doc_get_root(doc)))
        return doc;
    yyjson_doc_free(doc);
    api_error_set(&err, 400, "invalid_request_error", NULL, "the body must be one JSON object");
    exchange_fail(exchange, &err);
    return NULL;
}

void session_post_handle(struct exchange *exchange)
{
    struct api_error err;
    yyjson_doc *doc = session_read_body(exchange);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *token = yyjson_obj_get(root, "token"), *pass = yyjson_obj_get(root, "pass");
    if (!doc)
        return;
    if (access_open_scopes(exchange->server->access) == ACCESS_SCOPES_ALL) {
        session_answer(exchange, &(struct access_grant){0});
    } else if (yyjson_is_str(token)) {
        session_take_token(exchange, yyjson_get_str(token));
    } else if (yyjson_is_str(pass)) {
        session_take_pass(exchange, yyjson_get_str(pass), yyjson_get_len(pass));
    } else {
        api_error_set(&err, 400, "invalid_request_error", NULL,
                      "give a `token`, as `medley token create` shows it, or a `pass`");
        exchange_fail(exchange, &err);
    }
    yyjson_doc_free(doc);
}

void session_delete_handle(struct exchange *exchange)
{
    struct buffer body = {0};
    if (exchange->has_session)
        sessions_close(exchange->server->sessions, &exchange->session);
    session_set_cookie(exchange, "", 0);
    buffer_text(&body, "{\"signed_in\":false}");
    exchange_answer_json(exchange, &body);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* An address of this machine that others may reach: "192.168.1.7". False: there is none. */
static bool session_find_address(char *out, size_t size)
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list))
        return false;
    for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP) ||
            (at->ifa_flags & IFF_LOOPBACK))
            continue;
        found = getnameinfo(at->ifa_addr, sizeof(struct sockaddr_in), out, (socklen_t)size, NULL, 0,
                            NI_NUMERICHOST) == 0;
    }
    freeifaddrs(list);
    return found;
}

/* Where the other browser finds this server: under the name by which this one did, if that is
 * good elsewhere. */
static void session_write_url(const struct exchange *exchange, char *out, size_t size)
{
    const struct api_server *server = exchange->server;
    const char *scheme = server->tls ? "https" : "http";
    char host[sizeof exchange->host], address[64];
    snprintf(host, sizeof host, "%s", exchange->host);
    if (host[0] != '[')
        host[strcspn(host, ":")] = '\0';
    else
        snprintf(host, sizeof host, "%.*s", (int)strcspn(exchange->host + 1, "]"),
                 exchange->host + 1);
    const bool is_everywhere =
        strcmp(server->host, "0.0.0.0") == 0 || strcmp(server->host, "::") == 0;
    if (exchange->host[0] && !api_address_is_loopback(host))
        snprintf(out, size, "%s://%s", scheme, exchange->host);
    else if (is_everywhere && session_find_address(address, sizeof address))
        snprintf(out, size, "%s://%s:%u", scheme, address, server->port);
    else
        api_server_url(server, out, size);
}

/* The scopes and the minutes that a pass is to have; false: `err` says what is wrong. */
static bool session_read_pass(yyjson_val *root, const struct access_grant *grant, uint32_t *scopes,
                              uint64_t *minutes, struct api_error *err)
{
    yyjson_val *said = yyjson_obj_get(root, "minutes"), *wanted = yyjson_obj_get(root, "scopes");
    const char *text = yyjson_get_str(wanted);
    char unknown[80] = "", has[SCOPES_TEXT];
    *scopes = grant->scopes;
    *minutes = yyjson_is_uint(said) ? yyjson_get_uint(said) : PASS_MINUTES;
    if (wanted && !yyjson_is_null(wanted) && !text)
        return api_error_field(err, "scopes", "'scopes' must be a string, as in \"read,generate\"");
    if (said && !yyjson_is_null(said) && !yyjson_is_uint(said))
        return api_error_field(err, "minutes", "'minutes' must be a number of minutes");
    if (text && !access_scopes_parse(text, scopes, unknown, sizeof unknown))
        return api_error_field(err, "scopes",
                               "there is no scope '%s'; scopes are read, generate, models, admin",
                               unknown);
    if (grant->id && (*scopes & ~grant->scopes)) {
        access_scopes_text(grant->scopes, has, sizeof has);
        return api_error_set(err, 403, "permission_error", "insufficient_scope",
                             "a pass has no more scopes than who makes it: %s", has);
    }
    if ((said && !yyjson_is_uint(said)) || *minutes < 1 || *minutes > SESSION_PASS_MS_MAX / 60000)
        return api_error_field(err, "minutes", "a pass lasts 1 to %d minutes",
                               SESSION_PASS_MS_MAX / 60000);
    return true;
}

/* Where no token is needed there is nothing to pass on but the address. */
static void pass_answer(struct exchange *exchange, const char *pass, uint64_t minutes)
{
    char url[320];
    struct buffer body = {0}, text = {0};
    session_write_url(exchange, url, sizeof url);
    buffer_printf(&text, "%s/", url);
    if (pass)
        buffer_printf(&text, "#/join?pass=%s", pass);
    buffer_text(&body, "{\"pass\":");
    json_out_text(&body, pass);
    buffer_text(&body, ",\"url\":");
    json_out_text(&body, text.data);
    if (pass)
        buffer_printf(&body, ",\"expires_ms\":%" PRIu64 "}", server_wall_ms() + minutes * 60000);
    else
        buffer_text(&body, ",\"expires_ms\":null}");
    body.failed |= text.failed;
    buffer_deinit(&text);
    exchange_answer_json(exchange, &body);
}

static void pass_make(struct exchange *exchange, uint32_t scopes, uint64_t minutes)
{
    struct api_server *server = exchange->server;
    const struct access_grant *grant = &exchange->grant;
    char pass[SESSION_SECRET_TEXT], scopes_text[SCOPES_TEXT];
    struct api_error err;
    struct error why;
    if (!grant->id) {
        pass_answer(exchange, NULL, 0);
        return;
    }
    if (sessions_open(server->sessions, SESSION_PASS, grant->hash, scopes, session_now_ms(),
                      minutes * 60000, pass, &why)) {
        api_error_from(&err, &why);
        exchange_fail(exchange, &err);
        return;
    }
    access_scopes_text(scopes, scopes_text, sizeof scopes_text);
    access_tell(server->access, &exchange->client, grant, AUDIT_PASS_MADE, scopes_text);
    pass_answer(exchange, pass, minutes);
    explicit_bzero(pass, sizeof pass);
}

void passes_handle(struct exchange *exchange)
{
    struct api_error err;
    uint32_t scopes;
    uint64_t minutes;
    yyjson_doc *doc = session_read_body(exchange);
    if (!doc)
        return;
    if (session_read_pass(yyjson_doc_get_root(doc), &exchange->grant, &scopes, &minutes, &err))
        pass_make(exchange, scopes, minutes);
    else
        exchange_fail(exchange, &err);
    yyjson_doc_free(doc);
}
