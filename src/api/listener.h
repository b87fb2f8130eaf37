/* Where the API's connections come in: accepts them itself and gives them to libwebsockets, which
 * would spin when there are no descriptors left and cannot make room. On the loop's thread.
 *
 * When there is no room, the connection that has waited longest for its client is closed
 * (connections.h). When none can be, nothing is accepted until one has ended, and clients wait in
 * the kernel's queue. There they wait, too, while nobody can be let in because the tokens are not
 * known (access_is_early()), and for the next process where the service manager holds the socket.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>

struct api_server;
struct connection;
struct lws;

/* After the context is there; takes the descriptor. */
enum error_code listener_open(struct api_server *server, int fd, struct error *err);
/* The callbacks of server_lws.c: somebody wants in; the socket is closed with the context. */
void listener_on_readable(struct api_server *server);
void listener_on_closed(struct api_server *server);
/* The server is stopping: accepts no more, where the service manager listens, too. */
void listener_leave_to_next(struct api_server *server);
void listener_stop(struct api_server *server); /* before the context is destroyed */
void listener_free(struct api_server *server); /* after that */
/* libwebsockets ends what it could not adopt. */
void listener_on_unborn_end(struct api_server *server, struct connection *connection,
                            struct lws *wsi);
/* A connection has gone: frees it. */
void listener_forget(struct api_server *server, struct connection *connection);
/* Ends it and its exchange at once. Not from one of its own callbacks. */
void listener_close_connection(struct api_server *server, struct connection *victim);
/* A connection that speaks HTTP/1.1: to libwebsockets. Takes the descriptor. */
void listener_hand_on(struct api_server *server, struct connection *connection, int fd);
/* The end of a call of gRPC that came by `outer`: one more connection of its client. Takes the
 * descriptor in any case. ERROR_BUSY: there is no room. */
enum error_code listener_take_inner(struct api_server *server, int fd,
                                    const struct connection *outer, struct error *err);
/* It is busy, or waits for its client. */
void listener_set_busy(struct api_server *server, struct connection *connection, bool busy);
