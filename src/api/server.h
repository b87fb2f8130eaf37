/* The OpenAI-compatible HTTP server: HTTP/1.1 on libwebsockets, on the caller's libuv loop.
 *
 * Everything runs on the loop's thread, except what the driver and the preparer do on theirs; those
 * only leave results in an inbox and wake the loop. Which models there are, and when, is their
 * owner's to say (models.h); it must outlive the server.
 *
 * Lifetime: open; run the loop; api_server_stop(), after which new requests are refused and those
 * under way may end (until a second stop, or the grace period, cancels them); `stopped` is called
 * when none is left; then api_server_close(), run the loop until it is empty (libwebsockets gives
 * its handles back through it), and api_server_free(). */
#pragma once

#include "api/access.h"
#include "api/bridge.h"
#include "api/limits.h"
#include "api/models.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/live_feed.h"
#include "trust/pair_keeper.h"

#include <stdbool.h>
#include <stdint.h>

struct api_server;

enum api_tls_mode { API_TLS_AUTO, API_TLS_ON, API_TLS_OFF };

/* Texts must outlive the server. */
struct api_tls_options {
    enum api_tls_mode mode;                  /* AUTO: on all addresses but the loopback */
    const char *certificate_path, *key_path; /* the operator's own; NULL: signed, see below */
    const char *state_folder;  /* keeps the machine's own authority; "": nothing does */
    const char *node_name;     /* beside the host name; NULL: none */
    struct pair_source source; /* the cluster's authority, when there is one */
};

struct metrics_page;
/* What the server's owner adds to /metrics: rows of metrics/table.h that the API does not write. */
struct api_metrics_source {
    void (*write)(void *self, struct metrics_page *page); /* NULL: nothing */
    void *self;
};

struct api_options {
    const char *address;     /* HOST:PORT, :PORT (loopback) or [IPv6]:PORT; port 0: any free one */
    const char *cors_origin; /* pages of this origin, or "*", may call; NULL: none */
    const char *hosts[LIMIT_API_HOSTS]; /* names besides this machine's that it answers for */
    uint32_t n_hosts;
    const char *name; /* this machine's as a node, which it answers for, too; NULL: none */
    const char *node_id, *node_name; /* what the page shows as this machine; NULL: none */
    struct api_models models;
    struct live_feed live;    /* what /api/live shows; zeroed: there is none */
    struct api_bridge bridge; /* what the node is asked; zeroed: nothing */
    struct api_limits limits; /* 0: the default */
    struct api_tls_options tls;
    /* Who may use it (access.h). An address that other machines reach needs a token, unless it is
     * open. */
    struct api_access access;
    bool is_open;         /* nobody needs a token */
    bool shares_prefixes; /* what one token's prompts left in the caches serves all */
    bool serves_page;     /* the dashboard, at / */
    struct api_metrics_source metrics;
    const char *puller;     /* pulls models as `PULLER pull NAME --json`; NULL: nothing does */
    const char *traces_url; /* where requests go as traces (traces.h); NULL: nowhere */
    bool requires_token;    /* on the loopback, too, and before there is one */
    uint32_t waiting_ms;    /* a stream with nothing to say gets a sign of life so often; 0: 5 s */
};

/* Adds to options->hosts, as `--host` does. ERROR_INVALID: it is no host, or there are too many. */
enum error_code api_options_add_host(struct api_options *options, const char *name,
                                     struct error *err);

/* ERROR_IO names the address and why it cannot be listened on, such as a port in use. */
enum error_code api_server_open(void *uv_loop, const struct api_options *options,
                                struct api_server **out, struct error *err);
uint16_t api_server_port(const struct api_server *server);
const char *api_server_host(const struct api_server *server);
/* "https://192.168.1.7:8080" */
void api_server_url(const struct api_server *server, char *url, size_t size);

/* Looks at once whether the certificate's files have changed, as it does every two seconds. */
void api_server_reload(struct api_server *server);
/* May be called twice: the second time cancels what is still running. */
void api_server_stop(struct api_server *server, void (*stopped)(void *arg), void *arg);
void api_server_close(struct api_server *server);
void api_server_free(struct api_server *server);
