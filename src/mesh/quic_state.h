/* The inside of QUIC: for stream_quic.c (streams), quic_connection.c and quic_endpoint.c (sockets
 * and the loop).
 *
 * OpenSSL does nothing here by itself (explicit event handling): a call notes that its socket was
 * touched, and before the loop waits again each touched socket gets one turn: packets in and out,
 * new connections and streams, and every stream is told to look. What is to be freed is freed then,
 * too. */
#pragma once

#include "mesh/mesh_state.h"
#include "mesh/quic_loss.h"
#include "mesh/stream_quic.h"

struct quic_socket;
struct quic_connection;

struct stream_quic {
    struct stream stream;
    struct quic_connection *connection;
    struct stream_quic *next;
    SSL *ssl; /* NULL until the connection is there */
    bool finished, closing;
};

struct quic_connection {
    struct quic_socket *socket;
    struct quic_connection *next;
    SSL *ssl;
    struct stream_quic *streams;
    bool is_server, established;
    uint64_t deadline_ns; /* without a stream by then it ends; also the end of its shutdown */
    bool ending;
    bool hears_short; /* the packet that came last was of the connection, not of its beginning */
    struct quic_loss loss;
    struct error failure;
};

struct quic_socket {
    struct quic_endpoint *endpoint;
    struct quic_socket *next;
    uv_os_sock_t fd;
    uv_poll_t poll;
    uv_timer_t timer;
    int events;    /* that are waited for */
    SSL *listener; /* NULL: of a connection that was dialled */
    struct quic_connection *connections;
    struct sockaddr_storage local, peer; /* peer: of a dialled connection */
    bool touched, closing;
    uint32_t n_open;
};

struct quic_endpoint {
    struct mesh *mesh;
    uv_prepare_t prepare;
    struct quic_socket *sockets;
    bool closing;
};

/* quic_connection.c */
struct quic_connection *quic_connection_new(struct quic_socket *socket, SSL *ssl,
                                            bool is_server); /* takes ssl */
void quic_connection_turn(struct quic_connection *connection);
bool quic_connection_is_over(struct quic_connection *connection); /* and has said so to its peer */
void quic_connection_free(struct quic_connection *connection);

/* stream_quic.c. `ssl` is taken; NULL: it is made when the connection is established. */
struct stream *stream_quic_new(struct quic_connection *connection, SSL *ssl);
bool stream_quic_open(struct stream_quic *stream); /* makes its ssl. False: it cannot be */
void stream_quic_free(struct stream_quic *stream); /* that is closing */

/* What the library says, after a call that failed. */
void quic_failure(struct quic_connection *connection, SSL *ssl, const char *words,
                  struct error *err);
