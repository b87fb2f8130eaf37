/* Streams over QUIC (RFC 9000), with OpenSSL: one connection a link, one bidirectional stream a
 * channel, so that the channels do not wait for each other's lost packets.
 *
 * An endpoint is a mesh's sockets: one for each address that it listens on, and one for each
 * connection that it dialled. All on the loop's thread. */
#pragma once

#include "mesh/stream.h"

struct mesh;
struct quic_endpoint;

enum error_code quic_endpoint_open(struct mesh *mesh, struct quic_endpoint **out,
                                   struct error *err);
enum error_code quic_endpoint_listen(struct quic_endpoint *endpoint, const struct sockaddr *address,
                                     uint16_t *port, struct error *err);
enum error_code quic_endpoint_connect(struct quic_endpoint *endpoint,
                                      const struct sockaddr *address, struct stream **out,
                                      struct error *err);

/* When no stream is left. Wakes the mesh, and sets its `quic` to NULL, when everything has been
 * given back. */
void quic_endpoint_close(struct quic_endpoint *endpoint);
