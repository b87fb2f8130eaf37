#include "api/exchange_impl.h"

#include "api/listener.h"
#include "api/preparer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <libwebsockets.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct api_server *exchange_server(const struct exchange *exchange)
{
    return exchange->server;
}

const struct api_client *exchange_client(const struct exchange *exchange)
{
    return &exchange->client;
}

const struct access_grant *exchange_grant(const struct exchange *exchange)
{
    return &exchange->grant;
}

struct text exchange_path(const struct exchange *exchange)
{
    return (struct text){exchange->path, strlen(exchange->path)};
}

struct text exchange_body(const struct exchange *exchange)
{
    return (struct text){exchange->body.data ? exchange->body.data : "", exchange->body.size};
}

uint32_t exchange_scopes(const struct exchange *exchange)
{
    return exchange->route ? exchange->route->scopes : 0;
}

bool exchange_only_reads(const struct exchange *exchange)
{
    return exchange->method == METHOD_GET || exchange->method == METHOD_HEAD;
}

void exchange_take_body(struct exchange *exchange, struct buffer *out)
{
    memory_total_add(&exchange->server->memory, -(int64_t)exchange->body.size);
    *out = exchange->body;
    exchange->body = (struct buffer){0};
}

uint64_t exchange_started_ns(const struct exchange *exchange)
{
    return exchange->started_ns;
}

const char *exchange_request_id(const struct exchange *exchange, bool *was_given)
{
    *was_given = exchange->has_request_id;
    return exchange->request_id;
}

const struct trace_context *exchange_trace(const struct exchange *exchange)
{
    return &exchange->trace;
}

struct text exchange_last_event_id(const struct exchange *exchange)
{
    const char *id = exchange->last_event_id       ? exchange->last_event_id
                     : exchange->has_last_event_id ? "?"
                                                   : "";
    return (struct text){id, strlen(id)};
}

struct exchange *exchange_new(struct api_server *server, struct connection *connection)
{
    struct exchange *exchange = mem_new(sizeof *exchange);
    if (!exchange)
        return NULL;
    exchange->server = server;
    exchange->wsi = connection->wsi;
    exchange->connection = connection;
    exchange->client = connection->client;
    exchange->started_ns = exchange->moved_ns = clock_now_ns();
    exchange->next = server->exchanges;
    if (exchange->next)
        exchange->next->before = exchange;
    server->exchanges = exchange;
    server->metrics.requests_active++;
    return exchange;
}

void exchange_release_body(struct exchange *exchange)
{
    struct api_server *server = exchange->server;
    server->body_bytes -= exchange->body.size;
    memory_total_add(&server->memory, -(int64_t)exchange->body.size);
    preparer_free(server->preparer, exchange->body.data);
    exchange->body = (struct buffer){0};
}

/* Whoever sets an owner has taken the body. */
void exchange_set_owner(struct exchange *exchange, void (*gone)(void *owner), void *owner)
{
    exchange->gone = gone;
    exchange->owner = owner;
    exchange_release_body(exchange);
}

/* Whether the server works on it, or waits for its client. */
void exchange_set_state(struct exchange *exchange, enum exchange_state state)
{
    exchange->state = state;
    listener_set_busy(exchange->server, exchange->connection, state == EXCHANGE_WORKING);
}

/* What its client has not read has changed. */
void exchange_count_unread(struct exchange *exchange)
{
    uint64_t *sum = &exchange->server->unread_bytes;
    assert(*sum >= exchange->unread);
    *sum += exchange->out.size - exchange->unread;
    exchange->unread = exchange->out.size;
}

static void tell_owner(struct exchange *exchange)
{
    void (*gone)(void *owner) = exchange->gone;
    exchange->gone = NULL;
    if (gone)
        gone(exchange->owner);
}

void exchange_free(struct exchange *exchange)
{
    struct api_server *server = exchange->server;
    tell_owner(exchange);
    uint64_t ns = clock_now_ns() - exchange->started_ns;
    unsigned status =
        exchange->status ? exchange->status : 499; /* the client left before an answer */
    metrics_request(&server->metrics, exchange->route ? exchange->route->path : "other", status,
                    ns);
    log_line(LOG_INFO, "api", "%s %s %u %.1f ms, %s", exchange->method_name, exchange->path, status,
             (double)ns * 1e-6, exchange->request_id);
    access_end(server->access, &exchange->grant);
    mem_free(exchange->late);
    server->metrics.requests_active--;
    if (exchange->next)
        exchange->next->before = exchange->before;
    if (exchange->before)
        exchange->before->next = exchange->next;
    else
        server->exchanges = exchange->next;
    exchange_release_body(exchange);
    mem_free(exchange->last_event_id);
    buffer_deinit(&exchange->more);
    buffer_deinit(&exchange->head);
    memory_total_add(&server->memory, -(int64_t)exchange->out_counted);
    preparer_free(server->preparer, exchange->out.data);
    exchange->out = (struct buffer){0};
    exchange_count_unread(exchange);
    if (exchange->connection)
        exchange->connection->exchange = NULL;
    if (server->held == exchange)
        server->held = NULL;
    mem_free(exchange);
}

void exchange_abort(struct exchange *exchange)
{
    exchange->dead = true;
    exchange_set_state(exchange, EXCHANGE_ANSWERED);
    tell_owner(exchange);
    lws_set_timeout(exchange->wsi, PENDING_TIMEOUT_HTTP_CONTENT, LWS_TO_KILL_ASYNC);
}

void exchange_receive(struct exchange *exchange, const char *bytes, size_t size)
{
    struct api_server *server = exchange->server;
    exchange->body_seen += size;
    if (exchange->state != EXCHANGE_BODY || !exchange->route || !size)
        return;
    struct api_error err;
    if (!exchange_make_room(exchange, EXCHANGE_BODIES, size, &err)) {
        exchange->close_after = exchange->linger = true;
        exchange_fail(exchange, &err);
        return;
    }
    if (memory_total_used(&server->memory) + size > server->limits.memory) {
        API_LIMIT_ERROR(&err, 503, &server->limits, memory, "other requests take all memory");
        exchange->close_after = exchange->linger = true;
        exchange_fail(exchange, &err);
        return;
    }
    exchange->moved_bytes += size;
    if (exchange->moved_bytes >= EXCHANGE_MOVE_BYTES) {
        exchange->moved_bytes = 0;
        exchange->moved_ns = clock_now_ns();
        listener_set_busy(server, exchange->connection, false);
    }
    buffer_append(&exchange->body, bytes, size);
    if (exchange->body.failed)
        return;
    server->body_bytes += size;
    memory_total_add(&server->memory, (int64_t)size);
}

/* A path that is not there, or not with this method. */
static void refuse_route(struct exchange *exchange)
{
    struct api_error err;
    if (!exchange->allow[0])
        api_error_set(&err, 404, "invalid_request_error", "unknown_url",
                      "Unknown request URL: %s %s", exchange->method_name, exchange->path);
    else
        api_error_set(&err, 405, "invalid_request_error", "method_not_allowed",
                      "%s allows %s, not %s", exchange->path, exchange->allow,
                      exchange->method_name);
    exchange_fail(exchange, &err);
}

void exchange_ready(struct exchange *exchange)
{
    struct api_error err;
    const bool is_stopping = exchange->server->stopping;
    if (exchange->state != EXCHANGE_BODY)
        return;
    exchange->close_after |= is_stopping;
    exchange_set_state(exchange, EXCHANGE_WORKING);
    lws_set_timer_usecs(exchange->wsi, LWS_SET_TIMER_USEC_CANCEL);
    lws_set_timeout(exchange->wsi, NO_PENDING_TIMEOUT, 0);
    if (exchange->body.failed) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the request");
        exchange_fail(exchange, &err);
    } else if (is_stopping &&
               !(route_computes(exchange->route) && server_answers_last(exchange->server))) {
        api_error_set(&err, 503, "server_error", "stopping", "the server is stopping");
        exchange_fail(exchange, &err);
    } else if (exchange->method == METHOD_OPTIONS && exchange->allow[0]) {
        struct buffer nothing = {0};
        exchange_answer(exchange, 204, NULL, &nothing);
    } else if (!exchange->route) {
        refuse_route(exchange);
    } else {
        exchange->route->handle(exchange);
    }
}

/* ---- the answer ---- */

void exchange_push(struct exchange *exchange)
{
    if (exchange->head.failed || exchange->out.failed)
        exchange_abort(exchange);
    else if (exchange->server->held != exchange)
        lws_callback_on_writable(exchange->wsi);
}

void exchange_hold(struct exchange *exchange)
{
    assert(!exchange->server->held);
    exchange->server->held = exchange;
}

/* Waiting for the socket first would cost a turn of the loop and four changes of what it polls for
 * each token. An answer's end takes that way: the connection ends with it, or goes on. */
void exchange_release_held(struct api_server *server)
{
    struct exchange *exchange = server->held;
    bool over;
    server->held = NULL;
    if (!exchange || exchange->dead || (!exchange->head.size && !exchange_unread(exchange)))
        return;
    if (exchange->state == EXCHANGE_ANSWERED || lws_partial_buffered(exchange->wsi))
        lws_callback_on_writable(exchange->wsi);
    else if (!exchange_writable(exchange, &over))
        exchange_abort(exchange);
}

void exchange_end_waiting(struct exchange *exchange)
{
    if (exchange->waiting)
        lws_set_timer_usecs(exchange->wsi, LWS_SET_TIMER_USEC_CANCEL);
    exchange->waiting = NULL;
}

static enum api_shape exchange_shape(const struct exchange *exchange)
{
    return exchange->route ? exchange->route->shape : API_SHAPE_OPENAI;
}

/* Takes what is in *body, if there is room for it to be read slowly. */
static void exchange_limit_answer(struct exchange *exchange, unsigned *status, struct buffer *body)
{
    struct api_error err;
    if (body->size <= EXCHANGE_WRITE_BYTES ||
        exchange_make_room(exchange, EXCHANGE_ANSWERS, body->size, &err))
        return;
    preparer_free(exchange->server->preparer, body->data);
    *body = (struct buffer){0};
    api_error_write_as(&err, exchange_shape(exchange), body);
    *status = err.status;
}

void exchange_answer(struct exchange *exchange, unsigned status, const char *content_type,
                     struct buffer *body)
{
    exchange->gone = NULL;
    exchange_end_waiting(exchange);
    exchange_limit_answer(exchange, &status, body);
    exchange->moved_ns = clock_now_ns();
    exchange_set_state(exchange, EXCHANGE_ANSWERED);
    exchange->status = status;
    exchange_release_body(exchange);
    exchange_write_head(exchange, content_type, body->size);
    exchange->out = *body;
    exchange->out_counted = work_limit_size_of(body->data);
    memory_total_add(&exchange->server->memory, (int64_t)exchange->out_counted);
    *body = (struct buffer){0};
    if (exchange->method == METHOD_HEAD)
        buffer_clear(&exchange->out);
    exchange_count_unread(exchange);
    exchange_push(exchange);
}

void exchange_answer_json(struct exchange *exchange, struct buffer *body)
{
    exchange_answer(exchange, 200, "application/json", body);
}

static void exchange_fail_stream(struct exchange *exchange, struct buffer *body)
{
    switch (exchange_shape(exchange)) {
    case API_SHAPE_OPENAI:
        if (exchange_stream_event(exchange, NULL, body))
            exchange_stream_end(exchange);
        return;
    case API_SHAPE_ANTHROPIC:
        if (exchange_stream_named(exchange, "error", NULL, body))
            exchange_stream_close(exchange);
        return;
    case API_SHAPE_OLLAMA:
        buffer_text(body, "\n");
        if (exchange_lines_add(exchange, body))
            exchange_lines_end(exchange);
        return;
    }
}

/* Once a stream has begun, its status is sent: the error comes as an event. */
void exchange_fail(struct exchange *exchange, const struct api_error *err)
{
    struct buffer body = {0};
    api_error_write_as(err, exchange_shape(exchange), &body);
    exchange->retry_after_s = err->retry_after_s;
    exchange->asks_token = err->status == 401;
    if (exchange->streaming) {
        exchange->gone = NULL;
        exchange_fail_stream(exchange, &body);
        buffer_deinit(&body);
        return;
    }
    exchange_answer(exchange, err->status, "application/json", &body);
}

void exchange_fail_late(struct exchange *exchange, const struct api_error *err, uint32_t delay_ms)
{
    assert(!exchange->late && !exchange->gone);
    exchange->state = EXCHANGE_WORKING;
    exchange->late = delay_ms ? mem_new(sizeof *exchange->late) : NULL;
    if (!exchange->late) {
        exchange_fail(exchange, err);
        return;
    }
    *exchange->late = *err;
    lws_set_timeout(exchange->wsi, NO_PENDING_TIMEOUT, 0);
    lws_set_timer_usecs(exchange->wsi, (lws_usec_t)delay_ms * 1000);
}

void exchange_revoke(struct exchange *exchange, const struct api_error *err)
{
    if (exchange->state == EXCHANGE_ANSWERED || exchange->dead || exchange->late)
        return;
    exchange->close_after = true;
    exchange->linger = exchange->state == EXCHANGE_BODY;
    tell_owner(exchange);
    exchange_fail(exchange, err);
}

/* ---- writing ---- */

/* One piece of `from`; what the socket does not take at once, libwebsockets keeps and sends
 * first. */
static bool exchange_write_piece(struct exchange *exchange, const struct buffer *from, size_t *sent,
                                 enum lws_write_protocol protocol)
{
    size_t size = from->size - *sent;
    if (size > EXCHANGE_WRITE_BYTES)
        size = EXCHANGE_WRITE_BYTES;
    if (!size)
        return true;
    unsigned char *bytes = exchange->server->scratch + LWS_PRE;
    memcpy(bytes, from->data + *sent, size);
    *sent += size;
    exchange->moved_ns = clock_now_ns(); /* the kernel has taken the piece before */
    if (exchange->state == EXCHANGE_ANSWERED)
        listener_set_busy(exchange->server, exchange->connection, false);
    lws_set_timeout(exchange->wsi, PENDING_TIMEOUT_HTTP_CONTENT, EXCHANGE_STALL_S);
    return lws_write(exchange->wsi, bytes, size, protocol) >= 0;
}

static void forget_sent(struct exchange *exchange)
{
    if (exchange->out_sent == exchange->out.size) {
        buffer_clear(&exchange->out);
        exchange->out_sent = 0;
    } else if (exchange->streaming && exchange->out_sent >= EXCHANGE_STREAM_MAX / 2) {
        buffer_drop_front(&exchange->out, exchange->out_sent);
        exchange->out_sent = 0;
    }
    exchange_count_unread(exchange);
}

/* Only when all that libwebsockets kept has gone out. *over: the answer has been sent whole. */
bool exchange_writable(struct exchange *exchange, bool *over)
{
    *over = false;
    if (exchange->dead)
        return false;
    if (exchange->head.size) {
        size_t sent = 0;
        if (!exchange_write_piece(exchange, &exchange->head, &sent, LWS_WRITE_HTTP_HEADERS))
            return false;
        buffer_clear(&exchange->head);
    }
    if (!exchange_write_piece(exchange, &exchange->out, &exchange->out_sent, LWS_WRITE_HTTP))
        return false;
    forget_sent(exchange);
    bool ended = exchange->state == EXCHANGE_ANSWERED && exchange->out.size == 0;
    *over = ended && exchange->flushed;
    exchange->flushed = ended;
    if (exchange_unread(exchange) || lws_partial_buffered(exchange->wsi) || (ended && !*over))
        lws_callback_on_writable(exchange->wsi);
    else
        lws_set_timeout(exchange->wsi, NO_PENDING_TIMEOUT, 0);
    return true;
}
