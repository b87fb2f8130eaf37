#include "api/rpc_way.h"

#include "api/exchange_impl.h"
#include "api/listener.h"
#include "base/mem.h"
#include "grpc/call.h"

#include <uv.h>

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RPC_WAY_READ_BYTES = 16 * 1024 };

struct rpc_way {
    uv_poll_t poll; /* first: libuv gives it back */
    int fd;
    struct api_server *server;
    struct rpc_connection *rpc;
    struct grpc_call *call; /* NULL: closed */
    struct buffer request;
    size_t sent;
    bool is_reading;
};

static void rpc_way_on_event(uv_poll_t *poll, int status, int events);

static void rpc_way_watch(struct rpc_way *way)
{
    const int events =
        (way->is_reading ? UV_READABLE : 0) | (way->sent < way->request.size ? UV_WRITABLE : 0);
    if (events)
        uv_poll_start(&way->poll, events, rpc_way_on_event);
    else
        uv_poll_stop(&way->poll);
}

/* What libwebsockets has answered before it was all sent is read all the same. */
static void rpc_way_send(struct rpc_way *way)
{
    const size_t left = way->request.size - way->sent;
    if (!left)
        return;
    const ssize_t n =
        send(way->fd, way->request.data + way->sent, left, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0)
        way->sent += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR)
        way->sent = way->request.size;
    if (way->sent == way->request.size) {
        buffer_deinit(&way->request);
        way->request = (struct buffer){0};
        way->sent = 0;
    }
}

static void rpc_way_read(struct rpc_way *way)
{
    char bytes[RPC_WAY_READ_BYTES];
    struct rpc_connection *rpc = way->rpc;
    const ssize_t n = recv(way->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        grpc_call_receive(way->call, bytes, (size_t)n);
    else
        grpc_call_on_end(way->call); /* which closes the way */
    rpc_way_happened(rpc);
}

static void rpc_way_on_event(uv_poll_t *poll, int status, int events)
{
    struct rpc_way *way = (struct rpc_way *)poll;
    if (events & UV_WRITABLE) {
        rpc_way_send(way);
        rpc_way_watch(way);
    }
    if (status || (events & UV_READABLE))
        rpc_way_read(way);
}

static void rpc_way_on_closed(uv_handle_t *handle)
{
    struct rpc_way *way = (struct rpc_way *)handle;
    buffer_deinit(&way->request);
    mem_free(way);
}

void rpc_way_set_reading(void *self, bool on)
{
    struct rpc_way *way = self;
    way->is_reading = on;
    rpc_way_watch(way);
}

void rpc_way_close(void *self)
{
    struct rpc_way *way = self;
    way->call = NULL;
    way->server->n_ways--;
    uv_close((uv_handle_t *)&way->poll, rpc_way_on_closed);
    close(way->fd);
}

static enum error_code rpc_way_connect(struct api_server *server,
                                       const struct connection *connection, int *fd,
                                       struct error *err)
{
    int pair[2];
    *fd = -1;
    if (server->n_ways >= server->connections.n_max / 4 + 1)
        return error_set(err, ERROR_BUSY,
                         "%u calls are under way, as many as limit connections lets: wait for one "
                         "to end",
                         server->n_ways);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        return error_set(err, ERROR_IO, "no sockets for the call: %s", strerror(errno));
    *fd = pair[0];
    return listener_take_inner(server, pair[1], connection, err);
}

void *rpc_way_open(struct api_server *server, const struct connection *connection,
                   struct grpc_call *call, struct buffer *request, struct rpc_connection *rpc,
                   struct error *err)
{
    struct rpc_way *way = mem_new(sizeof *way);
    int fd = -1;
    enum error_code code = way ? rpc_way_connect(server, connection, &fd, err)
                               : error_set(err, ERROR_NO_MEMORY, "not enough memory for the call");
    if (!code && uv_poll_init(server->uv_loop, &way->poll, fd))
        code = error_set(err, ERROR_IO, "no room in the loop for the call");
    if (code) {
        mem_free(way);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    way->fd = fd;
    way->server = server;
    way->rpc = rpc;
    way->call = call;
    way->request = *request;
    *request = (struct buffer){0};
    way->is_reading = true;
    server->n_ways++;
    rpc_way_watch(way);
    return way;
}
