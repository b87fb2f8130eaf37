/* Sessions and passes over HTTP (sessions.h): the handlers of their routes. */
#pragma once

#include <stddef.h>

struct api_server;
struct exchange;

enum { SERVER_COOKIE_NAME_MAX = 32 };
void server_session_cookie_name(const struct api_server *server, char *out, size_t size);

void session_get_handle(struct exchange *exchange);    /* GET /api/session */
void session_post_handle(struct exchange *exchange);   /* POST: {"token"} or {"pass"} */
void session_delete_handle(struct exchange *exchange); /* DELETE */
void passes_handle(struct exchange *exchange);         /* POST /api/passes */
