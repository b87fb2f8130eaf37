#include "base/mem.h"
#include "mesh/quic_state.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/quic.h>
#include <openssl/ssl.h>
#include <stdio.h>

static const struct stream_impl quic_impl;

static struct stream_quic *stream_quic_of_stream(const struct stream *stream)
{
    assert(stream->impl == &quic_impl);
    return (struct stream_quic *)stream;
}

static void stream_quic_touch(struct stream_quic *quic)
{
    quic->connection->socket->touched = true;
}

void quic_failure(struct quic_connection *connection, SSL *ssl, const char *words,
                  struct error *err)
{
    const unsigned long library = ERR_peek_error();
    const struct link_security *security = &connection->socket->endpoint->mesh->options.security;
    SSL_CONN_CLOSE_INFO info = {0};
    char text[256] = "";
    if (!connection->established && security->failure)
        security->failure(connection->ssl, library, text, sizeof text);
    else if (SSL_get_conn_close_info(connection->ssl, &info, sizeof info) && info.reason &&
             info.reason[0])
        snprintf(text, sizeof text, "%.*s", (int)info.reason_len, info.reason);
    if (!text[0])
        snprintf(text, sizeof text, "%s",
                 library ? ERR_reason_error_string(library) : "the other end is gone");
    ERR_clear_error();
    error_set(err, ERROR_IO, "%s: %s", words, text);
}

/* ---- the table ----------------------------------------------------------------------------- */

static enum stream_result quic_handshake(struct stream *stream, struct error *err)
{
    struct stream_quic *quic = stream_quic_of_stream(stream);
    if (quic->connection->failure.code) {
        *err = quic->connection->failure;
        return STREAM_FAILED;
    }
    if (!quic->connection->established)
        return STREAM_AGAIN;
    if (!quic->ssl && !stream_quic_open(quic)) {
        quic_failure(quic->connection, quic->connection->ssl, "cannot open a stream", err);
        return STREAM_FAILED;
    }
    return STREAM_DONE;
}

static enum stream_result stream_quic_result_of(struct stream_quic *quic, int returned,
                                                const char *words, struct error *err)
{
    struct error unseen;
    if (returned > 0) {
        stream_quic_touch(quic);
        return STREAM_DONE;
    }
    switch (SSL_get_error(quic->ssl, returned)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return STREAM_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return STREAM_END;
    default:
        quic_failure(quic->connection, quic->ssl, words, err ? err : &unseen);
        return STREAM_FAILED;
    }
}

static enum stream_result quic_read(struct stream *stream, void *into, size_t size, size_t *n,
                                    struct error *err)
{
    struct stream_quic *quic = stream_quic_of_stream(stream);
    *n = 0;
    ERR_clear_error();
    return stream_quic_result_of(quic, SSL_read_ex(quic->ssl, into, size, n),
                                 "the connection broke", err);
}

static enum stream_result quic_write(struct stream *stream, const void *bytes, size_t size,
                                     size_t *n, struct error *err)
{
    struct stream_quic *quic = stream_quic_of_stream(stream);
    *n = 0;
    ERR_clear_error();
    return stream_quic_result_of(quic, SSL_write_ex(quic->ssl, bytes, size, n), "cannot send", err);
}

/* Packets leave now; those that came meanwhile are looked at in the socket's turn. */
static enum stream_result quic_flush(struct stream *stream, struct error *err)
{
    struct stream_quic *quic = stream_quic_of_stream(stream);
    SSL_handle_events(quic->ssl);
    ERR_clear_error();
    stream_quic_touch(quic);
    return STREAM_DONE;
}

static void quic_finish(struct stream *stream)
{
    struct stream_quic *quic = stream_quic_of_stream(stream);
    if (!quic->ssl || quic->finished)
        return;
    quic->finished = true;
    SSL_stream_conclude(quic->ssl, 0);
    quic_flush(stream, NULL);
}

static void quic_close(struct stream *stream)
{
    struct stream_quic *quic = stream_quic_of_stream(stream);
    assert(!quic->closing && "a stream is closed once");
    quic->closing = true;
    stream_quic_touch(quic);
}

static SSL *quic_ssl(struct stream *stream)
{
    return stream_quic_of_stream(stream)->connection->ssl;
}

static enum error_code quic_sibling(struct stream *stream, struct stream **out, struct error *err)
{
    *out = stream_quic_new(stream_quic_of_stream(stream)->connection, NULL);
    return *out ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory for a stream");
}

static void quic_addresses(const struct stream *stream, struct stream_addresses *addresses)
{
    const struct quic_socket *socket = stream_quic_of_stream(stream)->connection->socket;
    *addresses = (struct stream_addresses){.local = socket->local, .peer = socket->peer};
}

/* The other end's half of the handshake has begun. */
static bool quic_reached(const struct stream *stream)
{
    const OSSL_HANDSHAKE_STATE state =
        SSL_get_state(stream_quic_of_stream(stream)->connection->ssl);
    return state != TLS_ST_BEFORE && state != TLS_ST_CW_CLNT_HELLO;
}

/* The packets are the connection's, and are counted once for all of its streams. */
static void quic_packets(const struct stream *stream, struct stream_packets *packets)
{
    const struct stream_quic *quic = stream_quic_of_stream(stream);
    const struct quic_connection *connection = quic->connection;
    *packets = (struct stream_packets){.valid = connection->loss.begun};
    if (connection->streams != quic)
        return;
    packets->sent = connection->loss.judged;
    packets->lost = connection->loss.lost;
}

static const struct stream_impl quic_impl = {
    .handshake = quic_handshake,
    .read = quic_read,
    .write = quic_write,
    .flush = quic_flush,
    .finish = quic_finish,
    .close = quic_close,
    .ssl = quic_ssl,
    .sibling = quic_sibling,
    .addresses = quic_addresses,
    .reached = quic_reached,
    .packets = quic_packets,
};

/* ---- life ---------------------------------------------------------------------------------- */

static void prepare_ssl(SSL *ssl)
{
    SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
}

struct stream *stream_quic_new(struct quic_connection *connection, SSL *ssl)
{
    struct stream_quic *quic = mem_new(sizeof *quic);
    if (!quic) {
        SSL_free(ssl);
        return NULL;
    }
    quic->stream.impl = &quic_impl;
    quic->connection = connection;
    quic->ssl = ssl;
    if (ssl)
        prepare_ssl(ssl);
    quic->next = connection->streams;
    connection->streams = quic;
    stream_quic_touch(quic); /* whoever made it is told to begin */
    return &quic->stream;
}

bool stream_quic_open(struct stream_quic *quic)
{
    ERR_clear_error();
    quic->ssl = SSL_new_stream(quic->connection->ssl, SSL_STREAM_FLAG_NO_BLOCK);
    if (quic->ssl)
        prepare_ssl(quic->ssl);
    return quic->ssl != NULL;
}

void stream_quic_free(struct stream_quic *quic)
{
    assert(quic->closing);
    SSL_free(quic->ssl); /* resets the stream unless it was finished */
    stream_tell_closed(&quic->stream);
    mem_free(quic);
}
