/* One HTTP exchange: a request and its answer. On the loop's thread.
 *
 * The server makes one when a request's headers are there, gathers the body, and calls the route's
 * handler once. The handler answers at once or later, whole or as a stream of events; until the
 * answer is complete it may set an owner, whose `gone` is called (once, and then never again) when
 * the client has left or reads too slowly. After exchange_answer(), exchange_fail() or
 * exchange_stream_end() the exchange is no longer the handler's to touch. */
#pragma once

#include "api/errors.h"
#include "api/stop.h"
#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct access_grant;
struct api_client;
struct api_server;
struct exchange;
struct trace_context;

enum {
    EXCHANGE_STREAM_MAX =
        1024 * 1024, /* bytes that a slow reader may let pile up, if of several events */
};

struct api_server *exchange_server(const struct exchange *exchange);
/* On whose behalf; good as long as the exchange. */
const struct api_client *exchange_client(const struct exchange *exchange);
/* What its token grants; good as long as the exchange. */
const struct access_grant *exchange_grant(const struct exchange *exchange);
struct text exchange_path(const struct exchange *exchange); /* decoded, without the query */
/* Good until the answer begins or an owner is set; size 0: there is none. */
struct text exchange_body(const struct exchange *exchange);
/* Of a token, any of which its route asks for. */
uint32_t exchange_scopes(const struct exchange *exchange);
bool exchange_only_reads(const struct exchange *exchange); /* GET or HEAD */
/* The body becomes the caller's; it stays counted in the server's body_bytes. */
void exchange_take_body(struct exchange *exchange, struct buffer *out);
uint64_t exchange_started_ns(const struct exchange *exchange);
/* The request's x-request-id where it is sane, else one that was drawn; every answer has it in a
 * header. */
const char *exchange_request_id(const struct exchange *exchange, bool *was_given);
/* The trace that the client is in; an empty one: none. */
const struct trace_context *exchange_trace(const struct exchange *exchange);
struct text exchange_last_event_id(const struct exchange *exchange); /* size 0: there is none */

/* A header of the request, while the handler of a request without a body is being called. NULL:
 * there is none; "": it is longer than `size`. */
enum exchange_header {
    EXCHANGE_ACCEPT_ENCODING,
    EXCHANGE_IF_NONE_MATCH,
    EXCHANGE_AUTHORIZATION,
};
const char *exchange_header(const struct exchange *exchange, enum exchange_header which, char *out,
                            size_t size);

/* An argument of the query, "…?name=value", decoded; while the handler of a request without a body
 * is being called. False: it is not there, empty, or too long. */
bool exchange_argument(const struct exchange *exchange, const char *name, char *out, size_t size);

/* The body is no longer needed then, and is freed. */
void exchange_set_owner(struct exchange *exchange, void (*gone)(void *owner), void *owner);

/* One more header of the answer, before it begins: `name` with its colon. Both are copied. */
void exchange_set_header(struct exchange *exchange, const char *name, const char *value);

/* A whole answer; takes what is in *body. */
void exchange_answer(struct exchange *exchange, unsigned status, const char *content_type,
                     struct buffer *body);
void exchange_answer_json(struct exchange *exchange, struct buffer *body);
void exchange_fail(struct exchange *exchange, const struct api_error *err);

/* Server-sent events (HTML standard, section 9.2). */
/* The first event may be a long time coming: begins the stream when that takes longer than the
 * server's waiting_ms, and says so, in comments that clients read over, until
 * exchange_stream_begin() or an error. From then on a comment comes only where no event has for so
 * long. `text` is a static one. */
void exchange_stream_wait(struct exchange *exchange, const char *text);
void exchange_stream_begin(struct exchange *exchange);
/* "id: …" and "data: …" of one event; id NULL: it has none. False: over the limit; the owner's
 * `gone` has been called.
 */
bool exchange_stream_event(struct exchange *exchange, const struct buffer *id,
                           const struct buffer *data);
/* The same with a name: "event: …". */
bool exchange_stream_named(struct exchange *exchange, const char *name, const struct buffer *id,
                           const struct buffer *data);
/* What the client has not taken yet. */
size_t exchange_unread(const struct exchange *exchange);
/* It asks for the head of the answer alone. */
bool exchange_is_head(const struct exchange *exchange);
void exchange_stream_end(struct exchange *exchange);   /* "data: [DONE]" and the end */
void exchange_stream_close(struct exchange *exchange); /* the end alone */

/* An answer of status 200 that comes in pieces. */
void exchange_lines_begin(struct exchange *exchange, const char *content_type);
/* False: over the limit, as with exchange_stream_event(). */
bool exchange_lines_add(struct exchange *exchange, const struct buffer *lines);
void exchange_lines_end(struct exchange *exchange);

/* Between these nothing is sent; then all at once, without waiting for the socket where it takes
 * more. One exchange at a time, which may end meanwhile. */
void exchange_hold(struct exchange *exchange);
void exchange_release_held(struct api_server *server);
