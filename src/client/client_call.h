/* A request of medley/client.h in flight: a transfer of libcurl's, and what is read of its answer.
 * On the loop's thread. */
#pragma once

#include "base/buffer.h"
#include "client/client_events.h"

#include <curl/curl.h>
#include <medley/client.h>
#include <yyjson.h>

struct medley_client;

enum client_kind { CLIENT_MODELS, CLIENT_FORECAST, CLIENT_GENERATE };

struct client_call {
    struct client_call *next, *before; /* the client's */
    struct medley_client *client;
    struct medley_client_request *request;
    medley_client_callback callback;
    medley_client_piece_callback piece;
    enum client_kind kind;
    CURL *curl;
    struct curl_slist *headers;
    char problem[CURL_ERROR_SIZE];
    struct buffer body;   /* that is sent */
    struct buffer answer; /* that is whole, or an error */
    struct client_events events;
    bool has_ended; /* the stream said so */
    bool is_cancelled;
    struct medley_error error; /* that came in the stream, or of memory */
    yyjson_doc *doc;           /* what results point to */
    struct medley_model *models;
    struct medley_forecast forecast;
    struct medley_forecast_stage *stages;
};

/* A GET where the body is empty; takes what is in it. NULL: request->error says why. */
struct client_call *client_call_new(struct medley_client *client, enum client_kind kind,
                                    const char *path, struct buffer *body,
                                    struct medley_client_request *request);
void client_call_free(struct client_call *call);
/* Fills the request; `result` is the transfer's. */
void client_call_finish(struct client_call *call, CURLcode result);
