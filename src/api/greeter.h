/* A connection until it is known what it speaks (greeting.h): its first bytes are looked at and
 * left where they are. Then it is libwebsockets' (listener.h) or rpc.h's. On the loop's thread. */
#pragma once

struct api_server;
struct connection;
struct greeter;

/* Owns the descriptor until it hands it on. NULL: it could not; the descriptor is closed. */
struct greeter *greeter_open(struct api_server *server, struct connection *connection, int fd);
void greeter_close(struct greeter *greeter); /* and the descriptor */
