#include "mesh/stream_tcp.h"

#include "base/mem.h"
#include "mesh/tcp_packets.h"
#include "mesh/tls_session.h"

#include <assert.h>
#include <string.h>

enum {
    UNSENT_BYTES_MAX =
        256 * 1024,          /* encrypted and not yet given to the kernel: then writing waits */
    WRITE_BYTES = 64 * 1024, /* encrypted at a time: four records, while they are in the cache */
    TURN_BYTES = 512 * 1024, /* written before the loop looks after others */
};

struct stream_tcp {
    struct stream stream;
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    const struct link_security *security;
    struct tls_session tls;
    struct buffer sending; /* what `write` is about */
    size_t turn_bytes;     /* given to the kernel since the loop's last turn */
    bool connected, reading, writing, finishing, closing;
    struct error failure;
};

static const struct stream_impl tcp_impl;

static struct stream_tcp *stream_tcp_of_stream(const struct stream *stream)
{
    assert(stream->impl == &tcp_impl);
    return (struct stream_tcp *)stream;
}

static enum stream_result stream_tcp_fail(struct stream_tcp *tcp, int problem, const char *words,
                                          struct error *err)
{
    if (!tcp->failure.code)
        error_set(&tcp->failure, ERROR_IO, "%s: %s", words, uv_strerror(problem));
    if (err)
        *err = tcp->failure;
    return STREAM_FAILED;
}

static bool stream_tcp_has_failed(const struct stream_tcp *tcp, struct error *err)
{
    if (tcp->failure.code && err)
        *err = tcp->failure;
    return tcp->failure.code != ERROR_NONE;
}

/* ---- to the network ------------------------------------------------------------------------ */

static void stream_tcp_on_written(uv_write_t *write, int status);

/* What the kernel does not take now is written when it does. */
static enum stream_result write_later(struct stream_tcp *tcp, struct error *err)
{
    size_t begin;
    tls_session_swap_output(&tcp->tls, &tcp->sending, &begin);
    uv_buf_t rest = uv_buf_init(tcp->sending.data + begin, (unsigned)(tcp->sending.size - begin));
    tcp->write.data = tcp;
    const int problem =
        uv_write(&tcp->write, (uv_stream_t *)&tcp->tcp, &rest, 1, stream_tcp_on_written);
    if (problem)
        return stream_tcp_fail(tcp, problem, "cannot send", err);
    tcp->writing = true;
    return STREAM_DONE;
}

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
}

static void finish_if_written(struct stream_tcp *tcp)
{
    if (!tcp->finishing || tcp->writing || tcp->closing || tls_session_unsent(&tcp->tls))
        return;
    tcp->finishing = false;
    uv_shutdown(&tcp->shutdown, (uv_stream_t *)&tcp->tcp, on_shutdown);
}

static enum stream_result send_output(struct stream_tcp *tcp, struct error *err)
{
    if (stream_tcp_has_failed(tcp, err))
        return STREAM_FAILED;
    const size_t unsent = tls_session_unsent(&tcp->tls);
    if (tcp->writing || unsent == 0 || !tcp->connected)
        return STREAM_DONE;
    if (tcp->turn_bytes < TURN_BYTES) {
        uv_buf_t all = uv_buf_init((char *)tls_session_output(&tcp->tls), (unsigned)unsent);
        const int sent = uv_try_write((uv_stream_t *)&tcp->tcp, &all, 1);
        if (sent < 0 && sent != UV_EAGAIN)
            return stream_tcp_fail(tcp, sent, "cannot send", err);
        if (sent > 0) {
            tls_session_sent(&tcp->tls, (size_t)sent);
            tcp->turn_bytes += (size_t)sent;
        }
        if (tls_session_unsent(&tcp->tls) == 0)
            return STREAM_DONE;
    }
    return write_later(tcp, err);
}

static void stream_tcp_on_written(uv_write_t *write, int status)
{
    struct stream_tcp *tcp = write->data;
    tcp->writing = false;
    tcp->turn_bytes = 0;
    buffer_clear(&tcp->sending);
    if (tcp->closing)
        return;
    if (status)
        stream_tcp_fail(tcp, status, "cannot send", NULL);
    else
        send_output(tcp, NULL);
    finish_if_written(tcp);
    stream_tell_ready(&tcp->stream);
}

/* ---- from the network ---------------------------------------------------------------------- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct stream_tcp *tcp = handle->data;
    void *into;
    size_t size;
    tls_session_room(&tcp->tls, &into, &size);
    *room = uv_buf_init(into, (unsigned)size);
}

static bool is_full(struct stream_tcp *tcp)
{
    void *into;
    size_t size;
    tls_session_room(&tcp->tls, &into, &size);
    return size == 0;
}

static void stop_reading(struct stream_tcp *tcp)
{
    uv_read_stop((uv_stream_t *)&tcp->tcp);
    tcp->reading = false;
}

static void on_received(uv_stream_t *handle, ssize_t n, const uv_buf_t *room)
{
    struct stream_tcp *tcp = handle->data;
    if (n == 0)
        return;
    tcp->turn_bytes = 0;
    if (n > 0) {
        tls_session_received(&tcp->tls, (size_t)n);
    } else {
        tls_session_ended(&tcp->tls);
        stop_reading(tcp);
        if (n != UV_EOF && n != UV_ENOBUFS)
            stream_tcp_fail(tcp, (int)n, "the connection broke", NULL);
    }
    stream_tell_ready(&tcp->stream);
    if (!tcp->closing && tcp->reading && is_full(tcp))
        stop_reading(tcp);
}

static enum stream_result stream_tcp_start_reading(struct stream_tcp *tcp, struct error *err)
{
    if (tcp->reading || tcp->tls.at_end || is_full(tcp))
        return STREAM_DONE;
    const int problem = uv_read_start((uv_stream_t *)&tcp->tcp, on_room, on_received);
    if (problem)
        return stream_tcp_fail(tcp, problem, "cannot receive", err);
    tcp->reading = true;
    return STREAM_DONE;
}

/* ---- the table ----------------------------------------------------------------------------- */

static enum stream_result of_tls(enum tls_result result)
{
    switch (result) {
    case TLS_DONE:
        return STREAM_DONE;
    case TLS_AGAIN:
        return STREAM_AGAIN;
    case TLS_END:
        return STREAM_END;
    case TLS_FAILED:
        break;
    }
    return STREAM_FAILED;
}

static enum stream_result tcp_handshake(struct stream *stream, struct error *err)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    if (!tcp->connected)
        return stream_tcp_has_failed(tcp, err) ? STREAM_FAILED : STREAM_AGAIN;
    /* First what TLS says: its alert explains why the connection then broke. */
    enum stream_result result = of_tls(tls_session_handshake(&tcp->tls, err));
    if (result == STREAM_AGAIN && stream_tcp_has_failed(tcp, err))
        return STREAM_FAILED;
    if (send_output(tcp, result == STREAM_FAILED ? NULL : err) == STREAM_FAILED &&
        result != STREAM_FAILED)
        return STREAM_FAILED;
    if (result != STREAM_FAILED && stream_tcp_start_reading(tcp, err) == STREAM_FAILED)
        return STREAM_FAILED;
    if (result == STREAM_END) {
        error_set(err, ERROR_IO, "the other end closed the connection during the handshake");
        return STREAM_FAILED;
    }
    return result;
}

static enum stream_result tcp_read(struct stream *stream, void *into, size_t size, size_t *n,
                                   struct error *err)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    const enum stream_result result = of_tls(tls_session_read(&tcp->tls, into, size, n, err));
    if (result == STREAM_AGAIN &&
        stream_tcp_has_failed(tcp, err)) /* all that arrived before it broke has been read */
        return STREAM_FAILED;
    if (result == STREAM_DONE || result == STREAM_AGAIN) {
        if (stream_tcp_start_reading(tcp, err) == STREAM_FAILED)
            return STREAM_FAILED;
        if (tls_session_unsent(&tcp->tls)) /* TLS answers by itself, for example a key update */
            send_output(tcp, NULL);
    }
    return result;
}

static enum stream_result tcp_write(struct stream *stream, const void *bytes, size_t size,
                                    size_t *n, struct error *err)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    *n = 0;
    if (stream_tcp_has_failed(tcp, err))
        return STREAM_FAILED;
    if (tls_session_unsent(&tcp->tls) >= UNSENT_BYTES_MAX)
        return STREAM_AGAIN;
    const size_t piece = size < WRITE_BYTES ? size : WRITE_BYTES;
    const enum stream_result result = of_tls(tls_session_write(&tcp->tls, bytes, piece, err));
    if (result == STREAM_DONE)
        *n = piece;
    return result;
}

static enum stream_result tcp_flush(struct stream *stream, struct error *err)
{
    return send_output(stream_tcp_of_stream(stream), err);
}

static void tcp_finish(struct stream *stream)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    if (tcp->failure.code || !tcp->connected)
        return;
    tls_session_finish(&tcp->tls);
    tcp->finishing = true;
    send_output(tcp, NULL);
    finish_if_written(tcp);
}

static void stream_tcp_on_closed(uv_handle_t *handle)
{
    struct stream_tcp *tcp = handle->data;
    stream_tell_closed(&tcp->stream);
    tls_session_deinit(&tcp->tls);
    buffer_deinit(&tcp->sending);
    mem_free(tcp);
}

static void tcp_close(struct stream *stream)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    assert(!tcp->closing && "a stream is closed once");
    /* A last alert explains to the peer why it is refused. */
    if (tcp->connected && !tcp->writing)
        send_output(tcp, NULL);
    tcp->closing = true;
    uv_close((uv_handle_t *)&tcp->tcp, stream_tcp_on_closed);
}

static SSL *tcp_ssl(struct stream *stream)
{
    return stream_tcp_of_stream(stream)->tls.ssl;
}

static void tcp_addresses(const struct stream *stream, struct stream_addresses *addresses)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    int size = sizeof addresses->local;
    *addresses = (struct stream_addresses){0};
    uv_tcp_getsockname(&tcp->tcp, (struct sockaddr *)&addresses->local, &size);
    size = sizeof addresses->peer;
    uv_tcp_getpeername(&tcp->tcp, (struct sockaddr *)&addresses->peer, &size);
}

static enum error_code tcp_sibling(struct stream *stream, struct stream **out, struct error *err)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    struct stream_addresses addresses;
    tcp_addresses(stream, &addresses);
    return stream_tcp_connect(tcp->tcp.loop, tcp->security, (struct sockaddr *)&addresses.peer, out,
                              err);
}

static void count_packets(const struct stream *stream, struct stream_packets *packets)
{
    struct stream_tcp *tcp = stream_tcp_of_stream(stream);
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&tcp->tcp, &fd) == 0)
        tcp_packets(fd, packets);
}

static bool tcp_reached(const struct stream *stream)
{
    return stream_tcp_of_stream(stream)->connected;
}

static const struct stream_impl tcp_impl = {
    .handshake = tcp_handshake,
    .read = tcp_read,
    .write = tcp_write,
    .flush = tcp_flush,
    .finish = tcp_finish,
    .close = tcp_close,
    .ssl = tcp_ssl,
    .sibling = tcp_sibling,
    .addresses = tcp_addresses,
    .packets = count_packets,
    .reached = tcp_reached,
};

/* ---- making one ---------------------------------------------------------------------------- */

static enum error_code stream_tcp_make(uv_loop_t *loop, const struct link_security *security,
                                       bool is_server, struct stream_tcp **out, struct error *err)
{
    *out = NULL;
    struct stream_tcp *tcp = mem_new(sizeof *tcp);
    if (!tcp)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a connection");
    tcp->stream.impl = &tcp_impl;
    tcp->security = security;
    SSL_CTX *context = security->context(security->self, false, is_server);
    enum error_code code = tls_session_init(&tcp->tls, security, context, is_server, err);
    if (!code) {
        const int problem = uv_tcp_init(loop, &tcp->tcp);
        if (problem)
            code = error_set(err, ERROR_IO, "cannot make a socket: %s", uv_strerror(problem));
    }
    if (code) {
        tls_session_deinit(&tcp->tls);
        mem_free(tcp);
        return code;
    }
    tcp->tcp.data = tcp;
    *out = tcp;
    return ERROR_NONE;
}

/* After a cut the kernel sends again ever more rarely, up to two minutes apart: a link that lives
 * through one would be deaf for about as long as it was cut. Linux 6.15 and later; elsewhere it
 * stays as it is. */
static void set_options(struct stream_tcp *tcp)
{
    enum { RTO_MAX_MS = 44 }; /* TCP_RTO_MAX_MS, which older headers lack */
    const int most_ms = 1000; /* the least that it takes */
    uv_os_fd_t fd;
    uv_tcp_nodelay(&tcp->tcp, 1);
    if (uv_fileno((uv_handle_t *)&tcp->tcp, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, RTO_MAX_MS, &most_ms, sizeof most_ms);
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct stream_tcp *tcp = connect->data;
    if (tcp->closing)
        return;
    if (status)
        stream_tcp_fail(tcp, status, "cannot connect", NULL);
    else
        tcp->connected = true;
    set_options(tcp);
    stream_tell_ready(&tcp->stream);
}

enum error_code stream_tcp_connect(uv_loop_t *loop, const struct link_security *security,
                                   const struct sockaddr *address, struct stream **out,
                                   struct error *err)
{
    struct stream_tcp *tcp;
    *out = NULL;
    enum error_code code = stream_tcp_make(loop, security, false, &tcp, err);
    if (code)
        return code;
    tcp->connect.data = tcp;
    const int problem = uv_tcp_connect(&tcp->connect, &tcp->tcp, address, on_connected);
    if (problem) {
        stream_close(&tcp->stream, NULL, NULL);
        return error_set(err, ERROR_IO, "cannot connect: %s", uv_strerror(problem));
    }
    *out = &tcp->stream;
    return ERROR_NONE;
}

enum error_code stream_tcp_accept(uv_stream_t *server, const struct link_security *security,
                                  struct stream **out, struct error *err)
{
    struct stream_tcp *tcp;
    *out = NULL;
    enum error_code code = stream_tcp_make(server->loop, security, true, &tcp, err);
    if (code)
        return code;
    const int problem = uv_accept(server, (uv_stream_t *)&tcp->tcp);
    if (problem) {
        stream_close(&tcp->stream, NULL, NULL);
        return error_set(err, ERROR_IO, "cannot accept: %s", uv_strerror(problem));
    }
    tcp->connected = true;
    set_options(tcp);
    *out = &tcp->stream;
    return ERROR_NONE;
}
