/* A node's API from a program: which models there are, forecasts, and completions as they are
 * written, on your libuv loop. It speaks HTTP (docs/http-api.md), plain or with TLS.
 *
 * A `struct medley_client` is one node as one loop sees it. It lives from medley_client_open()
 * until the callback of medley_client_close().
 *
 * A `struct medley_client_request` is your memory, zeroed before its first use. From a successful
 * submit until its callback it belongs to Medley: do not move, reuse or free it. In the callback
 * the results are in it; texts and arrays that it points to are good until the callback returns.
 * What you pass to a submit is copied.
 *
 * A submit answers at once. MEDLEY_ERROR_NONE: the callback will be called, exactly once, and never
 * from within the submit. Anything else: nothing was asked, there will be no callback, and
 * request->error says why. At most MEDLEY_CLIENT_REQUESTS_MAX are in flight; one more is
 * MEDLEY_ERROR_BUSY, and so is one from within the callback of a piece. A callback may be NULL.
 *
 * Errors: MEDLEY_ERROR_INVALID (the request, or the token), NOT_FOUND (no such model), BUSY (a
 * limit of the node, or it stops: try again later), IO (the node cannot be reached, its certificate
 * is not trusted, or the answer broke off), CANCELLED, NO_MEMORY, INTERNAL. The text is the node's
 * own where it gave one.
 *
 * Threads: a client belongs to the thread of its loop. It keeps uv_run() going while requests are
 * in flight or it closes, and not otherwise. Answers are bounded: MEDLEY_CLIENT_ANSWER_MAX bytes of
 * one that is whole, or of one event. A certificate is checked with the authority that is given,
 * else with the system's. Redirects are not followed, so that a token goes nowhere else.
 *
 * Examples: examples/client_chat.c, examples/client_forecast.c. */
#pragma once

#include <medley/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MEDLEY_CLIENT_REQUESTS_MAX = 256,
    MEDLEY_CLIENT_ANSWER_MAX = 16 << 20,
};

struct medley_client;
struct medley_client_request;

struct medley_client_options {
    const char *url;            /* "http://127.0.0.1:8080", "https://tower.local:8080" */
    const char *token;          /* NULL: none */
    const char *authority_path; /* what `medley ca export` wrote; NULL: the system's authorities */
};

struct medley_model {
    const char *id;
    uint64_t created_s; /* since 1970 */
};

struct medley_forecast_stage {
    const char *node, *device;
    uint32_t first_layer, n_layers;
    uint64_t memory_bytes;
};

struct medley_forecast {
    bool possible;
    const char *problem;                              /* why not; NULL: it is possible */
    double decode_tokens_per_s, prefill_tokens_per_s; /* 0: not known */
    const struct medley_forecast_stage *stages;
    uint32_t n_stages;
    const char *json; /* all that the node said */
};

struct medley_client_request {
    void *data; /* yours */

    struct medley_error error;
    unsigned http_status; /* 0: there was no answer */

    const struct medley_model *models; /* of medley_client_models() */
    uint32_t n_models;
    const struct medley_forecast *forecast; /* of medley_client_forecast() */
    char finish_reason[16];                 /* of medley_client_generate(): "stop", "length" … */
    uint64_t prompt_tokens, completion_tokens;

    void *internal; /* Medley's; NULL: not in flight */
};

typedef void (*medley_client_callback)(struct medley_client_request *request);
typedef void (*medley_client_close_callback)(void *data);

/* ---- a client -------------------------------------------------------------------------- */

/* Asks nothing of the node yet. MEDLEY_ERROR_INVALID: a URL that is none of http or https. */
enum medley_error_code medley_client_open(uv_loop_t *loop,
                                          const struct medley_client_options *options,
                                          struct medley_client **out, struct medley_error *err);
/* Cancels what is in flight; `callback` (NULL: none) comes after the last of their callbacks. */
void medley_client_close(struct medley_client *client, medley_client_close_callback callback,
                         void *data);

/* ---- requests -------------------------------------------------------------------------- */

enum medley_error_code medley_client_models(struct medley_client *client,
                                            struct medley_client_request *request,
                                            medley_client_callback callback);

struct medley_forecast_question {
    const char *model;
    uint32_t context_tokens; /* 0: what fits */
    uint32_t streams;        /* 0: 1 */
};
/* Where a model would run in the node's cluster, and how fast. */
enum medley_error_code medley_client_forecast(struct medley_client *client,
                                              const struct medley_forecast_question *question,
                                              struct medley_client_request *request,
                                              medley_client_callback callback);

struct medley_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

struct medley_generation {
    const char *model;
    const struct medley_message *messages; /* of a chat … */
    uint32_t n_messages;
    const char *prompt;    /* … or, where there are none, a text to go on with */
    uint32_t max_tokens;   /* 0: as many as fit */
    const char *more_json; /* an object of further fields of the API, as {"temperature":0}; NULL */
};

/* UTF-8, of whole characters, not ended by a NUL; good until the callback returns. */
struct medley_piece {
    const char *text;
    size_t size;
    bool is_reasoning;
    uint32_t choice; /* of `n`, where more_json asks for several */
};
typedef void (*medley_client_piece_callback)(struct medley_client_request *request,
                                             const struct medley_piece *piece);

/* `piece` is called for each as it comes, `callback` at the end. */
enum medley_error_code medley_client_generate(struct medley_client *client,
                                              const struct medley_generation *generation,
                                              struct medley_client_request *request,
                                              medley_client_piece_callback piece,
                                              medley_client_callback callback);

/* It ends soon, with MEDLEY_ERROR_CANCELLED; the node stops its work. Of one that is not in flight
 * nothing happens. Also from within a callback. */
void medley_client_cancel(struct medley_client_request *request);

#ifdef __cplusplus
}
#endif
