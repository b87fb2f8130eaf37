#include "api/listener.h"

#include "api/access.h"
#include "api/connections.h"
#include "api/exchange_impl.h"
#include "api/greeter.h"
#include "api/rpc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/service_manager.h"

#include <libwebsockets.h>

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPTS = 64,          /* in one turn of the loop … */
    ACCEPTS_TLS = 8,       /* … and where each is followed by a handshake, near 1 ms */
    SWEEP_MS = 1000,       /* between looks for connections that have not asked for anything */
    ACCEPT_RETRY_MS = 100, /* when the system has no descriptor or memory for one more */
    EARLY_MS = 50,         /* between looks whether somebody can be let in by now */
    SEND_BUFFER_BYTES =
        256 << 10, /* of the kernel: what a client that does not read gets it to keep */
};

static const uint64_t MS = 1000000;

struct api_listener {
    lws_sorted_usec_list_t retry, sweep, early;
    struct api_server *server;
    struct lws *wsi; /* NULL: closed */
    uint64_t opened_ns;
    bool paused;               /* there is no room */
    bool held;                 /* nobody can be let in yet; or the next process is to have them */
    struct connection *unborn; /* given to libwebsockets, which did not take them */
};

static void listener_set(struct api_listener *listener, bool paused, bool held)
{
    const bool was = listener->paused || listener->held, is = paused || held;
    listener->paused = paused;
    listener->held = held;
    if (listener->wsi && is != was)
        lws_rx_flow_control(listener->wsi, !is);
}

static void listener_pause(struct api_server *server, bool paused)
{
    if (server->listener)
        listener_set(server->listener, paused, server->listener->held);
}

/* Until the node knows who may come in, or has waited long enough for its cluster. */
static void listener_on_early(lws_sorted_usec_list_t *entry)
{
    struct api_listener *listener = lws_container_of(entry, struct api_listener, early);
    struct api_server *server = listener->server;
    const uint64_t age_ns = clock_now_ns() - listener->opened_ns;
    const bool early = access_is_early(server->access) && age_ns < LIMIT_EARLY_MS * MS;
    listener_set(listener, listener->paused, early);
    if (early)
        lws_sul_schedule(server->lws, 0, entry, listener_on_early, EARLY_MS * LWS_US_PER_MS);
}

void listener_leave_to_next(struct api_server *server)
{
    struct api_listener *listener = server->listener;
    lws_sul_cancel(&listener->early);
    if (listener->wsi && service_manager_has(lws_get_socket_fd(listener->wsi)))
        listener_set(listener, listener->paused, true);
}

static void listener_on_retry(lws_sorted_usec_list_t *entry)
{
    listener_pause(lws_container_of(entry, struct api_listener, retry)->server, false);
}

void listener_on_closed(struct api_server *server)
{
    server->listener->wsi = NULL;
}

void listener_stop(struct api_server *server)
{
    if (!server->listener)
        return;
    lws_sul_cancel(&server->listener->retry);
    lws_sul_cancel(&server->listener->sweep);
    lws_sul_cancel(&server->listener->early);
}

void listener_free(struct api_server *server)
{
    if (!server->listener)
        return;
    for (struct connection *at = server->listener->unborn, *next; at; at = next) {
        next = at->next;
        mem_free(at);
    }
    mem_free(server->listener);
    server->listener = NULL;
}

void listener_forget(struct api_server *server, struct connection *connection)
{
    assert(connection);
    connections_remove(&server->connections, connection);
    mem_free(connection);
    server->metrics.connections = server->connections.n;
    listener_pause(server, false);
}

void listener_set_busy(struct api_server *server, struct connection *connection, bool busy)
{
    connections_set_busy(&server->connections, connection, busy);
    if (!busy)
        listener_pause(server, false);
}

/* Its callbacks find nothing of it any more. libwebsockets closes the descriptor in a later turn of
 * the loop; the descriptors that are not the API's (connections.h) hold those of one turn. */
void listener_close_connection(struct api_server *server, struct connection *victim)
{
    struct lws *wsi = victim->wsi;
    struct exchange *exchange = victim->exchange;
    server->metrics.connections_closed++;
    if (victim->greeter)
        greeter_close(victim->greeter);
    if (victim->rpc)
        rpc_close(victim->rpc);
    if (wsi)
        lws_set_opaque_user_data(wsi, NULL);
    if (exchange)
        exchange_free(exchange);
    listener_forget(server, victim);
    if (wsi)
        lws_set_timeout(wsi, PENDING_TIMEOUT_CLOSE_ACK, LWS_TO_KILL_SYNC);
}

/* False: there is none for `client`. */
static bool listener_make_room(struct api_server *server, const struct api_client *client)
{
    struct connection *victim;
    switch (connections_room_for(&server->connections, client, &victim)) {
    case CONNECTIONS_ROOM:
        return true;
    case CONNECTIONS_CLOSE_ONE:
        listener_close_connection(server, victim);
        return true;
    case CONNECTIONS_CLIENT_BUSY:
    case CONNECTIONS_BUSY:
        break;
    }
    return false;
}

static void listener_set_options(int fd)
{
    const int yes = 1, send_bytes = SEND_BUFFER_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes,
               sizeof yes); /* a token is sent when it is there */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
}

/* libwebsockets has not taken it. Where a handshake was refused it ends the connection in a later
 * turn and tells the callback then; where it had no memory, never. */
static void listener_keep_unborn(struct api_listener *listener, struct connection *connection)
{
    connection->unadopted = CONNECTION_UNBORN;
    connection->before = NULL;
    connection->next = listener->unborn;
    if (connection->next)
        connection->next->before = connection;
    listener->unborn = connection;
}

void listener_on_unborn_end(struct api_server *server, struct connection *connection,
                            struct lws *wsi)
{
    assert(!connection->wsi && connection->unadopted != CONNECTION_OVER);
    lws_set_opaque_user_data(wsi, NULL);
    if (connection->unadopted == CONNECTION_NEW) {
        connection->unadopted = CONNECTION_OVER; /* listener_adopt() frees it */
        return;
    }
    if (connection->next)
        connection->next->before = connection->before;
    if (connection->before)
        connection->before->next = connection->next;
    else
        server->listener->unborn = connection->next;
    mem_free(connection);
}

/* NULL: no memory. */
static struct connection *listener_add(struct api_server *server, const struct api_client *client)
{
    struct connection *connection = mem_new(sizeof *connection);
    if (!connection)
        return NULL;
    connection->client = *client;
    connection->head_by_ns = clock_now_ns() + EXCHANGE_HEAD_S * UINT64_C(1000000000);
    connections_add(&server->connections, connection);
    server->metrics.connections = server->connections.n;
    return connection;
}

/* Takes the descriptor. */
static void listener_adopt(struct api_server *server, int fd, const struct api_client *client)
{
    struct connection *connection = listener_add(server, client);
    if (!connection) {
        close(fd);
        return;
    }
    listener_set_options(fd);
    connection->greeter = greeter_open(server, connection, fd);
    if (!connection->greeter)
        listener_forget(server, connection);
}

/* Where libwebsockets does not take it, its callback ends the connection. */
static bool listener_give(struct api_server *server, struct connection *connection, int fd)
{
    lws_adopt_desc_t adopted = {.vh = lws_get_vhost_by_name(server->lws, "api"),
                                .type = LWS_ADOPT_SOCKET | LWS_ADOPT_HTTP |
                                        (connection->is_inner ? 0 : LWS_ADOPT_ALLOW_SSL),
                                .fd.sockfd = fd,
                                .opaque = connection};
    connection->wsi = lws_adopt_descriptor_vhost_via_info(&adopted);
    if (connection->wsi)
        return true;
    connections_remove(&server->connections, connection);
    server->metrics.connections = server->connections.n;
    if (connection->unadopted == CONNECTION_OVER)
        mem_free(connection);
    else
        listener_keep_unborn(server->listener, connection);
    return false;
}

void listener_hand_on(struct api_server *server, struct connection *connection, int fd)
{
    listener_give(server, connection, fd);
}

enum error_code listener_take_inner(struct api_server *server, int fd,
                                    const struct connection *outer, struct error *err)
{
    struct connection *victim;
    enum connections_room room =
        connections_room_for(&server->connections, &outer->client, &victim);
    if (room == CONNECTIONS_CLOSE_ONE && !victim->rpc) { /* which may be the one of this call */
        listener_close_connection(server, victim);
        room = CONNECTIONS_ROOM;
    }
    struct connection *connection =
        room == CONNECTIONS_ROOM ? listener_add(server, &outer->client) : NULL;
    if (!connection) {
        close(fd);
        return error_set(err, ERROR_BUSY,
                         "too many of your requests are under way (limit client-connections): "
                         "wait for one to end");
    }
    connection->is_inner = true;
    connection->is_batch = outer->is_batch;
    connection->acts_for_token = outer->acts_for_token;
    connection->acts_for = outer->acts_for;
    memcpy(connection->arrived, outer->arrived, sizeof connection->arrived);
    return listener_give(server, connection, fd)
               ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "not enough memory for the call");
}

/* In plain text alone: over TLS an answer would cost the handshake that is being saved. What the
 * client has sent already is read, as far as it is there, or the kernel would drop the answer. */
static void listener_answer_busy(int fd)
{
    static const char answer[] =
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n"
        "Retry-After: 1\r\nConnection: close\r\nContent-Length: 166\r\n\r\n"
        "{\"error\":{\"message\":\"too many of your requests are under way (limit "
        "client-connections): wait for one to end\",\"type\":\"rate_limit_error\",\"code\":"
        "\"client_connections\"}}\n";
    char head[4096];
    if (send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 4 && recv(fd, head, sizeof head, MSG_DONTWAIT) > 0; i++) {
    }
}

static void listener_refuse(struct api_server *server, int fd, const struct api_client *client)
{
    if (!server->tls)
        listener_answer_busy(fd);
    close(fd);
    server->metrics.connections_refused++;
    log_line(LOG_INFO, "api", "refused a connection of %s: it has %u requests under way",
             client->share, server->connections.client_max);
}

/* False: no more for now. */
static bool listener_accept(struct api_server *server)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char text[NI_MAXHOST] = "";
    struct connection *victim;
    if (server->connections.n >= server->connections.n_max &&
        !connections_oldest(&server->connections)) {
        listener_pause(server, true);
        return false;
    }
    const int fd = accept4(lws_get_socket_fd(server->listener->wsi), (struct sockaddr *)&address,
                           &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
        return true;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        if ((victim = connections_oldest(&server->connections)))
            listener_close_connection(server, victim);
        listener_pause(server, true);
        lws_sul_schedule(server->lws, 0, &server->listener->retry, listener_on_retry,
                         ACCEPT_RETRY_MS * LWS_US_PER_MS);
        return false;
    }
    if (fd < 0)
        return false;
    getnameinfo((struct sockaddr *)&address, size, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    const struct api_client client = api_client_of_address(text);
    if (listener_make_room(server, &client))
        listener_adopt(server, fd, &client);
    else
        listener_refuse(server, fd, &client);
    return true;
}

void listener_on_readable(struct api_server *server)
{
    const int n = server->tls ? ACCEPTS_TLS : ACCEPTS;
    for (int i = 0; i < n && !server->listener->paused && !server->listener->held; i++) {
        if (!listener_accept(server))
            return;
    }
}

/* libwebsockets gives each byte of a TLS handshake the time of a whole one. */
static void listener_on_sweep(lws_sorted_usec_list_t *entry)
{
    struct api_server *server = lws_container_of(entry, struct api_listener, sweep)->server;
    struct connection *overdue;
    while ((overdue = connections_overdue(&server->connections, clock_now_ns())))
        listener_close_connection(server, overdue);
    lws_sul_schedule(server->lws, 0, entry, listener_on_sweep, SWEEP_MS * LWS_US_PER_MS);
}

enum error_code listener_open(struct api_server *server, int fd, struct error *err)
{
    lws_adopt_desc_t adopted = {.vh = lws_get_vhost_by_name(server->lws, "api"),
                                .type = LWS_ADOPT_RAW_FILE_DESC,
                                .fd.filefd = fd};
    assert(fd >= 0 && !server->listener);
    server->listener = mem_new(sizeof *server->listener);
    if (server->listener) {
        server->listener->server = server;
        server->listener->wsi = lws_adopt_descriptor_vhost_via_info(&adopted);
        if (server->listener->wsi) {
            server->listener->opened_ns = clock_now_ns();
            listener_on_sweep(&server->listener->sweep);
            listener_on_early(&server->listener->early);
            return ERROR_NONE;
        }
    }
    close(fd);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory to listen on %s port %u",
                     server->host, server->port);
}
