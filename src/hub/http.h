/* HTTP for pulling: GET of ranges and of small texts by libcurl, with what has to hold of URLs,
 * redirects, answers and tokens.
 *
 * https:// checks the certificate's chain and name, against the system's authorities or those of
 * SSL_CERT_FILE. http:// is taken for this machine's own addresses, for a mirror that the
 * environment names, and where `plain` says so. A redirect never leads from https to http. A token
 * goes to the host that it was meant for and to no other, so not along with a redirect, and never
 * over http to another machine. Proxies are those of the environment (https_proxy, HTTPS_PROXY,
 * http_proxy, ALL_PROXY, NO_PROXY), as libcurl reads them.
 *
 * One thread for each `struct http`. No URL is logged or put into an error: one may be signed. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <curl/curl.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    HTTP_URL = 4096, /* redirects lead to long ones */
    HTTP_HOST = 256,
    HTTP_TOKEN = 512,
    HTTP_REDIRECTS = 8,
    HTTP_CONNECT_MS = 20 * 1000,
    HTTP_STALL_S = 30,       /* without a byte: the connection is given up */
    HTTP_RETRY_AFTER_S = 600 /* a server may ask for so long a pause, and not for more */
};

/* Of the last answer's head, redirects left behind. */
struct http_head {
    long status;
    bool has_range; /* Content-Range: bytes FROM-TO/TOTAL */
    uint64_t from, to, total;
    bool has_length;
    uint64_t length;
    uint32_t retry_after_s; /* 0: none was said */
    char etag[256];         /* "": none, or a weak one, which says nothing of bytes */
    char linked_etag[256];  /* X-Linked-Etag: of any answer on the way */
    char next[HTTP_URL];    /* Link: <…>; rel="next" */
};

/* One line of a head; "HTTP/…" begins a new one. Any bytes. */
void http_head_line(struct http_head *head, const char *line, size_t size);

struct http_place {         /* a server */
    char token[HTTP_TOKEN]; /* "": none */
    bool plain;             /* http:// is wanted */
    /* Any thread sets it: what is under way ends soon, and nothing more is asked. NULL: never. */
    const atomic_bool *stop;
};

/* HTTPS, or HTTP where that is all right. ERROR_INVALID says why not. */
enum error_code http_url_check(const char *url, bool plain, struct error *err);
/* "HOST:PORT" of a URL for people's eyes; "?": it is none. */
void http_url_host(const char *url, char out[HTTP_HOST]);
/* Whether a token may go there: HTTPS, or this machine. */
bool http_url_is_private(const char *url);

/* Readies a handle for a GET: everything but what takes the body. `accept`: NULL for any. to ==
 * from: no range. Heads go to *head, which is cleared. *headers are the handle's until it is used
 * no more; then curl_slist_free_all(). */
struct http_get {
    const char *url;
    const struct http_place *place;
    const char *accept;
    uint64_t from, to; /* bytes [from, to) */
    struct http_head *head;
    struct curl_slist **headers;
    char *problem; /* CURL_ERROR_SIZE bytes */
};
enum error_code http_prepare(CURL *curl, const struct http_get *get, struct error *err);

/* What an answer, or that there was none, means. */
enum http_outcome { HTTP_FINE, HTTP_AGAIN, HTTP_HOPELESS };
enum http_outcome http_judge(CURLcode code, long status);
/* A text for what is not fine. `what`: "the list of files of ORG/REPO". */
enum error_code http_explain(CURLcode code, const struct http_get *get, const char *what,
                             struct error *err);

/* So long a pause before the next attempt, the first having number 1. */
uint32_t http_pause_ms(uint32_t attempt, uint32_t retry_after_s);
/* Tells people that attempt `attempt` of `attempts` failed, and that another follows. */
void http_tell_again(const struct error *err, uint32_t attempt, uint32_t attempts,
                     uint32_t pause_ms);

/* A small text, tried again as often as makes sense. ERROR_NOT_FOUND: 404. ERROR_INVALID: larger
 * than bytes_max. `head` may be NULL. */
enum error_code http_text(const char *url, const struct http_place *place, const char *accept,
                          size_t bytes_max, const char *what, struct buffer *out,
                          struct http_head *head, struct error *err);
