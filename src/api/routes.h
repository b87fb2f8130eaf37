/* The table of what the server answers. */
#pragma once

#include "api/errors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;

enum http_method {
    METHOD_GET,
    METHOD_POST,
    METHOD_DELETE,
    METHOD_HEAD,
    METHOD_OPTIONS,
    METHOD_OTHER,
};

struct route {
    enum http_method method; /* a GET route answers HEAD too */
    const char *path;        /* "…" stands for one name, or at the end for any rest */
    uint32_t scopes;         /* any of these (enum access_scope); 0: for everybody */
    void (*handle)(struct exchange *exchange);
    enum api_shape shape; /* of its errors */
};

const struct route *routes_all(size_t *count);

/* The route of a path and method; NULL: none. *allow is then the methods that the path has, "" for
 * an unknown path. */
const struct route *route_find(enum http_method method, const char *path, const char **allow);

/* Whether it is below /api/: what only this server's own page and programs may ask, not a web page
 * of another origin, --cors or not, unless it shows a token. Bodies are JSON and answers are not
 * kept by caches. NULL: no. */
bool route_is_private(const struct route *route);
/* A private one whose bodies have BRIDGE_BODY_BYTES at most: not those that generate. */
bool route_is_bridge(const struct route *route);
/* Whether models compute for it; NULL: no. */
bool route_computes(const struct route *route);
