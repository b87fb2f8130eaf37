/* The way of one call of gRPC to the HTTP API: a pair of sockets, one end of which the listener
 * hands to libwebsockets. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>

struct api_server;
struct connection;
struct grpc_call;
struct rpc_connection;

/* For a call on `connection`; takes what is in *request. NULL: *err says why. */
void *rpc_way_open(struct api_server *server, const struct connection *connection,
                   struct grpc_call *call, struct buffer *request, struct rpc_connection *rpc,
                   struct error *err);
void rpc_way_set_reading(void *way, bool on);
void rpc_way_close(void *way);

void rpc_way_happened(struct rpc_connection *rpc); /* rpc.c: its call was told something */
