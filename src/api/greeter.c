#include "api/greeter.h"

#include "api/exchange_impl.h"
#include "api/greeting.h"
#include "api/listener.h"
#include "api/rpc.h"
#include "base/mem.h"

#include <uv.h>

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

struct greeter {
    uv_poll_t poll; /* first: libuv gives it back */
    struct api_server *server;
    struct connection *connection;
    int fd;
    size_t seen; /* bytes, when it was looked at last */
};
_Static_assert((int)GREETING_MAX <= (int)EXCHANGE_WRITE_BYTES,
               "a greeting fits into server->scratch");

static void greeter_on_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

/* Lets go of the descriptor. */
static int greeter_end(struct greeter *greeter)
{
    const int fd = greeter->fd;
    assert(fd >= 0 && greeter->connection->greeter == greeter);
    greeter->fd = -1;
    greeter->connection->greeter = NULL;
    uv_close((uv_handle_t *)&greeter->poll, greeter_on_closed);
    return fd;
}

void greeter_close(struct greeter *greeter)
{
    close(greeter_end(greeter));
}

/* The kernel tells of the next bytes when there are so many, or at the end. */
static void greeter_want(struct greeter *greeter, size_t n)
{
    const int bytes = (int)n;
    setsockopt(greeter->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

static void greeter_hand_on(struct greeter *greeter, enum greeting_kind greeting)
{
    struct api_server *server = greeter->server;
    struct connection *connection = greeter->connection;
    greeter_want(greeter, 1);
    const int fd = greeter_end(greeter);
    if (greeting == GREETING_RPC)
        rpc_begin(server, connection, fd);
    else
        listener_hand_on(server, connection, fd);
}

static void greeter_on_readable(uv_poll_t *poll, int status, int events)
{
    struct greeter *greeter = (struct greeter *)poll;
    size_t wanted;
    const ssize_t n =
        recv(greeter->fd, greeter->server->scratch, GREETING_MAX, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && !status)
        return;
    if (n <= 0) {
        listener_close_connection(greeter->server, greeter->connection);
        return;
    }
    const enum greeting_kind greeting =
        greeting_read(greeter->server->scratch, (size_t)n, greeter->server->tls, &wanted);
    const bool is_all = (size_t)n == greeter->seen; /* it was told of its end */
    greeter->seen = (size_t)n;
    if (greeting == GREETING_MORE && !is_all)
        greeter_want(greeter, wanted);
    else
        greeter_hand_on(greeter, greeting);
}

struct greeter *greeter_open(struct api_server *server, struct connection *connection, int fd)
{
    struct greeter *greeter = mem_new(sizeof *greeter);
    if (!greeter || uv_poll_init(server->uv_loop, &greeter->poll, fd)) {
        mem_free(greeter);
        close(fd);
        return NULL;
    }
    greeter->server = server;
    greeter->connection = connection;
    greeter->fd = fd;
    uv_poll_start(&greeter->poll, UV_READABLE, greeter_on_readable);
    return greeter;
}
