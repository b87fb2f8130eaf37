#include "client/client_call.h"

#include "base/mem.h"
#include "client/client.h"
#include "client/client_json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { CLIENT_CONNECT_MS = 30 * 1000 };

/* ---- what arrives ---------------------------------------------------------------------------- */

static void client_call_on_piece(void *self, const struct medley_piece *piece)
{
    struct client_call *call = self;
    if (call->piece && !call->is_cancelled)
        call->piece(call->request, piece);
}

static bool client_call_on_event(void *self, const char *data, size_t size)
{
    static const char done[] = "[DONE]";
    struct client_call *call = self;
    if (size == sizeof done - 1 && memcmp(data, done, size) == 0) {
        call->has_ended = true;
        return true;
    }
    yyjson_doc *doc = yyjson_read(data, size, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (yyjson_obj_get(root, "error"))
        client_json_read_error(0, root, &call->error);
    else if (yyjson_is_obj(root))
        client_json_read_event(root, call->request, client_call_on_piece, call);
    else
        client_json_fail(&call->error, MEDLEY_ERROR_INTERNAL, "the node sent what is no JSON");
    yyjson_doc_free(doc);
    return !call->error.code && !call->is_cancelled;
}

/* CURLOPT_WRITEFUNCTION: fewer bytes than came end the transfer. */
static size_t client_call_on_bytes(char *bytes, size_t one, size_t n, void *self)
{
    struct client_call *call = self;
    const size_t size = one * n;
    long status = 0;
    curl_easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &status);
    if (call->kind == CLIENT_GENERATE && status == 200) {
        if (client_events_read(&call->events, bytes, size, MEDLEY_CLIENT_ANSWER_MAX,
                               client_call_on_event, call))
            return size;
        if (!call->error.code && !call->is_cancelled)
            client_json_fail(&call->error, MEDLEY_ERROR_NO_MEMORY,
                             "an event of the answer has more than %d bytes",
                             MEDLEY_CLIENT_ANSWER_MAX);
        return 0;
    }
    if (call->answer.size + size <= MEDLEY_CLIENT_ANSWER_MAX)
        buffer_append(&call->answer, bytes, size);
    else
        call->answer.failed = true;
    if (call->answer.failed)
        client_json_fail(&call->error, MEDLEY_ERROR_NO_MEMORY,
                         "the answer has more than %d bytes, or there is no memory for it",
                         MEDLEY_CLIENT_ANSWER_MAX);
    return call->answer.failed ? 0 : size;
}

/* ---- beginning ------------------------------------------------------------------------------- */

static bool client_call_add_header(struct client_call *call, const char *header)
{
    struct curl_slist *more = curl_slist_append(call->headers, header);
    if (more)
        call->headers = more;
    return more;
}

static bool client_call_set_body(struct client_call *call)
{
    if (!call->body.size)
        return true;
    return client_call_add_header(call, "Content-Type: application/json") &&
           client_call_add_header(call, "Expect:") &&
           !curl_easy_setopt(call->curl, CURLOPT_POSTFIELDS, call->body.data) &&
           !curl_easy_setopt(call->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.size);
}

#define CLIENT_SET(option, value) good &= curl_easy_setopt(call->curl, option, value) == CURLE_OK

static bool client_call_set_up(struct client_call *call, const char *path)
{
    const struct medley_client *client = call->client;
    char url[CLIENT_URL_MAX + 64];
    snprintf(url, sizeof url, "%s%s", client->url, path);
    bool good = client_call_set_body(call) &&
                (!client->authorization[0] || client_call_add_header(call, client->authorization));
    CLIENT_SET(CURLOPT_URL, url);
    CLIENT_SET(CURLOPT_PROTOCOLS_STR, "http,https");
    CLIENT_SET(CURLOPT_HTTPHEADER, call->headers);
    CLIENT_SET(CURLOPT_NOSIGNAL, 1L);
    CLIENT_SET(CURLOPT_FOLLOWLOCATION, 0L);
    CLIENT_SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    CLIENT_SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CLIENT_CONNECT_MS);
    CLIENT_SET(CURLOPT_ERRORBUFFER, call->problem);
    CLIENT_SET(CURLOPT_WRITEFUNCTION, client_call_on_bytes);
    CLIENT_SET(CURLOPT_WRITEDATA, call);
    CLIENT_SET(CURLOPT_PRIVATE, call);
    if (client->authority_path[0])
        CLIENT_SET(CURLOPT_CAINFO, client->authority_path);
    return good;
}

struct client_call *client_call_new(struct medley_client *client, enum client_kind kind,
                                    const char *path, struct buffer *body,
                                    struct medley_client_request *request)
{
    struct client_call *call = mem_new(sizeof *call);
    if (call) {
        call->client = client;
        call->kind = kind;
        call->request = request;
        call->body = *body;
        *body = (struct buffer){0};
        call->curl = curl_easy_init();
    }
    if (call && call->curl && client_call_set_up(call, path))
        return call;
    client_call_free(call);
    client_json_fail(&request->error, MEDLEY_ERROR_NO_MEMORY, "not enough memory for the request");
    return NULL;
}

void client_call_free(struct client_call *call)
{
    if (!call)
        return;
    curl_easy_cleanup(call->curl);
    curl_slist_free_all(call->headers);
    buffer_deinit(&call->body);
    buffer_deinit(&call->answer);
    client_events_deinit(&call->events);
    yyjson_doc_free(call->doc);
    mem_free(call->models);
    mem_free(call->stages);
    mem_free(call);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void client_call_read_answer(struct client_call *call)
{
    struct medley_client_request *request = call->request;
    yyjson_val *root;
    call->doc = yyjson_read(call->answer.data ? call->answer.data : "", call->answer.size, 0);
    root = yyjson_doc_get_root(call->doc);
    if (request->http_status != 200) {
        client_json_read_error(request->http_status, root, &request->error);
    } else if (call->kind == CLIENT_MODELS) {
        client_json_read_models(root, &call->models, &request->n_models, &request->error);
        request->models = call->models;
    } else if (client_json_read_forecast(root, &call->forecast, &call->stages, &request->error)) {
        call->forecast.json = call->answer.data;
        request->forecast = &call->forecast;
    }
}

void client_call_finish(struct client_call *call, CURLcode result)
{
    struct medley_client_request *request = call->request;
    long status = 0;
    curl_easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &status);
    request->http_status = status > 0 ? (unsigned)status : 0;
    if (call->is_cancelled)
        client_json_fail(&request->error, MEDLEY_ERROR_CANCELLED, "the request was cancelled");
    else if (call->error.code)
        request->error = call->error;
    else if (result)
        client_json_fail(&request->error,
                         result == CURLE_OUT_OF_MEMORY ? MEDLEY_ERROR_NO_MEMORY : MEDLEY_ERROR_IO,
                         "%s: %s", call->client->url,
                         call->problem[0] ? call->problem : curl_easy_strerror(result));
    else if (call->kind != CLIENT_GENERATE || request->http_status != 200)
        client_call_read_answer(call);
    else if (!call->has_ended)
        client_json_fail(&request->error, MEDLEY_ERROR_IO, "%s: the answer broke off",
                         call->client->url);
}
