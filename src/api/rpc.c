#include "api/rpc.h"

#include "api/exchange_impl.h"
#include "api/greeter.h"
#include "api/listener.h"
#include "api/rpc_way.h"
#include "api/server_tls.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "grpc/session.h"
#include "trust/tls_stream.h"

#include <uv.h>

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RPC_READ_BYTES = 16 * 1024, /* a whole record of TLS: no poll tells of a part that is left */
    RPC_READS = 4,              /* in one turn of the loop */
    RPC_OUT_BYTES = 32 * 1024,  /* gathered for one write */
};

struct rpc {
    struct api_server *server;
    struct tls_acceptor *acceptor; /* NULL: plain text */
    struct grpc_memory memory;
};

struct rpc_connection {
    uv_poll_t poll; /* first */
    uv_timer_t timer;
    unsigned n_handles; /* that libuv has */
    struct api_server *server;
    struct connection *connection;
    int fd;
    struct tls_stream *tls; /* NULL: plain text */
    struct grpc_session *session;
    struct buffer out;
    size_t out_sent;
    bool is_busy, is_inside, wants_write, has_closed;
};

/* ---- the room -------------------------------------------------------------------------------- */

enum error_code rpc_open(struct api_server *server, struct rpc **out, struct error *err)
{
    struct rpc *rpc = mem_new(sizeof *rpc);
    *out = NULL;
    if (!rpc)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the server");
    rpc->server = server;
    rpc->memory.max = server->limits.bodies;
    enum error_code code = server_tls_accept_rpc(server->tls, &rpc->acceptor, err);
    if (code)
        mem_free(rpc);
    else
        *out = rpc;
    return code;
}

void rpc_free(struct rpc *rpc)
{
    if (!rpc)
        return;
    assert(!rpc->memory.used);
    tls_acceptor_close(rpc->acceptor);
    mem_free(rpc);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void rpc_on_handle_closed(uv_handle_t *handle)
{
    struct rpc_connection *rpc = handle->data;
    assert(rpc->n_handles > 0);
    if (--rpc->n_handles)
        return;
    buffer_deinit(&rpc->out);
    mem_free(rpc);
}

void rpc_close(struct rpc_connection *rpc)
{
    assert(!rpc->has_closed && !rpc->is_inside);
    rpc->has_closed = true;
    rpc->connection->rpc = NULL;
    grpc_session_free(rpc->session);
    rpc->session = NULL;
    tls_stream_close(rpc->tls);
    uv_close((uv_handle_t *)&rpc->poll, rpc_on_handle_closed);
    uv_close((uv_handle_t *)&rpc->timer, rpc_on_handle_closed);
    close(rpc->fd);
}

static void rpc_end(struct rpc_connection *rpc)
{
    struct connection *connection = rpc->connection;
    struct api_server *server = rpc->server;
    rpc_close(rpc);
    listener_forget(server, connection);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static enum tls_progress rpc_judge(ssize_t moved, size_t *n)
{
    *n = moved > 0 ? (size_t)moved : 0;
    if (moved > 0)
        return TLS_MOVED;
    return moved < 0 && (errno == EAGAIN || errno == EINTR) ? TLS_WANTS_READ : TLS_OVER;
}

static enum tls_progress rpc_read(struct rpc_connection *rpc, void *bytes, size_t size, size_t *n)
{
    return rpc->tls ? tls_stream_read(rpc->tls, bytes, size, n)
                    : rpc_judge(recv(rpc->fd, bytes, size, MSG_DONTWAIT), n);
}

static enum tls_progress rpc_write(struct rpc_connection *rpc, const void *bytes, size_t size,
                                   size_t *n)
{
    if (rpc->tls)
        return tls_stream_write(rpc->tls, bytes, size, n);
    const enum tls_progress progress =
        rpc_judge(send(rpc->fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL), n);
    return progress == TLS_WANTS_READ ? TLS_WANTS_WRITE : progress;
}

/* Frames put together, so that they go in one piece. */
static void rpc_gather(struct rpc_connection *rpc)
{
    const uint8_t *bytes;
    size_t n;
    if (rpc->out_sent == rpc->out.size) {
        buffer_clear(&rpc->out);
        rpc->out_sent = 0;
    }
    while (rpc->out.size < RPC_OUT_BYTES &&
           (n = grpc_session_send(rpc->session, &bytes, clock_now_ns())) > 0)
        buffer_append(&rpc->out, bytes, n);
}

/* False: it is over. */
static bool rpc_send(struct rpc_connection *rpc)
{
    rpc->wants_write = false;
    for (;;) {
        size_t n;
        rpc_gather(rpc);
        if (rpc->out.failed)
            return false;
        if (rpc->out_sent == rpc->out.size)
            return true;
        const enum tls_progress progress =
            rpc_write(rpc, rpc->out.data + rpc->out_sent, rpc->out.size - rpc->out_sent, &n);
        rpc->out_sent += n;
        if (progress == TLS_OVER)
            return false;
        rpc->wants_write = progress == TLS_WANTS_WRITE;
        if (progress != TLS_MOVED)
            return true;
    }
}

/* False: it is over. */
static bool rpc_receive(struct rpc_connection *rpc)
{
    uint8_t bytes[RPC_READ_BYTES];
    size_t n;
    enum tls_progress progress = TLS_MOVED;
    for (unsigned i = 0; i < RPC_READS && progress == TLS_MOVED; i++) {
        progress = rpc_read(rpc, bytes, sizeof bytes, &n);
        if (progress == TLS_MOVED && !grpc_session_receive(rpc->session, bytes, n, clock_now_ns()))
            return false;
    }
    rpc->wants_write |= progress == TLS_WANTS_WRITE;
    return progress != TLS_OVER;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void rpc_on_event(uv_poll_t *poll, int status, int events);

static void rpc_on_time(uv_timer_t *timer);

static void rpc_set_timer(struct rpc_connection *rpc)
{
    const uint64_t now_ns = clock_now_ns();
    const uint64_t next_ns = grpc_session_next_ns(rpc->session, now_ns);
    if (next_ns == UINT64_MAX)
        uv_timer_stop(&rpc->timer);
    else
        uv_timer_start(&rpc->timer, rpc_on_time,
                       next_ns > now_ns ? (next_ns - now_ns) / 1000000 + 1 : 0, 0);
}

static void rpc_note_use(struct rpc_connection *rpc)
{
    const bool is_busy = grpc_session_n_calls(rpc->session) > 0;
    if (grpc_session_has_called(rpc->session))
        rpc->connection->head_by_ns = 0;
    if (is_busy != rpc->is_busy)
        listener_set_busy(rpc->server, rpc->connection, is_busy);
    rpc->is_busy = is_busy;
}

/* After anything has happened to it; it may be gone afterwards. */
static void rpc_settle(struct rpc_connection *rpc, bool goes_on)
{
    rpc->is_inside = false;
    if (!goes_on || !rpc_send(rpc) ||
        (grpc_session_is_over(rpc->session) && rpc->out_sent == rpc->out.size)) {
        rpc_end(rpc);
        return;
    }
    rpc_note_use(rpc);
    rpc_set_timer(rpc);
    uv_poll_start(&rpc->poll, UV_READABLE | (rpc->wants_write ? UV_WRITABLE : 0), rpc_on_event);
}

static void rpc_on_event(uv_poll_t *poll, int status, int events)
{
    struct rpc_connection *rpc = (struct rpc_connection *)poll;
    rpc->is_inside = true;
    rpc_settle(rpc, !status && rpc_receive(rpc));
}

static void rpc_on_time(uv_timer_t *timer)
{
    struct rpc_connection *rpc = timer->data;
    rpc->is_inside = true;
    grpc_session_tick(rpc->session, clock_now_ns());
    rpc_settle(rpc, true);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void *rpc_open_way(void *self, struct grpc_call *call, struct buffer *request,
                          struct error *err)
{
    struct rpc_connection *rpc = self;
    return rpc_way_open(rpc->server, rpc->connection, call, request, rpc, err);
}

void rpc_way_happened(struct rpc_connection *rpc)
{
    rpc_settle(rpc, true);
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* At which it arrived: its calls may name it as their host. */
static void rpc_note_address(struct rpc_connection *rpc)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char *text = rpc->connection->arrived;
    if (getsockname(rpc->fd, (struct sockaddr *)&address, &size) == 0)
        getnameinfo((struct sockaddr *)&address, size, text, CONNECTION_ADDRESS_MAX, NULL, 0,
                    NI_NUMERICHOST);
}

static bool rpc_init(struct rpc_connection *rpc)
{
    const struct grpc_door door = {rpc_open_way, rpc_way_set_reading, rpc_way_close, rpc};
    struct rpc *room = rpc->server->rpc;
    if (room->acceptor && !(rpc->tls = tls_stream_open(room->acceptor, rpc->fd)))
        return false;
    rpc->session = grpc_session_new(&door, &room->memory, clock_now_ns());
    return rpc->session && uv_poll_init(rpc->server->uv_loop, &rpc->poll, rpc->fd) == 0;
}

void rpc_begin(struct api_server *server, struct connection *connection, int fd)
{
    struct rpc_connection *rpc = mem_new(sizeof *rpc);
    if (rpc) {
        rpc->server = server;
        rpc->connection = connection;
        rpc->fd = fd;
    }
    if (!rpc || !rpc_init(rpc)) {
        if (rpc) {
            grpc_session_free(rpc->session);
            tls_stream_close(rpc->tls);
        }
        mem_free(rpc);
        close(fd);
        listener_forget(server, connection);
        return;
    }
    uv_timer_init(server->uv_loop, &rpc->timer);
    rpc_note_address(rpc);
    rpc->poll.data = rpc->timer.data = rpc;
    rpc->n_handles = 2;
    connection->rpc = rpc;
    if (server->stopping)
        grpc_session_stop(rpc->session);
    rpc_settle(rpc, true);
}

void rpc_stop_all(struct api_server *server)
{
    for (struct connection *at = server->connections.first, *next; at; at = next) {
        next = at->next;
        if (!at->rpc)
            continue;
        grpc_session_stop(at->rpc->session);
        rpc_settle(at->rpc, true);
    }
}

void rpc_close_all(struct api_server *server)
{
    for (struct connection *at = server->connections.first, *next; at; at = next) {
        next = at->next;
        if (at->rpc || at->greeter)
            listener_close_connection(server, at);
    }
}
