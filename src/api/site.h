/* Whose page a browser's request comes from. Pure.
 *
 * A browser makes requests for any page that its person visits, and adds what it keeps for this
 * server: the session's cookie. Two headers, which no page can set, say for whose sake: Origin
 * (RFC 6454) and Sec-Fetch-Site (https://www.w3.org/TR/fetch-metadata/). An origin is scheme, host
 * and port; SameSite cookies do not look at the port, so a page of another server on this machine
 * would bring the cookie along. */
#pragma once

#include <stdbool.h>

enum site {
    SITE_PROGRAM, /* neither header: a program, or a browser that only reads over plain HTTP */
    SITE_OWN,     /* this server's page, or a person who typed the address */
    SITE_OTHER,
};

struct site_head { /* NULL: there is no such header */
    const char *host, *origin, *fetch_site;
    bool only_reads; /* GET or HEAD */
};

enum site site_of(const struct site_head *head);

/* Whether a session's cookie counts: what changes something needs a header that says "own". */
bool site_takes_cookie(enum site site, bool only_reads);
/* Whether a Content-Type is JSON, which a page of another origin cannot send without being asked
 * (https://fetch.spec.whatwg.org/#cors-safelisted-request-header); NULL: no. */
bool site_is_json(const char *content_type);
