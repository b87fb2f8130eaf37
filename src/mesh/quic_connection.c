#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/quic_state.h"

#include <openssl/err.h>
#include <openssl/quic.h>
#include <openssl/ssl.h>

#define MS_NS UINT64_C(1000000)

/* SSL_set_msg_callback: a packet's header comes first, then its frames. Packets of the handshake
 * have long headers, and numbers of their own (RFC 9000, sections 12.3 and 17.2). */
static void quic_connection_hear(int is_sent, int version, int type, const void *bytes, size_t size,
                                 SSL *ssl, void *arg)
{
    struct quic_connection *connection = arg;
    (void)version, (void)ssl;
    if (is_sent || !size)
        return;
    if (type == SSL3_RT_QUIC_PACKET)
        connection->hears_short = !(*(const uint8_t *)bytes & 0x80);
    else if (type == SSL3_RT_QUIC_FRAME_FULL && connection->hears_short)
        quic_loss_hear(&connection->loss, bytes, size);
}

struct quic_connection *quic_connection_new(struct quic_socket *socket, SSL *ssl, bool is_server)
{
    struct quic_connection *connection = mem_new(sizeof *connection);
    if (!connection) {
        SSL_free(ssl);
        return NULL;
    }
    connection->socket = socket;
    connection->ssl = ssl;
    connection->is_server = is_server;
    connection->deadline_ns = clock_now_ns() + socket->endpoint->mesh->options.greeting_ms * MS_NS;
    SSL_set_blocking_mode(ssl, 0);
    SSL_set_event_handling_mode(ssl, SSL_VALUE_EVENT_HANDLING_MODE_EXPLICIT);
    SSL_set_default_stream_mode(ssl, SSL_DEFAULT_STREAM_MODE_NONE);
    SSL_set_incoming_stream_policy(
        ssl, is_server ? SSL_INCOMING_STREAM_POLICY_ACCEPT : SSL_INCOMING_STREAM_POLICY_REJECT, 0);
    SSL_set_msg_callback(ssl, quic_connection_hear);
    SSL_set_msg_callback_arg(ssl, connection);
    connection->next = socket->connections;
    socket->connections = connection;
    socket->touched = true;
    return connection;
}

void quic_connection_free(struct quic_connection *connection)
{
    SSL_free(connection->ssl);
    mem_free(connection);
}

static void quic_connection_shake(struct quic_connection *connection)
{
    ERR_clear_error();
    const int returned = SSL_do_handshake(connection->ssl);
    if (returned == 1) {
        connection->established = true;
        return;
    }
    const int code = SSL_get_error(connection->ssl, returned);
    if (code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE)
        return;
    quic_failure(connection, connection->ssl, "cannot connect", &connection->failure);
    if (connection->is_server)
        log_line(LOG_INFO, "mesh", "an incoming connection: %s", connection->failure.text);
}

static void accept_streams(struct quic_connection *connection)
{
    struct mesh *mesh = connection->socket->endpoint->mesh;
    SSL *ssl;
    while (!connection->ending &&
           (ssl = SSL_accept_stream(connection->ssl, SSL_ACCEPT_STREAM_NO_BLOCK))) {
        SSL_set_blocking_mode(ssl, 0);
        struct stream *stream = stream_quic_new(connection, ssl);
        if (stream)
            incoming_stream(mesh, stream);
    }
    ERR_clear_error();
}

void quic_connection_turn(struct quic_connection *connection)
{
    if (!connection->established && !connection->failure.code)
        quic_connection_shake(connection);
    if (connection->established && connection->is_server)
        accept_streams(connection);
    for (struct stream_quic *quic = connection->streams; quic; quic = quic->next)
        stream_tell_ready(&quic->stream);
}

/* Without streams it ends, in order if the peer is there: what was written is sent, then it is
 * told. */
bool quic_connection_is_over(struct quic_connection *connection)
{
    const uint64_t now_ns = clock_now_ns();
    if (connection->streams)
        return false;
    if (!connection->ending) {
        /* A peer that has connected has a while to open its first stream. */
        const bool waits = connection->is_server && !connection->failure.code &&
                           now_ns < connection->deadline_ns &&
                           !connection->socket->endpoint->mesh->closing;
        if (waits)
            return false;
        connection->ending = true;
        connection->deadline_ns = now_ns + LIMIT_LINK_CLOSE_MS * MS_NS;
    }
    const bool late = now_ns >= connection->deadline_ns || connection->failure.code;
    const uint64_t flags = SSL_SHUTDOWN_FLAG_RAPID | SSL_SHUTDOWN_FLAG_NO_BLOCK |
                           (late ? SSL_SHUTDOWN_FLAG_NO_STREAM_FLUSH : 0);
    ERR_clear_error();
    const int done = SSL_shutdown_ex(connection->ssl, flags, NULL, 0);
    SSL_handle_events(connection->ssl);
    ERR_clear_error();
    return done == 1 || late;
}
