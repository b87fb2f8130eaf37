#include "client/client.h"

#include "base/mem.h"
#include "client/client_call.h"
#include "client/client_json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- libcurl's sockets and timer on the loop (https://curl.se/libcurl/c/multi_socket.html) ------
 */

struct client_socket {
    uv_poll_t poll; /* first: libuv gives it back */
    struct medley_client *client;
    curl_socket_t socket;
};

static void client_look(struct medley_client *client);

static void client_on_handle_closed(struct medley_client *client)
{
    assert(client->n_handles > 0);
    if (--client->n_handles)
        return;
    const medley_client_close_callback callback = client->close_callback;
    void *data = client->close_data;
    mem_free(client);
    curl_global_cleanup();
    if (callback)
        callback(data);
}

static void client_on_socket_closed(uv_handle_t *handle)
{
    struct client_socket *socket = (struct client_socket *)handle;
    struct medley_client *client = socket->client;
    mem_free(socket);
    client_on_handle_closed(client);
}

static void client_on_timer_closed(uv_handle_t *handle)
{
    client_on_handle_closed(handle->data);
}

static void client_on_event(uv_poll_t *poll, int status, int events)
{
    struct client_socket *socket = (struct client_socket *)poll;
    struct medley_client *client = socket->client;
    int left, what = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
                     (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0) |
                     (status ? CURL_CSELECT_ERR : 0);
    curl_multi_socket_action(client->multi, socket->socket, what, &left);
    client_look(client);
}

static struct client_socket *client_socket_open(struct medley_client *client, curl_socket_t fd)
{
    struct client_socket *socket = mem_new(sizeof *socket);
    if (!socket || uv_poll_init_socket(client->loop, &socket->poll, fd)) {
        mem_free(socket);
        return NULL;
    }
    socket->client = client;
    socket->socket = fd;
    client->n_handles++;
    curl_multi_assign(client->multi, fd, socket);
    return socket;
}

/* CURLMOPT_SOCKETFUNCTION */
static int client_on_socket(CURL *curl, curl_socket_t fd, int what, void *self, void *known)
{
    struct client_socket *socket = known;
    if (what == CURL_POLL_REMOVE) {
        if (socket)
            uv_close((uv_handle_t *)&socket->poll, client_on_socket_closed);
        curl_multi_assign(((struct medley_client *)self)->multi, fd, NULL);
        return 0;
    }
    if (!socket && !(socket = client_socket_open(self, fd)))
        return -1;
    uv_poll_start(&socket->poll,
                  (what & CURL_POLL_IN ? UV_READABLE : 0) |
                      (what & CURL_POLL_OUT ? UV_WRITABLE : 0),
                  client_on_event);
    return 0;
}

static void client_on_time(uv_timer_t *timer)
{
    struct medley_client *client = timer->data;
    int left;
    curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &left);
    client_look(client);
}

/* CURLMOPT_TIMERFUNCTION: -1 ends it. */
static int client_on_timeout(CURLM *multi, long ms, void *self)
{
    struct medley_client *client = self;
    if (ms < 0)
        uv_timer_stop(&client->timer);
    else
        uv_timer_start(&client->timer, client_on_time, (uint64_t)ms, 0);
    return 0;
}

/* ---- calls that end -------------------------------------------------------------------------- */

static void client_remove(struct client_call *call)
{
    struct medley_client *client = call->client;
    *(call->before ? &call->before->next : &client->calls) = call->next;
    if (call->next)
        call->next->before = call->before;
    assert(client->n_calls > 0);
    client->n_calls--;
    curl_multi_remove_handle(client->multi, call->curl);
}

static void client_deliver(struct client_call *call, CURLcode result)
{
    struct medley_client_request *request = call->request;
    client_remove(call);
    client_call_finish(call, result);
    request->internal = NULL;
    if (call->callback)
        call->callback(request); /* which may free it */
    client_call_free(call);
}

static void client_shut(struct medley_client *client)
{
    curl_multi_cleanup(client->multi); /* its last sockets are given up within */
    uv_close((uv_handle_t *)&client->timer, client_on_timer_closed);
    uv_close((uv_handle_t *)&client->later, client_on_timer_closed);
}

static struct client_call *client_find_cancelled(const struct medley_client *client)
{
    struct client_call *call = client->calls;
    while (call && !call->is_cancelled)
        call = call->next;
    return call;
}

/* What has ended is told; callbacks may ask, cancel and close. */
static void client_look(struct medley_client *client)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct client_call *call = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        const CURLcode result = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&call);
        client_deliver(call, result);
    }
}

static void client_on_later(uv_timer_t *timer)
{
    struct medley_client *client = timer->data;
    struct client_call *call;
    while ((call = client_find_cancelled(client)))
        client_deliver(call, CURLE_ABORTED_BY_CALLBACK);
    if (client->is_closing && !client->calls)
        client_shut(client);
}

static void client_do_later(struct medley_client *client)
{
    uv_timer_start(&client->later, client_on_later, 0, 0);
}

void medley_client_cancel(struct medley_client_request *request)
{
    struct client_call *call = request->internal;
    if (!call)
        return;
    call->is_cancelled = true;
    client_do_later(call->client);
}

/* ---- a client -------------------------------------------------------------------------------- */

static bool client_take_options(struct medley_client *client,
                                const struct medley_client_options *options,
                                struct medley_error *err)
{
    const char *url = options->url ? options->url : "";
    const char *authority = options->authority_path ? options->authority_path : "";
    const size_t size = strlen(url);
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        return client_json_fail(
            err, MEDLEY_ERROR_INVALID,
            "the URL begins with http:// or https://, as http://127.0.0.1:8080");
    if (size >= sizeof client->url || strpbrk(url, "?#\r\n "))
        return client_json_fail(err, MEDLEY_ERROR_INVALID,
                                "the URL has a host and a port, and nothing behind them");
    if (strlen(authority) >= sizeof client->authority_path)
        return client_json_fail(err, MEDLEY_ERROR_INVALID, "the authority's path is too long");
    memcpy(client->url, url, size);
    for (size_t n = size; n && client->url[n - 1] == '/'; n--)
        client->url[n - 1] = '\0';
    strcpy(client->authority_path, authority);
    if (!options->token)
        return true;
    if (strlen(options->token) > CLIENT_TOKEN_MAX || strpbrk(options->token, "\r\n"))
        return client_json_fail(err, MEDLEY_ERROR_INVALID, "that is no token of Medley");
    snprintf(client->authorization, sizeof client->authorization, "Authorization: Bearer %s",
             options->token);
    return true;
}

static bool client_open_multi(struct medley_client *client)
{
    client->multi = curl_multi_init();
    return client->multi &&
           !curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, client_on_socket) &&
           !curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client) &&
           !curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, client_on_timeout) &&
           !curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
}

enum medley_error_code medley_client_open(uv_loop_t *loop,
                                          const struct medley_client_options *options,
                                          struct medley_client **out, struct medley_error *err)
{
    struct medley_client *client = mem_new(sizeof *client);
    *err = (struct medley_error){0};
    *out = NULL;
    const bool has_curl = client && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    bool good = has_curl && client_open_multi(client);
    if (!good)
        client_json_fail(err, MEDLEY_ERROR_NO_MEMORY, "not enough memory for a client");
    else if (!loop)
        good = client_json_fail(err, MEDLEY_ERROR_INVALID, "a client needs a loop");
    else
        good = client_take_options(client, options, err);
    if (!good) {
        if (client)
            curl_multi_cleanup(client->multi);
        mem_free(client);
        if (has_curl)
            curl_global_cleanup();
        return err->code;
    }
    client->loop = loop;
    uv_timer_init(loop, &client->timer);
    uv_timer_init(loop, &client->later);
    client->timer.data = client->later.data = client;
    client->n_handles = 2;
    *out = client;
    return MEDLEY_ERROR_NONE;
}

void medley_client_close(struct medley_client *client, medley_client_close_callback callback,
                         void *data)
{
    if (client->is_closing)
        return;
    client->is_closing = true;
    client->close_callback = callback;
    client->close_data = data;
    for (struct client_call *call = client->calls; call; call = call->next)
        call->is_cancelled = true;
    client_do_later(client);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Takes what is in *body. */
static enum medley_error_code client_submit(struct medley_client *client, enum client_kind kind,
                                            const char *path, struct buffer *body,
                                            struct medley_client_request *request,
                                            medley_client_piece_callback piece,
                                            medley_client_callback callback)
{
    struct client_call *call = client_call_new(client, kind, path, body, request);
    buffer_deinit(body);
    if (!call)
        return request->error.code;
    call->piece = piece;
    call->callback = callback;
    const CURLMcode code = curl_multi_add_handle(client->multi, call->curl);
    if (code) {
        client_call_free(call);
        if (code == CURLM_RECURSIVE_API_CALL)
            client_json_fail(&request->error, MEDLEY_ERROR_BUSY,
                             "nothing is submitted from within the callback of a piece");
        else
            client_json_fail(&request->error, MEDLEY_ERROR_NO_MEMORY,
                             "not enough memory for the request");
        return request->error.code;
    }
    call->next = client->calls;
    if (call->next)
        call->next->before = call;
    client->calls = call;
    client->n_calls++;
    request->internal = call;
    return MEDLEY_ERROR_NONE;
}

/* One that is in flight is left as it is. */
static bool client_begin(const struct medley_client *client, struct medley_client_request *request)
{
    if (request->internal)
        return false;
    *request = (struct medley_client_request){.data = request->data};
    if (client->is_closing)
        return client_json_fail(&request->error, MEDLEY_ERROR_BUSY, "the client is being closed");
    return client->n_calls < MEDLEY_CLIENT_REQUESTS_MAX ||
           client_json_fail(&request->error, MEDLEY_ERROR_BUSY,
                            "%d requests are in flight: wait for one to end",
                            MEDLEY_CLIENT_REQUESTS_MAX);
}

static enum medley_error_code client_refused(const struct medley_client_request *request)
{
    return request->internal ? MEDLEY_ERROR_BUSY : request->error.code;
}

enum medley_error_code medley_client_models(struct medley_client *client,
                                            struct medley_client_request *request,
                                            medley_client_callback callback)
{
    struct buffer body = {0};
    if (!client_begin(client, request))
        return client_refused(request);
    return client_submit(client, CLIENT_MODELS, "/v1/models", &body, request, NULL, callback);
}

enum medley_error_code medley_client_forecast(struct medley_client *client,
                                              const struct medley_forecast_question *question,
                                              struct medley_client_request *request,
                                              medley_client_callback callback)
{
    struct buffer body = {0};
    if (!client_begin(client, request))
        return client_refused(request);
    if (client_json_ask_forecast(question, &body, &request->error))
        return client_submit(client, CLIENT_FORECAST, "/api/plan", &body, request, NULL, callback);
    buffer_deinit(&body);
    return request->error.code;
}

enum medley_error_code medley_client_generate(struct medley_client *client,
                                              const struct medley_generation *generation,
                                              struct medley_client_request *request,
                                              medley_client_piece_callback piece,
                                              medley_client_callback callback)
{
    struct buffer body = {0};
    if (!client_begin(client, request))
        return client_refused(request);
    if (client_json_ask_generation(generation, &body, &request->error))
        return client_submit(client, CLIENT_GENERATE,
                             generation->n_messages ? "/v1/chat/completions" : "/v1/completions",
                             &body, request, piece, callback);
    buffer_deinit(&body);
    return request->error.code;
}
