/* One end of a TLS 1.3 session, without a socket: bytes from the network go in, bytes for the
 * network come out.
 *
 *     network -> tls_session_room(), tls_session_received() -> tls_session_read() -> application
 *     application -> tls_session_write() -> session.out -> network, tls_session_sent()
 *
 * Every call may leave bytes in `out` (handshake messages, alerts, records), also one that failed:
 * send them. Memory: one buffer of TLS_IN_BYTES, and `out`, which grows with what is written before
 * it is sent; whoever writes looks at tls_session_unsent() first.
 *
 * Errors: after TLS_FAILED the session is over; a later call says TLS_FAILED again with the same
 * error. One thread at a time. */
#pragma once

#include "base/buffer.h"
#include "trust/security.h"

enum { TLS_IN_BYTES = 128 * 1024 };

enum tls_result {
    TLS_DONE,   /* something was done */
    TLS_AGAIN,  /* when more has been received */
    TLS_END,    /* the other end has said that it sends no more */
    TLS_FAILED, /* err says why */
};

/* Zeroed: none. */
struct tls_session {
    SSL *ssl;
    const struct link_security *security;
    uint8_t *in;
    size_t in_begin, in_end; /* received, and not yet taken by OpenSSL */
    bool at_end;             /* the network has ended */
    bool open;               /* the handshake is over */
    bool heard;              /* the peer's first bytes have been read: it takes us for a member */
    struct buffer out;
    size_t out_begin;
    struct error failure;
};

/* The security stays the caller's and must outlive the session. */
enum error_code tls_session_init(struct tls_session *session, const struct link_security *security,
                                 SSL_CTX *context, bool is_server, struct error *err);
void tls_session_deinit(struct tls_session *session);

/* Where received bytes go: size is 0 while TLS_IN_BYTES wait to be read. */
void tls_session_room(struct tls_session *session, void **into, size_t *size);
void tls_session_received(struct tls_session *session, size_t size);
void tls_session_ended(
    struct tls_session *session); /* the network has ended: no more will be received */

/* TLS_DONE: the handshake is over on this side (security.h: a client's certificate may still be
 * refused then). */
enum tls_result tls_session_handshake(struct tls_session *session, struct error *err);

/* After the handshake. TLS_DONE: 1 to `size` bytes were read. */
enum tls_result tls_session_read(struct tls_session *session, void *into, size_t size, size_t *n,
                                 struct error *err);

/* After the handshake. TLS_DONE: all of it is encrypted and in `out`; the memory is the caller's
 * again. */
enum tls_result tls_session_write(struct tls_session *session, const void *bytes, size_t size,
                                  struct error *err);

void tls_session_finish(
    struct tls_session *session); /* tells the other end that no more will be written */

size_t tls_session_unsent(const struct tls_session *session);
const void *tls_session_output(const struct tls_session *session); /* tls_session_unsent() bytes */
void tls_session_sent(struct tls_session *session, size_t size);

/* Gives all of `out` away for its empty buffer: for a write that goes on while more is
 * encrypted. */
void tls_session_swap_output(struct tls_session *session, struct buffer *empty, size_t *begin);
