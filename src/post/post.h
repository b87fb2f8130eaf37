/* Sends small messages to one address by HTTP POST, in their order, from a thread of its own: what
 * webhooks and traces go out through.
 *
 * Nobody waits for it. post_send() puts a message into a queue of fixed size and returns; where the
 * queue is full the message is dropped, and counted. One that does not arrive is tried again after
 * growing pauses, then given up, and counted.
 *
 *     arrived        an answer of 200 to 299
 *     tried again    no connection, no answer in time; 408, 425, 429, 500, 502, 503, 504
 *     given up       any other answer, also one that sends elsewhere (redirects are not followed);
 *                    a certificate that does not hold; too many attempts
 *
 * https:// checks the certificate's chain and name, against the system's authorities or `ca_path`.
 * http:// sends in plain text. Nothing else is spoken. The environment's proxies hold
 * (https_proxy, no_proxy). Of the answer the status alone is used.
 *
 * Threading: any thread, but open and close by the owner. Never log the URL: a webhook's path is a
 * secret, as is what `user:password@` says; post_host() is what people may see. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct post;

/* 0 and NULL: the default. Texts are copied. */
struct post_options {
    const char *url;           /* http://… or https://… */
    const char *content_type;  /* application/json */
    const char *authorization; /* the value of the header Authorization; NULL: none */
    /* Writes one more header, "Name: value", for each body; false: the message is given up. On the
     * post's thread. NULL: none. */
    bool (*sign)(void *self, const struct buffer *body, char *line, size_t size);
    void *sign_self;
    /* Puts `more` behind `into`, so that both go in one request; false: they do not fit together.
     * Under the post's lock: quick. NULL: each goes by itself. */
    bool (*join)(struct buffer *into, const struct buffer *more);
    const char *ca_path;   /* a file of authorities in the place of the system's */
    uint32_t queue_max;    /* messages that wait: POST_QUEUE */
    uint64_t queue_bytes;  /* and all of their bytes: POST_QUEUE_BYTES */
    uint32_t timeout_ms;   /* of one attempt: POST_TIMEOUT_MS */
    uint32_t attempts;     /* of one message: POST_ATTEMPTS */
    uint32_t pause_ms;     /* before the second; then twice as long each time … */
    uint32_t pause_ms_max; /* … up to this */
};
enum {
    POST_QUEUE = 256,
    POST_QUEUE_BYTES = 4 << 20,
    POST_TIMEOUT_MS = 10 * 1000,
    POST_ATTEMPTS = 8,
    POST_PAUSE_MS = 500,
    POST_PAUSE_MS_MAX = 60 * 1000,
};

/* ERROR_INVALID: not such a URL, or a header that is not one line. */
enum error_code post_check_url(const char *url, struct error *err);

/* Connects to nothing yet. ERROR_INVALID, ERROR_NO_MEMORY, ERROR_NOT_FOUND (ca_path), ERROR_IO. */
enum error_code post_open(const struct post_options *options, struct post **out, struct error *err);

/* Takes what is in *body, which is empty then in any case. False: it was dropped. */
bool post_send(struct post *post, struct buffer *body);

/* What came of messages since it was opened; each is in one of sent, dropped, given_up, queued. */
struct post_stats {
    uint64_t sent, dropped, given_up; /* messages */
    uint64_t retries, requests;       /* attempts that were repeated, and first ones */
    uint32_t queued;                  /* the one under way included */
};
struct post_stats post_stats(struct post *post);
const char *post_host(const struct post *post); /* "hooks.example.org:443" */

/* What waits may still go out for so long, without pauses or second attempts; the rest is dropped.
 * NULL is fine. */
void post_close(struct post *post, uint32_t linger_ms);
