/* TLS on a socket that does not block, from the server's side (trust/tls_pair.h). A stream does not
 * own its descriptor. Threads: none. */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct handshake_rate;
struct tls_acceptor; /* what is common to a server's connections */
struct tls_pair;
struct tls_stream;

/* Of connections that speak `protocol` (ALPN, RFC 7301): others fail. The three must outlive it. */
enum error_code tls_acceptor_open(const struct tls_pair *pair, struct handshake_rate *rate,
                                  const char *protocol, struct tls_acceptor **out,
                                  struct error *err);
void tls_acceptor_close(struct tls_acceptor *acceptor); /* after its streams; NULL is fine */

enum tls_progress {
    TLS_MOVED,       /* *n bytes, at least one */
    TLS_WANTS_READ,  /* again when the socket can be read … */
    TLS_WANTS_WRITE, /* … or written */
    TLS_OVER,        /* it has ended, or failed */
};

struct tls_stream *tls_stream_open(struct tls_acceptor *acceptor, int fd); /* NULL: no memory */
void tls_stream_close(struct tls_stream *stream); /* says goodbye if it can; NULL is fine */
/* The handshake is made by the way. */
enum tls_progress tls_stream_read(struct tls_stream *stream, void *bytes, size_t size, size_t *n);
enum tls_progress tls_stream_write(struct tls_stream *stream, const void *bytes, size_t size,
                                   size_t *n);
