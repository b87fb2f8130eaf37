#include "join/join_channel.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"

enum { LENGTH_BYTES = 4 };

enum phase { CHANNEL_OPEN, CHANNEL_LINGERING, CHANNEL_CLOSING };

struct join_channel {
    struct stream *stream;
    uv_timer_t timer;
    struct join_clock clock;
    struct join_channel_events events;
    enum phase phase;
    uint32_t n_open;      /* handles that are not closed yet */
    uint64_t deadline_ms; /* the owner's, or the end of lingering */
    uint64_t begun_ms;    /* when the message that is coming began */
    struct error failure; /* of sending, to be raised from the loop */
    bool looked;          /* for what had come before the channel was made */
    bool finished;        /* the stream knows that no more is written */
    struct buffer out;
    size_t have; /* of `in` */
    uint8_t in[LENGTH_BYTES + LIMIT_JOIN_MESSAGE_BYTES];
};

static void join_channel_on_time(uv_timer_t *timer);

/* ---- life ---------------------------------------------------------------------------------- */

static void join_channel_release(struct join_channel *channel)
{
    if (--channel->n_open > 0)
        return;
    channel->events.closed(channel->events.self);
    buffer_deinit(&channel->out);
    mem_free(channel);
}

static void on_stream_closed(void *owner)
{
    join_channel_release(owner);
}

static void join_channel_on_timer_closed(uv_handle_t *timer)
{
    join_channel_release(timer->data);
}

static void close_now(struct join_channel *channel)
{
    channel->phase = CHANNEL_CLOSING;
    uv_close((uv_handle_t *)&channel->timer, join_channel_on_timer_closed);
    stream_close(channel->stream, on_stream_closed, channel);
}

/* Closes before the owner hears of it: nothing that it does then reaches a stream that is
 * broken. */
static void join_channel_end(struct join_channel *channel, bool in_order, const struct error *why)
{
    const struct error copy = *why;
    close_now(channel);
    channel->events.ended(channel->events.self, in_order, &copy);
}

static void join_channel_endf(struct join_channel *channel, enum error_code code, bool in_order,
                              const char *text)
{
    struct error why;
    error_set(&why, code, "%s", text);
    join_channel_end(channel, in_order, &why);
}

/* ---- time ---------------------------------------------------------------------------------- */

static uint64_t due_ms(const struct join_channel *channel)
{
    uint64_t due = channel->deadline_ms;
    if (channel->phase == CHANNEL_OPEN && channel->have > 0 &&
        channel->begun_ms + LIMIT_JOIN_MESSAGE_MS < due)
        due = channel->begun_ms + LIMIT_JOIN_MESSAGE_MS;
    return due;
}

static void join_channel_set_timer(struct join_channel *channel)
{
    const uint64_t due = due_ms(channel);
    const bool now = channel->failure.code || !channel->looked;
    if (channel->phase == CHANNEL_CLOSING)
        return;
    if (due == UINT64_MAX && !now)
        uv_timer_stop(&channel->timer);
    else
        uv_timer_start(&channel->timer, join_channel_on_time,
                       now ? 0 : join_clock_wait(&channel->clock, due), 0);
}

/* ---- sending ------------------------------------------------------------------------------- */

static enum stream_result join_channel_send_out(struct join_channel *channel, struct error *err)
{
    struct buffer *out = &channel->out;
    enum stream_result result = STREAM_DONE;
    size_t sent = 0, n;
    while (result == STREAM_DONE && sent < out->size) {
        result = stream_write(channel->stream, out->data + sent, out->size - sent, &n, err);
        sent += n;
    }
    buffer_drop_front(out, sent);
    return result == STREAM_FAILED ? result : stream_flush(channel->stream, err);
}

static void join_channel_push(struct join_channel *channel)
{
    if (channel->phase == CHANNEL_CLOSING || channel->failure.code || channel->finished)
        return;
    if (join_channel_send_out(channel, &channel->failure) == STREAM_FAILED) {
        join_channel_set_timer(channel);
    } else if (channel->phase == CHANNEL_LINGERING && channel->out.size == 0) {
        channel->finished = true;
        stream_finish(channel->stream);
    }
}

void join_channel_send(struct join_channel *channel, const struct buffer *message)
{
    if (channel->phase != CHANNEL_OPEN || message->size == 0)
        return;
    bytes_put(&channel->out, message->size, LENGTH_BYTES);
    buffer_append(&channel->out, message->data, message->size);
    if (channel->out.failed) {
        error_set(&channel->failure, ERROR_NO_MEMORY, "out of memory for a message");
        join_channel_set_timer(channel);
    }
    join_channel_push(channel);
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* How much of `in` the message takes, as far as is known. */
static size_t join_channel_wanted(const struct join_channel *channel)
{
    if (channel->have < LENGTH_BYTES)
        return LENGTH_BYTES;
    return LENGTH_BYTES + (size_t)bytes_load(channel->in, LENGTH_BYTES);
}

/* Some bytes have come. */
static void join_channel_took(struct join_channel *channel, size_t n)
{
    if (channel->have == 0)
        channel->begun_ms = join_clock_now(&channel->clock);
    channel->have += n;
    if (channel->have < LENGTH_BYTES)
        return;
    const size_t size = join_channel_wanted(channel) - LENGTH_BYTES;
    if (size == 0 || size > LIMIT_JOIN_MESSAGE_BYTES) {
        join_channel_endf(channel, ERROR_INVALID, false,
                          "what it sent is no message of the join protocol");
    } else if (channel->have == LENGTH_BYTES + size) {
        channel->have = 0;
        channel->events.message(channel->events.self, channel->in + LENGTH_BYTES, size);
    }
}

static void join_channel_hear(struct join_channel *channel)
{
    while (channel->phase == CHANNEL_OPEN) {
        struct error err = {0};
        size_t n;
        const enum stream_result result =
            stream_read(channel->stream, channel->in + channel->have,
                        join_channel_wanted(channel) - channel->have, &n, &err);
        if (result == STREAM_AGAIN)
            return;
        if (result == STREAM_DONE)
            join_channel_took(channel, n);
        else if (result == STREAM_END)
            join_channel_endf(channel, ERROR_IO, channel->have == 0,
                              "the other end closed the connection");
        else
            join_channel_end(channel, false, &err);
    }
}

/* What comes after the last word is thrown away: a connection that is closed with bytes unread is
 * reset, and what was sent last is lost with it. */
static void join_channel_linger(struct join_channel *channel)
{
    uint8_t waste[1024];
    size_t n;
    enum stream_result result;
    do {
        result = stream_read(channel->stream, waste, sizeof waste, &n, NULL);
    } while (result == STREAM_DONE);
    if (result != STREAM_AGAIN)
        close_now(channel);
}

static void join_channel_on_ready(struct stream *stream, void *owner)
{
    struct join_channel *channel = owner;
    channel->looked = true;
    if (channel->phase == CHANNEL_OPEN)
        join_channel_hear(channel);
    join_channel_push(channel);
    if (channel->phase == CHANNEL_LINGERING)
        join_channel_linger(channel);
    join_channel_set_timer(channel);
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void join_channel_on_time(uv_timer_t *timer)
{
    struct join_channel *channel = timer->data;
    const uint64_t now = join_clock_now(&channel->clock);
    if (channel->phase == CHANNEL_LINGERING &&
        (channel->failure.code || now >= channel->deadline_ms)) {
        close_now(channel);
        return;
    }
    join_channel_on_ready(channel->stream,
                          channel); /* a message that has come counts before the deadline does */
    if (channel->phase != CHANNEL_OPEN)
        return;
    if (channel->failure.code) {
        join_channel_end(channel, false, &channel->failure);
    } else if (channel->have > 0 && now >= channel->begun_ms + LIMIT_JOIN_MESSAGE_MS) {
        join_channel_endf(channel, ERROR_INVALID, false,
                          "a message did not come to its end in time");
    } else if (now >= channel->deadline_ms) {
        channel->deadline_ms = UINT64_MAX;
        channel->events.late(channel->events.self);
        join_channel_set_timer(channel);
    }
}

void join_channel_expect(struct join_channel *channel, uint64_t deadline_ms)
{
    if (channel->phase != CHANNEL_OPEN)
        return;
    channel->deadline_ms = deadline_ms;
    join_channel_set_timer(channel);
}

void join_channel_finish(struct join_channel *channel)
{
    if (channel->phase != CHANNEL_OPEN)
        return;
    channel->phase = CHANNEL_LINGERING;
    channel->deadline_ms = join_clock_now(&channel->clock) + LIMIT_JOIN_LINGER_MS;
    join_channel_push(channel);
    join_channel_set_timer(channel);
}

void join_channel_abort(struct join_channel *channel)
{
    if (channel->phase == CHANNEL_OPEN)
        close_now(channel);
}

enum error_code join_channel_open(uv_loop_t *loop, struct stream *stream,
                                  const struct join_clock *clock,
                                  const struct join_channel_events *events,
                                  struct join_channel **out, struct error *err)
{
    struct join_channel *channel = mem_new(sizeof *channel);
    *out = NULL;
    if (!channel) {
        stream_close(stream, NULL, NULL);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a machine that joins");
    }
    channel->stream = stream;
    channel->clock = *clock;
    channel->events = *events;
    channel->deadline_ms = UINT64_MAX;
    channel->n_open = 2;
    uv_timer_init(loop, &channel->timer);
    channel->timer.data = channel;
    stream->on_ready = join_channel_on_ready;
    stream->owner = channel;
    join_channel_set_timer(
        channel); /* its first message may have come with the end of the handshake */
    *out = channel;
    return ERROR_NONE;
}
