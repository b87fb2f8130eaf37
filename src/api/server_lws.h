/* libwebsockets' side of the server: the callback of its one protocol. */
#pragma once

#include <libwebsockets.h>

/* For lws_create_context(), whose `user` must be the api_server. */
extern const struct lws_protocols server_protocols[];
