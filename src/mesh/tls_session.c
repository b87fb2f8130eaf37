/* OpenSSL reads and writes through a BIO of our own, straight from `in` and to `out`: its memory
 * BIO would copy once more and clears what it grows. */
#include "mesh/tls_session.h"

#include "base/mem.h"

#include <assert.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

/* ---- the BIO ------------------------------------------------------------------------------- */

static int bio_read(BIO *bio, char *into, size_t size, size_t *n)
{
    struct tls_session *session = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    size_t left = session->in_end - session->in_begin;
    *n = size < left ? size : left;
    if (*n == 0) {
        if (!session->at_end)
            BIO_set_retry_read(bio);
        return 0;
    }
    memcpy(into, session->in + session->in_begin, *n);
    session->in_begin += *n;
    return 1;
}

static int bio_write(BIO *bio, const char *bytes, size_t size, size_t *n)
{
    struct tls_session *session = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    buffer_append(&session->out, bytes, size);
    *n = session->out.failed ? 0 : size;
    return !session->out.failed;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    const struct tls_session *session = BIO_get_data(bio);
    switch (command) {
    case BIO_CTRL_FLUSH:
        return 1;
    case BIO_CTRL_EOF:
        return session->at_end && session->in_begin == session->in_end;
    default:
        return 0;
    }
}

/* Made once, by whoever is first, and kept until the process ends. */
static BIO_METHOD *method;
static CRYPTO_ONCE method_once = CRYPTO_ONCE_STATIC_INIT;

static void free_method(void)
{
    BIO_meth_free(method);
}

static void make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "medley link");
    if (!method || !BIO_meth_set_read_ex(method, bio_read) ||
        !BIO_meth_set_write_ex(method, bio_write) || !BIO_meth_set_ctrl(method, bio_control)) {
        BIO_meth_free(method);
        method = NULL;
        return;
    }
    OPENSSL_atexit(free_method);
}

static bool attach_bio(struct tls_session *session)
{
    BIO *bio = CRYPTO_THREAD_run_once(&method_once, make_method) && method ? BIO_new(method) : NULL;
    if (!bio)
        return false;
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio); /* takes it, for both directions */
    return true;
}

/* ---- life ---------------------------------------------------------------------------------- */

enum error_code tls_session_init(struct tls_session *session, const struct link_security *security,
                                 SSL_CTX *context, bool is_server, struct error *err)
{
    *session = (struct tls_session){.security = security};
    session->in = mem_new(TLS_IN_BYTES);
    session->ssl = SSL_new(context);
    if (!session->in || !session->ssl || !attach_bio(session)) {
        tls_session_deinit(session);
        ERR_clear_error();
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a TLS session");
    }
    SSL_set_mode(session->ssl, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (is_server)
        SSL_set_accept_state(session->ssl);
    else
        SSL_set_connect_state(session->ssl);
    return ERROR_NONE;
}

void tls_session_deinit(struct tls_session *session)
{
    if (!session)
        return;
    SSL_free(session->ssl);
    mem_free(session->in);
    buffer_deinit(&session->out);
    *session = (struct tls_session){0};
}

/* ---- from the network ---------------------------------------------------------------------- */

void tls_session_room(struct tls_session *session, void **into, size_t *size)
{
    if (session->in_begin == session->in_end)
        session->in_begin = session->in_end = 0;
    if (session->in_end == TLS_IN_BYTES && session->in_begin > 0) {
        memmove(session->in, session->in + session->in_begin, session->in_end - session->in_begin);
        session->in_end -= session->in_begin;
        session->in_begin = 0;
    }
    *into = session->in + session->in_end;
    *size = TLS_IN_BYTES - session->in_end;
}

void tls_session_received(struct tls_session *session, size_t size)
{
    assert(size <= TLS_IN_BYTES - session->in_end);
    session->in_end += size;
}

void tls_session_ended(struct tls_session *session)
{
    session->at_end = true;
}

/* ---- OpenSSL's answers ----------------------------------------------------------------------- */

static enum tls_result tls_session_fail(struct tls_session *session, int ssl_error,
                                        struct error *err)
{
    unsigned long library = ERR_peek_error();
    const char *reason = library ? ERR_reason_error_string(library) : NULL;
    const bool cut = ssl_error == SSL_ERROR_SYSCALL ||
                     ERR_GET_REASON(library) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (session->out.failed) {
        error_set(&session->failure, ERROR_NO_MEMORY, "out of memory for the bytes to send");
    } else if (session->at_end && cut) {
        error_set(&session->failure, ERROR_IO, "the other end is gone%s",
                  session->open ? "" : ": it closed during the TLS handshake");
    } else if (!session->heard && session->security->failure) {
        session->failure.code = ERROR_IO;
        session->security->failure(session->ssl, library, session->failure.text,
                                   sizeof session->failure.text);
    } else {
        error_set(&session->failure, ERROR_IO, "TLS: %s", reason ? reason : "failed");
    }
    ERR_clear_error();
    if (err)
        *err = session->failure;
    return TLS_FAILED;
}

static enum tls_result tls_session_result_of(struct tls_session *session, int returned,
                                             struct error *err)
{
    if (returned > 0)
        return TLS_DONE;
    const int code = SSL_get_error(session->ssl, returned);
    switch (code) {
    case SSL_ERROR_WANT_READ:
        return TLS_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_END;
    default: /* `out` takes everything, so OpenSSL never waits to write */
        return tls_session_fail(session, code, err);
    }
}

static bool tls_session_has_failed(const struct tls_session *session, struct error *err)
{
    if (!session->failure.code)
        return false;
    if (err)
        *err = session->failure;
    return true;
}

enum tls_result tls_session_handshake(struct tls_session *session, struct error *err)
{
    if (tls_session_has_failed(session, err))
        return TLS_FAILED;
    if (session->open)
        return TLS_DONE;
    ERR_clear_error();
    const enum tls_result result =
        tls_session_result_of(session, SSL_do_handshake(session->ssl), err);
    session->open = result == TLS_DONE;
    return result;
}

enum tls_result tls_session_read(struct tls_session *session, void *into, size_t size, size_t *n,
                                 struct error *err)
{
    *n = 0;
    if (tls_session_has_failed(session, err))
        return TLS_FAILED;
    assert(session->open && size > 0);
    ERR_clear_error();
    const enum tls_result result =
        tls_session_result_of(session, SSL_read_ex(session->ssl, into, size, n), err);
    session->heard |= result == TLS_DONE;
    return result;
}

enum tls_result tls_session_write(struct tls_session *session, const void *bytes, size_t size,
                                  struct error *err)
{
    if (tls_session_has_failed(session, err))
        return TLS_FAILED;
    assert(session->open && size > 0);
    ERR_clear_error();
    size_t n = 0;
    const enum tls_result result =
        tls_session_result_of(session, SSL_write_ex(session->ssl, bytes, size, &n), err);
    assert(result != TLS_DONE || n == size);
    return result;
}

void tls_session_finish(struct tls_session *session)
{
    if (!session->open || session->failure.code)
        return;
    ERR_clear_error();
    SSL_shutdown(session->ssl);
    ERR_clear_error();
}

/* ---- to the network ------------------------------------------------------------------------ */

size_t tls_session_unsent(const struct tls_session *session)
{
    return session->out.size - session->out_begin;
}

const void *tls_session_output(const struct tls_session *session)
{
    return session->out.data + session->out_begin;
}

void tls_session_sent(struct tls_session *session, size_t size)
{
    assert(size <= tls_session_unsent(session));
    session->out_begin += size;
    if (session->out_begin == session->out.size) {
        buffer_clear(&session->out);
        session->out_begin = 0;
    }
}

void tls_session_swap_output(struct tls_session *session, struct buffer *empty, size_t *begin)
{
    assert(empty->size == 0);
    const struct buffer full = session->out;
    *begin = session->out_begin;
    session->out = *empty;
    session->out_begin = 0;
    *empty = full;
}
