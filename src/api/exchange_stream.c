/* Answers that come by and by: events of a stream, and lines. */
#include "api/exchange_impl.h"

#include "base/clock.h"
#include "base/log.h"

#include <libwebsockets.h>

#include <string.h>

/* ---- events ---- */

static void exchange_begin_chunks(struct exchange *exchange)
{
    exchange->status = 200;
    exchange->streaming = true;
    exchange_release_body(exchange);
    exchange_write_head(exchange, "text/event-stream; charset=utf-8", UINT64_MAX);
    exchange_push(exchange);
}

/* From now on nothing may come for a while: a prompt is long, or a machine was lost and its part is
 * placed anew. */
void exchange_stream_begin(struct exchange *exchange)
{
    if (!exchange->streaming)
        exchange_begin_chunks(exchange);
    exchange->spoke_ns = clock_now_ns();
    exchange_stream_wait(exchange, "the answer goes on");
}

/* RFC 9112, section 7.1. */
static void exchange_append_chunk(struct exchange *exchange, const char *name,
                                  const struct buffer *id, const char *before, const char *data,
                                  size_t size)
{
    static const char id_before[] = "id: ", name_before[] = "event: ", after[] = "\n\n";
    const size_t id_size = id ? sizeof id_before - 1 + id->size + 1 : 0;
    const size_t name_size = name ? sizeof name_before - 1 + strlen(name) + 1 : 0;
    if (!exchange->http_1_0)
        buffer_printf(&exchange->out, "%zx\r\n",
                      name_size + id_size + strlen(before) + size + sizeof after - 1);
    if (name)
        buffer_printf(&exchange->out, "%s%s\n", name_before, name);
    if (id) {
        buffer_text(&exchange->out, id_before);
        buffer_append(&exchange->out, id->data, id->size);
        buffer_text(&exchange->out, "\n");
    }
    buffer_text(&exchange->out, before);
    buffer_append(&exchange->out, data, size);
    buffer_append(&exchange->out, after, sizeof after - 1);
    if (!exchange->http_1_0)
        buffer_text(&exchange->out, "\r\n");
    exchange_count_unread(exchange);
}

size_t exchange_unread(const struct exchange *exchange)
{
    return exchange->out.size - exchange->out_sent;
}

bool exchange_is_head(const struct exchange *exchange)
{
    return exchange->method == METHOD_HEAD;
}

bool exchange_stream_event(struct exchange *exchange, const struct buffer *id,
                           const struct buffer *data)
{
    return exchange_stream_named(exchange, NULL, id, data);
}

bool exchange_stream_named(struct exchange *exchange, const char *name, const struct buffer *id,
                           const struct buffer *data)
{
    if (exchange->dead)
        return false;
    struct api_error ignored;
    const size_t unread = exchange_unread(exchange);
    /* One that is larger by itself may go into an empty queue. */
    if ((unread && unread + data->size + (id ? id->size : 0) > EXCHANGE_STREAM_MAX) ||
        (exchange->out.size > EXCHANGE_WRITE_BYTES &&
         !exchange_make_room(exchange, EXCHANGE_ANSWERS, data->size, &ignored)) ||
        data->failed || (id && id->failed)) {
        log_line(LOG_INFO, "api", "%s: the client reads too slowly; cancelled its request",
                 exchange->path);
        exchange_abort(exchange);
        return false;
    }
    exchange_append_chunk(exchange, name, id, "data: ", data->data, data->size);
    exchange_push(exchange);
    exchange->spoke_ns = clock_now_ns();
    return !exchange->dead;
}

void exchange_stream_wait(struct exchange *exchange, const char *text)
{
    exchange->waiting = text;
    lws_set_timer_usecs(exchange->wsi, (lws_usec_t)exchange->server->waiting_ms * 1000);
}

void exchange_tick(struct exchange *exchange)
{
    const uint64_t every_ms = exchange->server->waiting_ms;
    const uint64_t quiet_ms = (clock_now_ns() - exchange->spoke_ns) / 1000000;
    if (exchange->dead)
        return;
    if (quiet_ms + 1 < every_ms) { /* something was said meanwhile */
        lws_set_timer_usecs(exchange->wsi, (lws_usec_t)(every_ms - quiet_ms) * 1000);
        return;
    }
    if (!exchange->streaming)
        exchange_begin_chunks(exchange);
    exchange_append_chunk(exchange, NULL, NULL, ": ", exchange->waiting, strlen(exchange->waiting));
    exchange_push(exchange);
    lws_set_timer_usecs(exchange->wsi, (lws_usec_t)every_ms * 1000);
}

void exchange_stream_end(struct exchange *exchange)
{
    if (exchange->dead)
        return;
    exchange_append_chunk(exchange, NULL, NULL, "data: ", "[DONE]", 6);
    exchange_stream_close(exchange);
}

void exchange_stream_close(struct exchange *exchange)
{
    if (exchange->dead)
        return;
    exchange->gone = NULL;
    exchange_end_waiting(exchange);
    exchange_set_state(exchange, EXCHANGE_ANSWERED);
    if (!exchange->http_1_0)
        buffer_text(&exchange->out, "0\r\n\r\n");
    exchange_push(exchange);
}

/* ---- an answer in pieces ---- */

void exchange_lines_begin(struct exchange *exchange, const char *content_type)
{
    exchange->status = 200;
    exchange->streaming = true;
    exchange_release_body(exchange);
    exchange_write_head(exchange, content_type, UINT64_MAX);
    exchange_push(exchange);
}

bool exchange_lines_add(struct exchange *exchange, const struct buffer *lines)
{
    const size_t unread = exchange->out.size - exchange->out_sent;
    struct api_error ignored;
    if (exchange->dead)
        return false;
    if (lines->failed || (unread && unread + lines->size > EXCHANGE_STREAM_MAX) ||
        (exchange->out.size > EXCHANGE_WRITE_BYTES &&
         !exchange_make_room(exchange, EXCHANGE_ANSWERS, lines->size, &ignored))) {
        exchange_abort(exchange);
        return false;
    }
    if (!exchange->http_1_0)
        buffer_printf(&exchange->out, "%zx\r\n", lines->size);
    buffer_append(&exchange->out, lines->data, lines->size);
    if (!exchange->http_1_0)
        buffer_text(&exchange->out, "\r\n");
    exchange_count_unread(exchange);
    exchange_push(exchange);
    return !exchange->dead;
}

void exchange_lines_end(struct exchange *exchange)
{
    if (exchange->dead)
        return;
    exchange->gone = NULL;
    exchange_set_state(exchange, EXCHANGE_ANSWERED);
    if (!exchange->http_1_0)
        buffer_text(&exchange->out, "0\r\n\r\n");
    exchange_push(exchange);
}
