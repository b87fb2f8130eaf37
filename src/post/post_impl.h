/* The inside of a post: the queue (post.c), one attempt (post_deliver.c), URLs (post_url.c). */
#pragma once

#include "post/post.h"

#include <curl/curl.h>

#include <pthread.h>
#include <stdatomic.h>

struct post_message {
    struct post_message *next;
    struct buffer body;
    uint32_t n; /* messages that it was joined from */
};

struct post {
    /* constant after open */
    struct post_options options; /* with the defaults; its texts are copies */
    char *host;
    pthread_t thread;
    bool has_thread;

    /* the thread's */
    CURL *curl;
    struct curl_slist *headers;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct post_message *queue, **queue_end; /* the first may be under way */
    uint64_t queue_bytes;
    struct post_stats stats;
    bool closing;
    _Atomic uint64_t give_up_ns; /* while closing: not later; 0: not closing */
};

enum { POST_SIGN_TEXT = 512 };

enum post_outcome { POST_ARRIVED, POST_AGAIN, POST_HOPELESS };

/* post_deliver.c */
enum error_code post_prepare(struct post *post, struct error *err); /* curl and headers */
enum post_outcome post_attempt(struct post *post, const struct buffer *body);

/* post_url.c: the host and port of a URL that holds; the caller frees it. */
enum error_code post_url_host(const char *url, char **host, struct error *err);
