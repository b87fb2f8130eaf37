/* GET /api/live: the cluster as it is now, and each change of it, as server-sent events
 * (docs/monitoring.md). One who reads too slowly for the changes gets a whole view instead, when
 * what was sent has been read. */
#include "api/access.h"
#include "api/exchange.h"
#include "api/internal.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>

enum {
    LIVE_EVENTS = 200,             /* of the cluster, at the beginning */
    LIVE_BEHIND_BYTES = 64 * 1024, /* unread: it gets no changes until it has read them */
};

struct live_stream {
    struct live_watcher watcher; /* first */
    struct live_stream *next;
    struct api_server *server;
    struct exchange *exchange;
    uint64_t n_sent;   /* events of the stream, which are their ids */
    uint32_t n_missed; /* of the cluster's events, while it is behind */
    bool is_behind;
};

static void live_stream_free(struct live_stream *stream)
{
    struct live_stream **at = &stream->server->live_streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    stream->server->live.unwatch(stream->server->live.self, &stream->watcher);
    mem_free(stream);
}

static void live_on_gone(void *owner)
{
    live_stream_free(owner);
}

/* False: the stream is over, and freed. */
static bool live_send(struct live_stream *stream, const char *name, const char *text, size_t size)
{
    struct buffer id = {0}, data = {0};
    buffer_printf(&id, "%" PRIu64, ++stream->n_sent);
    buffer_append(&data, text, size);
    const bool sent = exchange_stream_named(stream->exchange, name, &id, &data);
    buffer_deinit(&id);
    buffer_deinit(&data);
    return sent;
}

static bool live_send_view(struct live_stream *stream)
{
    const struct live_feed *feed = &stream->server->live;
    struct buffer view = {0};
    feed->view(feed->self, &view);
    stream->is_behind = view.failed; /* without memory: later */
    const bool sent = view.failed || live_send(stream, "snapshot", view.data, view.size);
    buffer_deinit(&view);
    return sent;
}

struct live_sending {
    struct live_stream *stream; /* NULL: it is over */
};

static void live_send_event(void *arg, const char *event, size_t size)
{
    struct live_sending *sending = arg;
    if (sending->stream && !live_send(sending->stream, "event", event, size))
        sending->stream = NULL;
}

/* False: as above. */
static bool live_send_events(struct live_stream *stream, uint32_t n)
{
    const struct live_feed *feed = &stream->server->live;
    struct live_sending sending = {stream};
    feed->events(feed->self, n, live_send_event, &sending);
    return sending.stream;
}

/* The view has all that it has missed, and so have the last of the events. */
static void live_catch_up(struct live_stream *stream)
{
    if (exchange_unread(stream->exchange))
        return;
    const uint32_t n = stream->n_missed < LIVE_EVENTS ? stream->n_missed : LIVE_EVENTS;
    stream->n_missed = 0;
    if (live_send_view(stream) && n)
        live_send_events(stream, n);
}

static void live_on_change(struct live_watcher *watcher, const char *patch, size_t size)
{
    struct live_stream *stream = (struct live_stream *)watcher;
    stream->is_behind |= exchange_unread(stream->exchange) > LIVE_BEHIND_BYTES;
    if (stream->is_behind)
        live_catch_up(stream);
    else
        live_send(stream, "change", patch, size);
}

static void live_on_event(struct live_watcher *watcher, const char *event, size_t size)
{
    struct live_stream *stream = (struct live_stream *)watcher;
    stream->is_behind |= exchange_unread(stream->exchange) > LIVE_BEHIND_BYTES;
    if (stream->is_behind)
        stream->n_missed++;
    else
        live_send(stream, "event", event, size);
}

/* False: it is refused, with `err`. */
static bool live_check(const struct api_server *server, const struct api_client *client,
                       struct api_error *err)
{
    uint32_t n = 0, of_client = 0;
    if (!server->live.watch) {
        api_error_set(err, 404, "invalid_request_error", "no_cluster",
                      "this server is no node of a cluster: start it with `medley up`");
        return false;
    }
    for (const struct live_stream *at = server->live_streams; at; at = at->next) {
        n++;
        of_client += api_client_is_same(exchange_client(at->exchange), client);
    }
    if (n < LIMIT_LIVE_STREAMS && of_client < LIMIT_LIVE_OF_CLIENT)
        return true;
    const bool own = of_client >= LIMIT_LIVE_OF_CLIENT;
    api_error_set(err, own ? 429 : 503, "rate_limit_error", "too_many_streams",
                  "%s %d streams of the live view: close one of them",
                  own ? "this client has" : "this node gives at most",
                  own ? LIMIT_LIVE_OF_CLIENT : LIMIT_LIVE_STREAMS);
    return false;
}

void live_handle(struct exchange *exchange)
{
    struct api_server *server = exchange_server(exchange);
    struct api_error err;
    struct buffer nothing = {0};
    if (!live_check(server, exchange_client(exchange), &err)) {
        exchange_fail(exchange, &err);
        return;
    }
    if (exchange_is_head(exchange)) {
        exchange_answer(exchange, 200, "text/event-stream; charset=utf-8", &nothing);
        return;
    }
    struct live_stream *stream = mem_new(sizeof *stream);
    if (!stream) {
        api_error_set(&err, 503, "server_error", "no_memory", "not enough memory for the stream");
        exchange_fail(exchange, &err);
        return;
    }
    *stream = (struct live_stream){.watcher = {.changed = live_on_change, .event = live_on_event},
                                   .next = server->live_streams,
                                   .server = server,
                                   .exchange = exchange};
    server->live_streams = stream;
    server->live.watch(server->live.self, &stream->watcher);
    exchange_stream_begin(exchange);
    exchange_stream_wait(exchange, "nothing has changed");
    exchange_set_owner(exchange, live_on_gone, stream);
    if (live_send_view(stream))
        live_send_events(stream, LIVE_EVENTS);
}

void live_end_all(struct api_server *server)
{
    while (server->live_streams) {
        struct exchange *exchange = server->live_streams->exchange;
        live_stream_free(server->live_streams);
        exchange_stream_end(exchange); /* forgets its owner */
    }
}
