/* A client (medley/client.h): libcurl's transfers on the caller's loop. */
#pragma once

#include <curl/curl.h>
#include <medley/client.h>

struct client_call;

enum { CLIENT_URL_MAX = 512, CLIENT_TOKEN_MAX = 512, CLIENT_PATH_MAX = 4096 };

struct medley_client {
    uv_loop_t *loop;
    uv_timer_t timer; /* libcurl's */
    uv_timer_t later; /* for calls that were cancelled */
    unsigned n_handles;
    CURLM *multi;
    char url[CLIENT_URL_MAX];                  /* without a slash at its end */
    char authorization[CLIENT_TOKEN_MAX + 32]; /* a header; "": none */
    char authority_path[CLIENT_PATH_MAX];
    struct client_call *calls;
    unsigned n_calls;
    bool is_closing;
    medley_client_close_callback close_callback;
    void *close_data;
};
