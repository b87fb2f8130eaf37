/* The server's side of TLS: whether it speaks it, and the certificate that it shows.
 *
 * On an address that other machines reach it does unless `--tls off` says otherwise; on the
 * loopback, where nobody can listen in, only if it is asked to. libwebsockets speaks TLS through
 * OpenSSL on the loop; trust/tls_pair.h makes its settings, trust/pair_keeper.h its certificate.
 * HTTP/1.1 is all that it offers (ALPN): see docs/SECURITY.md for why not HTTP/2. gRPC's
 * connections, which speak nothing else, have the same certificate (rpc.h). */
#pragma once

#include "api/errors.h"
#include "api/server.h"

struct exchange;
struct lws_context;
struct lws_context_creation_info;
struct server_tls;
struct tls_acceptor;

/* *out is NULL, without an error, where the server shall not speak TLS. `host` is numeric;
 * `more_names`, ended by NULL, are for the certificate, too. Both outlive it. ERROR_INVALID:
 * options that contradict each other, or a certificate that is no good. */
enum error_code server_tls_open(const struct api_tls_options *options, const char *host,
                                const char *const *more_names, struct server_tls **out,
                                struct error *err);
void server_tls_close(struct server_tls *tls); /* after the context is destroyed; NULL is fine */

/* What lws_create_context() is to know; nothing where tls is NULL. */
void server_tls_describe(const struct server_tls *tls, struct lws_context_creation_info *info);
/* libwebsockets has made its SSL_CTX. False: it is not to listen. */
bool server_tls_set_up(struct server_tls *tls, void *ssl_context);
/* For connections with gRPC. *out is NULL, without an error, where tls is. */
enum error_code server_tls_accept_rpc(struct server_tls *tls, struct tls_acceptor **out,
                                      struct error *err);
/* From now on looks after the certificate; until server_tls_end(). */
void server_tls_begin(struct server_tls *tls, struct lws_context *lws);
void server_tls_reload(struct server_tls *tls);
void server_tls_end(struct server_tls *tls);

/* HTTP in plain text, where TLS is spoken: false, and what to do is in `err`. */
bool server_tls_check(const struct server_tls *tls, const struct exchange *exchange,
                      struct api_error *err);
