/* Streams over TCP with TLS 1.3: one connection each. Nagle's algorithm is off: a frame leaves when
 * it is written.
 *
 * The security must outlive the stream. The stream is stream_close()d also when its handshake
 * failed. */
#pragma once

#include "mesh/stream.h"
#include "trust/security.h"

#include <uv.h>

/* Begins to connect; a failure shows in the handshake. */
enum error_code stream_tcp_connect(uv_loop_t *loop, const struct link_security *security,
                                   const struct sockaddr *address, struct stream **out,
                                   struct error *err);

/* Takes the next connection of a listening socket. ERROR_NO_MEMORY: it still waits to be
 * accepted. */
enum error_code stream_tcp_accept(uv_stream_t *server, const struct link_security *security,
                                  struct stream **out, struct error *err);
