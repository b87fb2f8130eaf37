/* What the node is asked over HTTP: the requests of docs/control.md, as GET and POST /api/NAME.
 *
 * The API does not know the cluster: whoever opens the server brings a `struct api_bridge`. An
 * answer is a row of lines, a JSON object each, which are sent on as they come. Where the first is
 * an error, the status says so (docs/http-api.md). All on the loop's thread. */
#pragma once

#include "base/error.h"

#include <stddef.h>

struct api_server;
struct buffer;
struct exchange;

enum { BRIDGE_BODY_BYTES = 64 * 1024 };

struct api_bridge_hearer {
    void (*line)(void *self, const char *line, size_t size); /* with its line feed */
    void (*ended)(void *self);                               /* once, unless cancelled before */
    void *self;
};

struct api_bridge { /* zeroed: there is nothing to ask */
    /* Asks `name` with a JSON object, for `actor`, who stands in the record of who did what. Lines
     * may come at once. On failure nothing was asked. *out: NULL where it has ended already. */
    enum error_code (*ask)(void *self, const char *name, const char *body, size_t size,
                           const char *actor, const struct api_bridge_hearer *hearer, void **out,
                           struct error *err);
    void (*cancel)(void *self, void *asked);
    void *self;
};

/* Who asks, for the record of who did what. */
void bridge_name_actor(const struct exchange *exchange, char *out, size_t size);
void bridge_handle(struct exchange *exchange);  /* the routes' handler */
void bridge_end_all(struct api_server *server); /* while the server stops: nobody waits for them */

/* The HTTP status of a line: 200, or that of its error, and then `out` is the error's body. Pure;
 * fuzzed. */
unsigned bridge_status(const char *line, size_t size, struct buffer *out);
