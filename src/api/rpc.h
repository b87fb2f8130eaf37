/* Connections with gRPC (grpc/session.h) on the API's own port: their sockets, their TLS, and the
 * ways on which their calls become requests of the HTTP API. A way is a pair of sockets, one end of
 * which libwebsockets gets as a connection: so calls have the same tokens, limits, records and
 * answers as requests. On the loop's thread. */
#pragma once

#include "base/error.h"

struct api_server;
struct connection;
struct rpc;
struct rpc_connection;

/* After the server's TLS; `*out` is owned. */
enum error_code rpc_open(struct api_server *server, struct rpc **out, struct error *err);
void rpc_free(struct rpc *rpc); /* NULL is fine */

/* Takes the descriptor; closes the connection where it cannot. */
void rpc_begin(struct api_server *server, struct connection *connection, int fd);
/* Ends it and its calls at once. Does not touch the connection afterwards. */
void rpc_close(struct rpc_connection *rpc);
void rpc_stop_all(struct api_server *server);  /* no new calls */
void rpc_close_all(struct api_server *server); /* greeters, too */
