#include "trust/tls_stream.h"

#include "base/mem.h"
#include "trust/tls_pair.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

struct tls_acceptor {
    SSL_CTX *context;
    const char *protocol;
};

struct tls_stream {
    SSL *ssl;
    bool has_failed;
};

/* The client's list: a length, a name, and so on. */
static int tls_acceptor_on_protocols(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                                     const unsigned char *offered, unsigned size, void *self)
{
    const struct tls_acceptor *acceptor = self;
    const size_t wanted = strlen(acceptor->protocol);
    for (unsigned at = 0; at + 1 + offered[at] <= size; at += 1U + offered[at]) {
        if (offered[at] != wanted || memcmp(offered + at + 1, acceptor->protocol, wanted) != 0)
            continue;
        *out = offered + at + 1;
        *out_size = offered[at];
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

enum error_code tls_acceptor_open(const struct tls_pair *pair, struct handshake_rate *rate,
                                  const char *protocol, struct tls_acceptor **out,
                                  struct error *err)
{
    struct tls_acceptor *acceptor = mem_new(sizeof *acceptor);
    *out = NULL;
    if (acceptor)
        acceptor->context = SSL_CTX_new(TLS_server_method());
    if (!acceptor || !acceptor->context) {
        tls_acceptor_close(acceptor);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for TLS");
    }
    acceptor->protocol = protocol;
    enum error_code code = tls_server_set_up(acceptor->context, pair, rate, err);
    if (code) {
        tls_acceptor_close(acceptor);
        return code;
    }
    SSL_CTX_set_alpn_select_cb(acceptor->context, tls_acceptor_on_protocols, acceptor);
    SSL_CTX_set_mode(acceptor->context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                            SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                            SSL_MODE_RELEASE_BUFFERS);
    *out = acceptor;
    return ERROR_NONE;
}

void tls_acceptor_close(struct tls_acceptor *acceptor)
{
    if (!acceptor)
        return;
    SSL_CTX_free(acceptor->context);
    mem_free(acceptor);
}

struct tls_stream *tls_stream_open(struct tls_acceptor *acceptor, int fd)
{
    struct tls_stream *stream = mem_new(sizeof *stream);
    if (!stream)
        return NULL;
    stream->ssl = SSL_new(acceptor->context);
    if (!stream->ssl || SSL_set_fd(stream->ssl, fd) != 1) {
        SSL_free(stream->ssl);
        mem_free(stream);
        return NULL;
    }
    SSL_set_accept_state(stream->ssl);
    return stream;
}

void tls_stream_close(struct tls_stream *stream)
{
    if (!stream)
        return;
    if (!stream->has_failed && SSL_is_init_finished(stream->ssl))
        SSL_shutdown(stream->ssl);
    ERR_clear_error();
    SSL_free(stream->ssl);
    mem_free(stream);
}

/* After a call of OpenSSL that moved nothing. */
static enum tls_progress tls_stream_judge(struct tls_stream *stream, int result)
{
    const int why = SSL_get_error(stream->ssl, result);
    ERR_clear_error();
    if (why == SSL_ERROR_WANT_READ)
        return TLS_WANTS_READ;
    if (why == SSL_ERROR_WANT_WRITE)
        return TLS_WANTS_WRITE;
    stream->has_failed = true; /* no further call is allowed then: SSL_get_error(3) */
    return TLS_OVER;
}

enum tls_progress tls_stream_read(struct tls_stream *stream, void *bytes, size_t size, size_t *n)
{
    *n = 0;
    assert(size > 0);
    if (stream->has_failed)
        return TLS_OVER;
    ERR_clear_error();
    const int result = SSL_read_ex(stream->ssl, bytes, size, n);
    return result == 1 ? TLS_MOVED : tls_stream_judge(stream, result);
}

enum tls_progress tls_stream_write(struct tls_stream *stream, const void *bytes, size_t size,
                                   size_t *n)
{
    *n = 0;
    assert(size > 0);
    if (stream->has_failed)
        return TLS_OVER;
    ERR_clear_error();
    const int result = SSL_write_ex(stream->ssl, bytes, size, n);
    return result == 1 ? TLS_MOVED : tls_stream_judge(stream, result);
}
