#include "api/server_lws.h"

#include "api/batches.h"
#include "api/exchange_impl.h"
#include "api/listener.h"
#include "api/server_session.h"
#include "api/server_tls.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <libwebsockets.h>

#include <assert.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

enum { DRAIN_NS = 2 * 1000 * 1000, TELL_HOLD_NS = 10 * 1000 * 1000 };

/* In the order of libwebsockets' own LWSHUMETH_ constants. */
static const struct {
    enum lws_token_indexes token;
    const char *name;
    enum http_method method;
    bool body_assumed; /* without a Content-Length it waits for a body without end */
} methods[] = {
    {WSI_TOKEN_GET_URI, "GET", METHOD_GET, false},
    {WSI_TOKEN_POST_URI, "POST", METHOD_POST, true},
    {WSI_TOKEN_OPTIONS_URI, "OPTIONS", METHOD_OPTIONS, false},
    {WSI_TOKEN_PUT_URI, "PUT", METHOD_OTHER, true},
    {WSI_TOKEN_PATCH_URI, "PATCH", METHOD_OTHER, true},
    {WSI_TOKEN_DELETE_URI, "DELETE", METHOD_DELETE, false},
    {WSI_TOKEN_HEAD_URI, "HEAD", METHOD_HEAD, false},
};

static void set_method(struct exchange *exchange, bool *body_assumed)
{
    *body_assumed = true;
    exchange->method = METHOD_OTHER;
    snprintf(exchange->method_name, sizeof exchange->method_name, "?");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (!lws_hdr_total_length(exchange->wsi, methods[i].token))
            continue;
        exchange->method = methods[i].method;
        *body_assumed = methods[i].body_assumed;
        snprintf(exchange->method_name, sizeof exchange->method_name, "%s", methods[i].name);
        return;
    }
}

static void set_version(struct exchange *exchange)
{
    char text[16] = "";
    lws_hdr_copy(exchange->wsi, text, sizeof text, WSI_TOKEN_HTTP);
    exchange->http_1_0 = strcmp(text, "HTTP/1.0") == 0;
    text[0] = '\0';
    lws_hdr_copy(exchange->wsi, text, sizeof text, WSI_TOKEN_CONNECTION);
    exchange->close_after = exchange->http_1_0 || strcasecmp(text, "close") == 0;
}

/* NULL: there is no such header; "": it is longer than `size`. */
static const char *copy_token(struct lws *wsi, enum lws_token_indexes token, char *out, int size)
{
    if (!lws_hdr_total_length(wsi, token))
        return NULL;
    if (lws_hdr_copy(wsi, out, size, token) < 0)
        out[0] = '\0';
    return out;
}

/* A header that libwebsockets has no token for, `name` with its colon; NULL: there is none, it is
 * longer than that, or there is no memory. To be freed. */
static char *copy_header(struct lws *wsi, const char *name, int size_max)
{
    const int name_size = (int)strlen(name);
    const int size = lws_hdr_custom_length(wsi, name, name_size);
    if (size <= 0 || size > size_max)
        return NULL;
    char *text = mem_new((size_t)size + 1);
    if (text && lws_hdr_custom_copy(wsi, text, size + 1, name, name_size) != size)
        text[0] = '\0';
    return text;
}

/* What of a head the gate reads, and where the texts are while it does. */
struct head_copy {
    struct gate_head head;
    char host[GATE_NAME_MAX + 16], origin[256], length[32], encoding[32], arrived[NI_MAXHOST];
    char type[64];
};

/* The address at which the connection arrived. */
static const char *copy_arrived(struct lws *wsi, char *out, socklen_t size)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    const int fd = lws_get_socket_fd(lws_get_network_wsi(wsi));
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0 ||
        getnameinfo((struct sockaddr *)&address, length, out, size, NULL, 0, NI_NUMERICHOST) != 0)
        return NULL;
    return out;
}

static void copy_head(const struct exchange *exchange, bool body_assumed, struct head_copy *copy)
{
    struct lws *wsi = exchange->wsi;
    struct gate_head *head = &copy->head;
    *head = (struct gate_head){.http_1_0 = exchange->http_1_0,
                               .websocket = exchange->websocket,
                               .body_assumed = body_assumed};
    while (lws_hdr_fragment_length(wsi, WSI_TOKEN_HOST, (int)head->n_hosts) > 0)
        head->n_hosts++;
    head->host = copy_token(wsi, WSI_TOKEN_HOST, copy->host, sizeof copy->host);
    head->origin = copy_token(wsi, WSI_TOKEN_ORIGIN, copy->origin, sizeof copy->origin);
    head->length =
        copy_token(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, copy->length, sizeof copy->length);
    head->encoding =
        copy_token(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING, copy->encoding, sizeof copy->encoding);
    head->arrived = exchange->connection->is_inner
                        ? exchange->connection->arrived
                        : copy_arrived(wsi, copy->arrived, sizeof copy->arrived);
}

/* Whose page it comes from, and whether it brings JSON. */
static void server_lws_read_site(struct exchange *exchange, struct head_copy *copy)
{
    snprintf(exchange->host, sizeof exchange->host, "%s", copy->head.host ? copy->head.host : "");
    char *fetch_site = copy_header(exchange->wsi, "sec-fetch-site:", 32);
    exchange->site = site_of(&(struct site_head){.host = copy->head.host,
                                                 .origin = copy->head.origin,
                                                 .fetch_site = fetch_site,
                                                 .only_reads = exchange_only_reads(exchange)});
    exchange->is_json = site_is_json(
        copy_token(exchange->wsi, WSI_TOKEN_HTTP_CONTENT_TYPE, copy->type, sizeof copy->type));
    mem_free(fetch_site);
}

static uint64_t server_lws_body_max(const struct exchange *exchange)
{
    const uint64_t max = exchange->server->limits.body;
    return route_is_bridge(exchange->route) && max > BRIDGE_BODY_BYTES ? BRIDGE_BODY_BYTES : max;
}

static bool body_too_large(const struct exchange *exchange, struct api_error *err)
{
    if (route_is_bridge(exchange->route)) {
        api_error_set(err, 413, "invalid_request_error", "body_too_large",
                      "%s takes a body of at most %d bytes", exchange->path, BRIDGE_BODY_BYTES);
        return false;
    }
    API_LIMIT_ERROR(err, 413, &exchange->server->limits, body, "the body is too large");
    err->code = "body_too_large";
    return false;
}

/* A page of another origin can send a body that is not JSON without being asked first. */
static bool server_lws_check_type(const struct exchange *exchange, bool body_assumed,
                                  struct api_error *err)
{
    return !route_is_private(exchange->route) || !body_assumed || exchange->is_json ||
           api_error_set(err, 415, "invalid_request_error", "not_json",
                         "%s takes JSON: send 'Content-Type: application/json'", exchange->path);
}

/* --cors lets pages use models. What steers the node wants a token of them, or its own page. */
static bool server_lws_check_site(const struct exchange *exchange, struct api_error *err)
{
    return !route_is_private(exchange->route) || exchange->site != SITE_OTHER ||
           exchange->method == METHOD_OPTIONS || exchange->grant.id ||
           api_error_set(err, 403, "invalid_request_error", "origin_not_allowed",
                         "web pages of other origins may not use %s without a token",
                         exchange->path);
}

/* What can be refused before a body is read. False: `err` is set. */
static bool check_head(struct exchange *exchange, bool *length_given, bool body_assumed,
                       struct api_error *err)
{
    struct head_copy copy;
    struct gate_body body;
    copy_head(exchange, body_assumed, &copy);
    const bool passed = gate_check(&exchange->server->gate, &copy.head, &body, err);
    exchange->body_expected = body.expected;
    exchange->chunked = body.chunked;
    *length_given = body.length_given;
    server_lws_read_site(exchange, &copy);
    return passed &&
           (body.expected <= server_lws_body_max(exchange) || body_too_large(exchange, err)) &&
           server_lws_check_type(exchange, body_assumed, err);
}

static void server_lws_read_trace(struct exchange *exchange)
{
    char *text = exchange->server->traces
                     ? copy_header(exchange->wsi, "traceparent:", LIMIT_REQUEST_ID_BYTES)
                     : NULL;
    if (text)
        trace_context_read(text, strlen(text), &exchange->trace);
    mem_free(text);
}

/* Without a good id of the client's, one is drawn. */
static void server_lws_read_ids(struct exchange *exchange)
{
    static const char position[] = "last-event-id:";
    char *id = copy_header(exchange->wsi, "x-request-id:", LIMIT_REQUEST_ID_BYTES);
    exchange->has_request_id = id && request_id_is_sane(id, strlen(id));
    if (exchange->has_request_id)
        memcpy(exchange->request_id, id, strlen(id) + 1);
    else
        request_id_draw(exchange->request_id);
    mem_free(id);
    server_lws_read_trace(exchange);
    exchange->last_event_id = copy_header(exchange->wsi, position, LIMIT_LAST_EVENT_ID_BYTES);
    exchange->has_last_event_id =
        lws_hdr_custom_length(exchange->wsi, position, sizeof position - 1) > 0;
}

/* RFC 9110, section 10.1.1: the client waits for this line before it sends its body. */
static bool send_continue(struct lws *wsi)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    unsigned char bytes[LWS_PRE + sizeof line];
    if (!lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_EXPECT))
        return true;
    memcpy(bytes + LWS_PRE, line, sizeof line - 1);
    return lws_write(wsi, bytes + LWS_PRE, sizeof line - 1, LWS_WRITE_HTTP_HEADERS) >= 0;
}

/* The answer is gone: the connection waits for the next request, or closes. */
static int end_exchange(struct exchange *exchange)
{
    struct lws *wsi = exchange->wsi;
    struct connection *connection = exchange->connection;
    bool close_after = exchange->close_after;
    connection->exchange = NULL;
    listener_set_busy(exchange->server, connection, false);
    exchange_free(exchange);
    return close_after || lws_http_transaction_completed(wsi) ? -1 : 0;
}

static int on_writable(struct exchange *exchange)
{
    bool over;
    if (!exchange_writable(exchange, &over))
        return -1;
    if (!over)
        return 0;
    if (exchange->linger && exchange->body_seen < exchange->body_expected) {
        lws_set_timer_usecs(exchange->wsi, EXCHANGE_LINGER_S * LWS_USEC_PER_SEC);
        return 0; /* closing now would make the kernel drop the answer before the client reads it */
    }
    return end_exchange(exchange);
}

/* Answered while libwebsockets is still in its request callback, and without a body: it only copes
 * with requests that follow in the same read (pipelining) when the answer ends within the
 * callback. */
static int answer_now(struct exchange *exchange)
{
    bool over = false;
    while (!over) {
        if (!exchange_writable(exchange, &over))
            return -1;
        if (!over && lws_partial_buffered(exchange->wsi))
            return 0; /* the socket is full: on_writable() goes on */
    }
    return end_exchange(exchange);
}

static void refuse_body(struct exchange *exchange, const struct api_error *err)
{
    exchange->close_after = exchange->linger = true;
    exchange->body_expected = UINT64_MAX;
    lws_set_timer_usecs(exchange->wsi, EXCHANGE_LINGER_S * LWS_USEC_PER_SEC);
    exchange_fail(exchange, err);
}

/* The connection's next exchange; NULL: no memory for it. */
static struct exchange *server_lws_begin_exchange(struct api_server *server,
                                                  struct connection *connection)
{
    assert(!connection->exchange);
    connection->exchange = exchange_new(server, connection);
    if (connection->exchange) {
        connection->head_by_ns = 0;
        listener_set_busy(server, connection, false);
    }
    return connection->exchange;
}

/* `protocol` is the Upgrade header where libwebsockets keeps it, about to be compared with those
 * that it can change to. Changed, it is none of them, so that the request stays one of HTTP/1.1: a
 * server may ignore the header (RFC 9110, section 7.8), and clients that offer h2c expect that it
 * is. A WebSocket is refused, by gate_check().
 * Without the header libwebsockets has answered 403 to a protocol that it does not know, and goes
 * on with a header table that it has freed: the connection must end. */
static int on_upgrade(struct api_server *server, struct connection *connection, char *protocol)
{
    if (!lws_hdr_total_length(connection->wsi, WSI_TOKEN_UPGRADE))
        return -1;
    struct exchange *exchange = server_lws_begin_exchange(server, connection);
    if (!exchange)
        return -1;
    exchange->websocket = strcasecmp(protocol, "websocket") == 0;
    protocol[0] = '\0';
    return 0;
}

/* The session of its cookie, where the request is for this server's own page. */
static void server_lws_read_session(struct exchange *exchange)
{
    struct api_server *server = exchange->server;
    char header[2048] = "", name[SERVER_COOKIE_NAME_MAX];
    size_t size;
    if (!site_takes_cookie(exchange->site, exchange_only_reads(exchange)) ||
        !copy_token(exchange->wsi, WSI_TOKEN_HTTP_COOKIE, header, sizeof header))
        return;
    server_session_cookie_name(server, name, sizeof name);
    const char *secret = session_of_cookie(header, name, &size);
    exchange->has_session = sessions_find(server->sessions, SESSION_BROWSER, secret, size,
                                          clock_now_ns() / 1000000, &exchange->session);
    explicit_bzero(header, sizeof header);
}

/* Tokens, unless it is the question of a browser, which shows none, whether a page may ask
 * (https://fetch.spec.whatwg.org/#cors-preflight-fetch). */
static bool server_lws_check_token(struct exchange *exchange, struct access_refusal *refusal)
{
    struct lws *wsi = exchange->wsi;
    char authorization[256] = "";
    if (exchange->method == METHOD_OPTIONS)
        return true;
    lws_hdr_copy(wsi, authorization, sizeof authorization, WSI_TOKEN_HTTP_AUTHORIZATION);
    char *key = copy_header(wsi, "x-api-key:", 256);
    if (!authorization[0] && !key)
        server_lws_read_session(exchange);
    if (exchange->connection->acts_for_token) {
        exchange->session = exchange->connection->acts_for;
        exchange->has_session = true;
    }
    const bool let_in =
        access_begin(exchange->server->access, &exchange->client, authorization, key,
                     exchange->has_session ? &exchange->session : NULL,
                     exchange->route ? exchange->route->scopes : 0, clock_now_ns() / 1000000,
                     server_wall_ms(), &exchange->grant, refusal);
    mem_free(key);
    memset(authorization, 0, sizeof authorization);
    if (let_in && exchange->grant.id)
        server_watch_tokens(exchange->server);
    if (!let_in)
        log_line(LOG_INFO, "api", "%s: %s %s: %s", exchange->client.share, exchange->method_name,
                 exchange->path, refusal->err.message);
    return let_in;
}

static void server_lws_refuse_token(struct exchange *exchange, const struct access_refusal *refusal)
{
    exchange->grant = (struct access_grant){0};
    exchange->close_after = exchange->linger = true;
    exchange_fail_late(exchange, &refusal->err, refusal->delay_ms);
    if (!exchange->late)
        lws_set_timer_usecs(exchange->wsi, EXCHANGE_LINGER_S * LWS_USEC_PER_SEC);
}

static int on_request(struct api_server *server, struct connection *connection, const char *path,
                      size_t size)
{
    bool body_assumed, length_given = false;
    struct api_error err;
    struct access_refusal refusal;
    struct lws *wsi = connection->wsi;
    struct exchange *exchange = connection->exchange;
    if (!exchange) /* else on_upgrade() has begun it */
        exchange = server_lws_begin_exchange(server, connection);
    if (!exchange)
        return -1;
    set_method(exchange, &body_assumed);
    set_version(exchange);
    server_lws_read_ids(exchange);
    if (size >= sizeof exchange->path)
        size = sizeof exchange->path - 1;
    memcpy(exchange->path, path, size);
    exchange->route = route_find(exchange->method, exchange->path, &exchange->allow);
    if (!server_tls_check(server->tls, exchange, &err) ||
        !check_head(exchange, &length_given, body_assumed, &err)) {
        uint64_t expected = exchange->body_expected;
        refuse_body(exchange, &err);
        exchange->body_expected = expected; /* known: lingering ends with it */
        return 0;
    }
    if (!server_lws_check_token(exchange, &refusal)) {
        server_lws_refuse_token(exchange, &refusal);
        return 0;
    }
    if (!server_lws_check_site(exchange, &err)) {
        refuse_body(exchange, &err);
        return 0;
    }
    if (route_computes(exchange->route) && !connection->is_batch)
        batches_yield(server->batches);
    if (exchange->chunked) {
        exchange->close_after = true; /* libwebsockets does not know where such a body ends */
        lws_set_timer_usecs(wsi, EXCHANGE_BODY_TICK_S * LWS_USEC_PER_SEC);
        if (!send_continue(wsi))
            return -1;
    } else if (!length_given && body_assumed) {
        exchange->close_after = true; /* libwebsockets goes on waiting for a body */
        exchange_ready(exchange);
    } else if (exchange->body_expected == 0 && !(length_given && exchange->method == METHOD_POST)) {
        exchange_ready(exchange);
        if (exchange->state == EXCHANGE_ANSWERED)
            return answer_now(exchange);
    } else {
        lws_set_timer_usecs(wsi, EXCHANGE_BODY_TICK_S * LWS_USEC_PER_SEC);
        if (exchange->body_expected && !send_continue(wsi))
            return -1;
    }
    return 0;
}

static void on_chunks(struct exchange *exchange, const char *bytes, size_t size)
{
    struct chunked_decoder *decoder = &exchange->decoder;
    struct api_error err;
    while (size && exchange->state == EXCHANGE_BODY) {
        const char *data;
        size_t data_size, used = chunked_decode(decoder, bytes, size, &data, &data_size);
        bytes += used;
        size -= used;
        if (exchange->body_seen + data_size > server_lws_body_max(exchange)) {
            body_too_large(exchange, &err);
            refuse_body(exchange, &err);
        } else if (decoder->state == CHUNKED_BAD) {
            api_error_set(&err, 400, "invalid_request_error", NULL,
                          "the chunks of the body are malformed");
            refuse_body(exchange, &err);
        } else {
            exchange_receive(exchange, data, data_size);
            if (decoder->state == CHUNKED_DONE)
                exchange_ready(exchange);
        }
    }
}

/* Bytes beyond the body are the next request, sent without waiting for this one's answer.
 * libwebsockets takes them for more of the body, so the connection ends after this answer, and the
 * client must send the rest again (RFC 9112, section 9.3.2; clients do not pipeline behind a POST,
 * section 9.3.2 too). */
static int on_body(struct exchange *exchange, const char *bytes, size_t size)
{
    uint64_t left = exchange->body_expected - exchange->body_seen;
    if (exchange->linger) {
        exchange->body_seen += size;
        return exchange->body_seen > EXCHANGE_LINGER_BYTES ? -1 : 0;
    }
    if (exchange->chunked) {
        on_chunks(exchange, bytes, size);
        return 0;
    }
    bool beyond = size > left;
    exchange->close_after |= beyond;
    exchange_receive(exchange, bytes, beyond ? (size_t)left : size);
    if (beyond)
        exchange_ready(exchange);
    return 0;
}

/* A body must move, and be there in the end. */
static void server_lws_check_body(struct exchange *exchange)
{
    const uint64_t moved = exchange->body_seen - exchange->body_ticked;
    const uint64_t age_s = (clock_now_ns() - exchange->started_ns) / UINT64_C(1000000000);
    struct api_error err;
    exchange->body_ticked = exchange->body_seen;
    if (moved >= EXCHANGE_BODY_TICK_BYTES && age_s < EXCHANGE_BODY_S) {
        lws_set_timer_usecs(exchange->wsi, EXCHANGE_BODY_TICK_S * LWS_USEC_PER_SEC);
        return;
    }
    api_error_set(&err, 408, "invalid_request_error", "timeout",
                  "the body came too slowly: at least %d KiB must arrive every %d s, and all of it "
                  "within %d s",
                  EXCHANGE_BODY_TICK_BYTES / 1024, EXCHANGE_BODY_TICK_S, EXCHANGE_BODY_S);
    exchange->close_after = true;
    exchange_fail(exchange, &err);
}

static int server_lws_on_timer(struct exchange *exchange)
{
    if (exchange->late) {
        struct api_error late = *exchange->late;
        mem_free(exchange->late);
        exchange->late = NULL;
        exchange_fail(exchange, &late);
        lws_set_timer_usecs(exchange->wsi, EXCHANGE_LINGER_S * LWS_USEC_PER_SEC);
        return 0;
    }
    if (exchange->waiting)
        exchange_tick(exchange);
    if (exchange->linger || exchange->state != EXCHANGE_BODY)
        return exchange->linger ? -1 : 0;
    server_lws_check_body(exchange);
    return 0;
}

/* Its exchange ends with it. */
static void server_lws_end_connection(struct api_server *server, struct connection *connection)
{
    lws_set_opaque_user_data(connection->wsi, NULL);
    if (connection->exchange)
        exchange_free(connection->exchange);
    listener_forget(server, connection);
}

/* As many as fit into a moment; the rest has the loop's next turn, after the sockets'. */
static void drain_inbox(struct api_server *server)
{
    const uint64_t end_ns = clock_now_ns() + DRAIN_NS;
    struct inbox_item *item;
    while ((item = inbox_take(&server->inbox))) {
        item->ready(item);
        if (clock_now_ns() < end_ns)
            continue;
        lws_cancel_service(server->lws);
        return;
    }
}

/* Of one connection. */
static int server_lws_on_connection(struct api_server *server, struct connection *connection,
                                    enum lws_callback_reasons reason, void *in, size_t size)
{
    struct exchange *exchange = connection->exchange;
    if (reason == LWS_CALLBACK_HTTP_CONFIRM_UPGRADE)
        return on_upgrade(server, connection, in);
    if (reason == LWS_CALLBACK_HTTP)
        return on_request(server, connection, in, size);
    if (reason == LWS_CALLBACK_CLOSED_HTTP || reason == LWS_CALLBACK_WSI_DESTROY)
        server_lws_end_connection(server, connection);
    else if (!exchange)
        return 0;
    else if (reason == LWS_CALLBACK_HTTP_BODY)
        return on_body(exchange, in, size);
    else if (reason == LWS_CALLBACK_HTTP_BODY_COMPLETION)
        exchange_ready(exchange);
    else if (reason == LWS_CALLBACK_HTTP_WRITEABLE)
        return on_writable(exchange);
    else if (reason == LWS_CALLBACK_TIMER)
        return server_lws_on_timer(exchange);
    return 0;
}

static int server_lws_dispatch(struct api_server *server, struct lws *wsi,
                               enum lws_callback_reasons reason, void *in, size_t size)
{
    struct connection *connection = wsi ? lws_get_opaque_user_data(wsi) : NULL;
    /* The reasons are many and most do not concern an HTTP server. */
    if (reason == LWS_CALLBACK_EVENT_WAIT_CANCELLED)
        drain_inbox(server);
    else if (reason == LWS_CALLBACK_RAW_ADOPT || reason == LWS_CALLBACK_RAW_RX)
        return -1; /* what libwebsockets makes of CONNECT */
    else if (reason == LWS_CALLBACK_RAW_RX_FILE)
        listener_on_readable(server);
    else if (reason == LWS_CALLBACK_RAW_CLOSE_FILE)
        listener_on_closed(server);
    else if (connection && connection->wsi)
        return server_lws_on_connection(server, connection, reason, in, size);
    else if (connection && reason == LWS_CALLBACK_WSI_DESTROY)
        listener_on_unborn_end(server, connection, wsi);
    return reason == LWS_CALLBACK_HTTP ? -1 : 0;
}

/* For who looks for what makes others wait (MEDLEY_LOG=debug). Not in processor time: asking for it
 * is a system call, and eight streams had 160 of them a token. */
static void server_lws_note_hold(struct api_server *server, enum lws_callback_reasons reason,
                                 uint64_t held_ns)
{
    metrics_loop_held(&server->metrics, held_ns);
    if (held_ns > TELL_HOLD_NS)
        log_line(LOG_DEBUG, "api", "held the loop for %.1f ms: reason %d", (double)held_ns * 1e-6,
                 (int)reason);
}

static int server_lws_callback(struct lws *wsi, enum lws_callback_reasons reason, void *user,
                               void *in, size_t size)
{
    struct api_server *server = lws_context_user(lws_get_context(wsi));
    const uint64_t begin_ns = clock_now_ns();
    const bool is_outer = !server->in_callback; /* some calls end in another */
    if (reason == LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS)
        return server_tls_set_up(server->tls, user) ? 0 : -1;
    server->in_callback = true;
    const int result = server_lws_dispatch(server, wsi, reason, in, size);
    if (is_outer) {
        server->in_callback = false;
        server_lws_note_hold(server, reason, clock_now_ns() - begin_ns);
    }
    return result;
}

const struct lws_protocols server_protocols[] = {
    {.name = "http", .callback = server_lws_callback, .rx_buffer_size = 0},
    {0},
};
