/* QUIC's sockets, and their turns on the loop. */
#include "base/log.h"
#include "base/mem.h"
#include "mesh/quic_state.h"

#include <assert.h>
#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/quic.h>
#include <openssl/ssl.h>
#include <string.h>
#include <unistd.h>

enum { PASSES_MAX = 8, LOOK_MS = 100, SOCKET_BYTES = 4 << 20 };

/* ---- freeing ------------------------------------------------------------------------------- */

static void quic_endpoint_release(uv_handle_t *handle)
{
    struct quic_socket *socket = handle->data;
    if (--socket->n_open > 0)
        return;
    struct quic_endpoint *endpoint = socket->endpoint;
    struct quic_socket **at = &endpoint->sockets;
    while (*at != socket)
        at = &(*at)->next;
    *at = socket->next;
    close(socket->fd);
    mesh_wake(endpoint->mesh);
    mem_free(socket);
}

static void close_socket(struct quic_socket *socket)
{
    socket->closing = true;
    SSL_free(socket->listener);
    socket->listener = NULL;
    uv_close((uv_handle_t *)&socket->poll, quic_endpoint_release);
    uv_close((uv_handle_t *)&socket->timer, quic_endpoint_release);
}

static void free_streams(struct quic_connection *connection)
{
    struct stream_quic **at = &connection->streams;
    while (*at) {
        struct stream_quic *quic = *at;
        if (quic->closing) {
            *at = quic->next;
            connection->socket->touched = true;
            stream_quic_free(quic);
        } else {
            at = &quic->next;
        }
    }
}

static void free_connections(struct quic_socket *socket)
{
    struct quic_connection **at = &socket->connections;
    while (*at) {
        struct quic_connection *connection = *at;
        free_streams(connection);
        if (quic_connection_is_over(connection)) {
            *at = connection->next;
            quic_connection_free(connection);
        } else {
            at = &connection->next;
        }
    }
}

/* ---- turns --------------------------------------------------------------------------------- */

/* Connections on which nobody has opened a stream yet are like TCP connections that have not
 * greeted. */
static bool may_connect(const struct quic_socket *socket)
{
    uint32_t n = 0;
    for (const struct quic_connection *connection = socket->connections; connection;
         connection = connection->next)
        n += connection->streams == NULL;
    return n < LIMIT_GREETINGS && !socket->endpoint->mesh->closing;
}

static void accept_connections(struct quic_socket *socket)
{
    SSL *ssl;
    while (socket->listener &&
           (ssl = SSL_accept_connection(socket->listener, SSL_ACCEPT_CONNECTION_NO_BLOCK))) {
        if (may_connect(socket))
            quic_connection_new(socket, ssl, true);
        else
            SSL_free(ssl);
    }
    ERR_clear_error();
}

static SSL *engine_of(const struct quic_socket *socket)
{
    if (socket->listener)
        return socket->listener;
    return socket->connections ? socket->connections->ssl : NULL;
}

static void take_turn(struct quic_socket *socket)
{
    for (int pass = 0; pass < PASSES_MAX && socket->touched; pass++) {
        socket->touched = false;
        SSL *engine = engine_of(socket);
        if (engine)
            SSL_handle_events(engine);
        ERR_clear_error();
        accept_connections(socket);
        for (struct quic_connection *connection = socket->connections; connection;
             connection = connection->next)
            quic_connection_turn(connection);
        free_connections(socket);
    }
    if (socket->touched) /* others first */
        mesh_wake(socket->endpoint->mesh);
}

static void quic_endpoint_on_poll(uv_poll_t *poll, int status, int events)
{
    ((struct quic_socket *)poll->data)->touched = true;
}

static void quic_endpoint_on_timer(uv_timer_t *timer)
{
    ((struct quic_socket *)timer->data)->touched = true;
}

static uint64_t until_event(SSL *ssl, uint64_t wait_ms)
{
    int infinite = 1;
    struct timeval span = {0};
    if (!ssl || !SSL_get_event_timeout(ssl, &span, &infinite) || infinite)
        return wait_ms;
    const uint64_t left_ms = (uint64_t)span.tv_sec * 1000 + ((uint64_t)span.tv_usec + 999) / 1000;
    return left_ms < wait_ms ? left_ms : wait_ms;
}

/* Waits for what OpenSSL waits for. */
static void wait_for_events(struct quic_socket *socket)
{
    SSL *engine = engine_of(socket);
    uint64_t wait_ms = until_event(engine, LOOK_MS);
    for (const struct quic_connection *connection = socket->connections; connection;
         connection = connection->next)
        wait_ms = until_event(connection->ssl, wait_ms);
    int events = UV_READABLE;
    if (engine && SSL_net_write_desired(engine))
        events |= UV_WRITABLE;
    if (events != socket->events)
        uv_poll_start(&socket->poll, events, quic_endpoint_on_poll);
    socket->events = events;
    if (engine || socket->connections)
        uv_timer_start(&socket->timer, quic_endpoint_on_timer, wait_ms, 0);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct quic_endpoint *endpoint = prepare->data;
    for (struct quic_socket *socket = endpoint->sockets; socket; socket = socket->next) {
        if (socket->closing)
            continue;
        take_turn(socket);
        const bool needed = socket->connections || (socket->listener && !endpoint->mesh->closing);
        if (needed)
            wait_for_events(socket);
        else
            close_socket(socket);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

enum error_code quic_endpoint_open(struct mesh *mesh, struct quic_endpoint **out, struct error *err)
{
    *out = NULL;
    struct quic_endpoint *endpoint = mem_new(sizeof *endpoint);
    if (!endpoint)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for QUIC");
    endpoint->mesh = mesh;
    uv_prepare_init(mesh->options.loop, &endpoint->prepare);
    endpoint->prepare.data = endpoint;
    uv_prepare_start(&endpoint->prepare, on_prepare);
    *out = endpoint;
    return ERROR_NONE;
}

static void on_endpoint_closed(uv_handle_t *handle)
{
    struct quic_endpoint *endpoint = handle->data;
    struct mesh *mesh = endpoint->mesh;
    mesh->quic = NULL;
    mem_free(endpoint);
    mesh_wake(mesh);
}

void quic_endpoint_close(struct quic_endpoint *endpoint)
{
    if (endpoint->closing || endpoint->sockets) /* each wakes the mesh when it has gone */
        return;
    endpoint->closing = true;
    uv_close((uv_handle_t *)&endpoint->prepare, on_endpoint_closed);
}

static enum error_code no_socket(int fd, struct error *err, const char *words)
{
    const int problem = errno;
    if (fd >= 0)
        close(fd);
    return error_set(err, ERROR_IO, "%s: %s", words, strerror(problem));
}

static socklen_t size_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

/* A UDP socket, bound or connected, with its handles. */
static enum error_code socket_new(struct quic_endpoint *endpoint, const struct sockaddr *address,
                                  bool is_server, struct quic_socket **out, struct error *err)
{
    *out = NULL;
    const int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return no_socket(fd, err, "cannot make a socket");
    const int bytes = SOCKET_BYTES, on = 1; /* a burst must not be lost before the loop looks */
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    if (is_server && address->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (is_server ? bind(fd, address, size_of(address)) : connect(fd, address, size_of(address)))
        return no_socket(fd, err, is_server ? "cannot listen" : "cannot connect");
    struct quic_socket *made = mem_new(sizeof *made);
    if (!made) {
        close(fd);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a socket");
    }
    made->endpoint = endpoint;
    made->fd = fd;
    socklen_t size = sizeof made->local;
    getsockname(fd, (struct sockaddr *)&made->local, &size);
    if (!is_server)
        memcpy(&made->peer, address, size_of(address));
    uv_poll_init_socket(endpoint->mesh->options.loop, &made->poll, fd);
    uv_timer_init(endpoint->mesh->options.loop, &made->timer);
    made->poll.data = made->timer.data = made;
    made->n_open = 2;
    made->touched = true;
    made->next = endpoint->sockets;
    endpoint->sockets = made;
    *out = made;
    return ERROR_NONE;
}

static SSL_CTX *context_of(const struct quic_endpoint *endpoint, bool is_server)
{
    const struct link_security *security = &endpoint->mesh->options.security;
    return security->context(security->self, true, is_server);
}

enum error_code quic_endpoint_listen(struct quic_endpoint *endpoint, const struct sockaddr *address,
                                     uint16_t *port, struct error *err)
{
    struct quic_socket *socket;
    enum error_code code = socket_new(endpoint, address, true, &socket, err);
    if (code)
        return code;
    socket->listener = SSL_new_listener(context_of(endpoint, true), 0);
    const bool good = socket->listener && SSL_set_fd(socket->listener, socket->fd) &&
                      SSL_set_blocking_mode(socket->listener, 0) && SSL_listen(socket->listener);
    if (!good) {
        ERR_clear_error();
        close_socket(socket);
        return error_set(err, ERROR_INTERNAL, "OpenSSL cannot listen for QUIC");
    }
    SSL_set_event_handling_mode(socket->listener, SSL_VALUE_EVENT_HANDLING_MODE_EXPLICIT);
    *port = ntohs(((struct sockaddr_in *)&socket->local)->sin_port); /* at the same place in IPv6 */
    return ERROR_NONE;
}

static bool set_peer(SSL *ssl, const struct sockaddr *address)
{
    BIO_ADDR *peer = BIO_ADDR_new();
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    const bool good = peer && (address->sa_family == AF_INET6
                                   ? BIO_ADDR_rawmake(peer, AF_INET6, &six->sin6_addr,
                                                      sizeof six->sin6_addr, six->sin6_port)
                                   : BIO_ADDR_rawmake(peer, AF_INET, &four->sin_addr,
                                                      sizeof four->sin_addr, four->sin_port));
    const bool set = good && SSL_set1_initial_peer_addr(ssl, peer) == 1;
    BIO_ADDR_free(peer);
    return set;
}

enum error_code quic_endpoint_connect(struct quic_endpoint *endpoint,
                                      const struct sockaddr *address, struct stream **out,
                                      struct error *err)
{
    *out = NULL;
    struct quic_socket *socket;
    enum error_code code = socket_new(endpoint, address, false, &socket, err);
    if (code)
        return code;
    SSL *ssl = SSL_new(context_of(endpoint, false));
    if (!ssl || !SSL_set_fd(ssl, socket->fd) || !set_peer(ssl, address)) {
        SSL_free(ssl);
        ERR_clear_error();
        close_socket(socket);
        return error_set(err, ERROR_INTERNAL, "OpenSSL cannot dial over QUIC");
    }
    SSL_set_connect_state(ssl);
    struct quic_connection *connection = quic_connection_new(socket, ssl, false);
    *out = connection ? stream_quic_new(connection, NULL) : NULL;
    if (!*out) /* a connection without streams ends by itself, a socket without connections, too */
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a connection");
    return ERROR_NONE;
}
