#include "api/server_tls.h"

#include "api/address.h"
#include "api/exchange_impl.h"
#include "base/log.h"
#include "base/mem.h"
#include "trust/handshake_rate.h"
#include "trust/tls_stream.h"

#include <libwebsockets.h>

#include <assert.h>
#include <string.h>
#include <time.h>

struct server_tls {
    lws_sorted_usec_list_t timer; /* first: libwebsockets gives it back */
    struct pair_keeper keeper;
    struct handshake_rate rate;
    struct lws_context *lws;
};

static uint64_t server_tls_now_s(void)
{
    return (uint64_t)time(NULL);
}

/* ---- opening ---------------------------------------------------------------------------- */

static enum error_code server_tls_check_options(const struct api_tls_options *options,
                                                struct error *err)
{
    if (!options->certificate_path != !options->key_path)
        return error_set(err, ERROR_INVALID, "%s needs %s", options->key_path ? "--key" : "--cert",
                         options->key_path ? "--cert" : "--key");
    if (options->certificate_path && options->mode == API_TLS_OFF)
        return error_set(err, ERROR_INVALID, "--cert and --key make no sense with --tls off");
    return ERROR_NONE;
}

static bool server_tls_is_wanted(const struct api_tls_options *options, const char *host)
{
    return options->mode == API_TLS_ON || options->certificate_path ||
           (options->mode == API_TLS_AUTO && !api_address_is_loopback(host));
}

enum error_code server_tls_open(const struct api_tls_options *options, const char *host,
                                const char *const *more_names, struct server_tls **out,
                                struct error *err)
{
    *out = NULL;
    enum error_code code = server_tls_check_options(options, err);
    if (code || !server_tls_is_wanted(options, host))
        return code;
    struct server_tls *tls = mem_new(sizeof *tls);
    if (!tls)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the server");
    const struct pair_keeper_options keeper = {
        .certificate_path = options->certificate_path,
        .key_path = options->key_path,
        .state_folder = options->state_folder,
        .host = host,
        .node_name = options->node_name,
        .more_names = more_names,
        .source = options->source,
    };
    code = pair_keeper_init(&tls->keeper, &keeper, server_tls_now_s(), err);
    if (code) {
        mem_free(tls);
        return error_wrap(err, "TLS");
    }
    *out = tls;
    return ERROR_NONE;
}

void server_tls_close(struct server_tls *tls)
{
    if (!tls)
        return;
    assert(!tls->lws);
    pair_keeper_deinit(&tls->keeper);
    mem_free(tls);
}

/* ---- libwebsockets' context ------------------------------------------------------------- */

/* Plain HTTP is let in so that it can be told where to go (server_tls_check()). */
void server_tls_describe(const struct server_tls *tls, struct lws_context_creation_info *info)
{
    if (!tls)
        return;
    info->options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_CREATE_VHOST_SSL_CTX |
                     LWS_SERVER_OPTION_ALLOW_NON_SSL_ON_SSL_PORT |
                     LWS_SERVER_OPTION_ALLOW_HTTP_ON_HTTPS_LISTENER;
    info->alpn = "http/1.1";
}

bool server_tls_set_up(struct server_tls *tls, void *ssl_context)
{
    struct error err;
    assert(tls && ssl_context);
    if (tls_server_set_up(ssl_context, &tls->keeper.pair, &tls->rate, &err) == ERROR_NONE)
        return true;
    log_line(LOG_ERROR, "api", "%s", err.text);
    return false;
}

enum error_code server_tls_accept_rpc(struct server_tls *tls, struct tls_acceptor **out,
                                      struct error *err)
{
    *out = NULL;
    return tls ? tls_acceptor_open(&tls->keeper.pair, &tls->rate, "h2", out, err) : ERROR_NONE;
}

static void server_tls_on_timer(lws_sorted_usec_list_t *timer)
{
    struct server_tls *tls = (struct server_tls *)timer;
    pair_keeper_step(&tls->keeper, server_tls_now_s());
    lws_sul_schedule(tls->lws, 0, &tls->timer, server_tls_on_timer,
                     (lws_usec_t)KEEPER_STEP_MS * LWS_US_PER_MS);
}

void server_tls_begin(struct server_tls *tls, struct lws_context *lws)
{
    if (!tls)
        return;
    tls->lws = lws;
    lws_sul_schedule(lws, 0, &tls->timer, server_tls_on_timer,
                     (lws_usec_t)KEEPER_STEP_MS * LWS_US_PER_MS);
}

void server_tls_reload(struct server_tls *tls)
{
    if (tls)
        pair_keeper_step(&tls->keeper, server_tls_now_s());
}

void server_tls_end(struct server_tls *tls)
{
    if (!tls || !tls->lws)
        return;
    lws_sul_cancel(&tls->timer);
    tls->lws = NULL;
}

/* ---- plain HTTP ------------------------------------------------------------------------- */

/* No redirection: a client that follows one would go on sending its token in plain text first, and
 * its user would never know. */
bool server_tls_check(const struct server_tls *tls, const struct exchange *exchange,
                      struct api_error *err)
{
    char host[256] = "";
    if (!tls || lws_is_ssl(exchange->wsi) || exchange->connection->is_inner)
        return true;
    lws_hdr_copy(exchange->wsi, host, sizeof host, WSI_TOKEN_HOST);
    return api_error_set(err, 400, "invalid_request_error", "tls_required",
                         "this port speaks HTTPS; use https://%s%s. What was sent was not "
                         "encrypted: if it held a token, others may have read it",
                         host[0] ? host : "THIS-HOST", host[0] ? "/" : ":PORT/");
}
