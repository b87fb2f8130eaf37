/* Messages of the join protocol (join/join.h) over a stream, for both ends: 4 bytes of length
 * (little-endian, 1 to LIMIT_JOIN_MESSAGE_BYTES), then so many bytes.
 *
 * The channel has a stream whose handshake is over. What comes is given out message by message. A
 * length beyond the limit, a message that takes longer than LIMIT_JOIN_MESSAGE_MS from its first
 * byte to its last, and a stream that breaks or ends: each ends the channel, and nothing but it.
 * Between messages the deadline counts that its owner sets.
 *
 * Events are raised from the loop only, never from within a call. After join_channel_finish(),
 * join_channel_abort() or `ended`, only `closed` comes: then its memory is gone.
 *
 * All on the loop's thread. */
#pragma once

#include "base/buffer.h"
#include "base/clock.h"
#include "mesh/stream.h"

#include <uv.h>

/* Milliseconds that never go back. Zeroed: the machine's (base/clock.h). Another is for tests; the
 * loop's timers do not know it, so it is looked at every JOIN_CLOCK_POLL_MS. */
enum { JOIN_CLOCK_POLL_MS = 20 };

struct join_clock {
    uint64_t (*now_ms)(void *self);
    void *self;
};

static inline uint64_t join_clock_now(const struct join_clock *clock)
{
    return clock->now_ms ? clock->now_ms(clock->self) : clock_now_ns() / 1000000;
}

/* How long a timer should wait for this time, before it looks (again). */
static inline uint64_t join_clock_wait(const struct join_clock *clock, uint64_t due_ms)
{
    const uint64_t now = join_clock_now(clock), wait = due_ms > now ? due_ms - now : 0;
    return clock->now_ms && wait > JOIN_CLOCK_POLL_MS ? JOIN_CLOCK_POLL_MS : wait;
}

struct join_channel;

struct join_channel_events {
    void (*message)(void *self, const void *bytes,
                    size_t size); /* the bytes are good until it returns */
    void (*late)(void *self);     /* the deadline has come; it is set no more */
    /* It has ended by itself. in_order: the other end has closed it, after its last message. */
    void (*ended)(void *self, bool in_order, const struct error *why);
    void (*closed)(void *self);
    void *self;
};

/* Takes the stream; on failure it is closed. */
enum error_code join_channel_open(uv_loop_t *loop, struct stream *stream,
                                  const struct join_clock *clock,
                                  const struct join_channel_events *events,
                                  struct join_channel **out, struct error *err);

/* A message without bytes is not sent. What cannot be sent ends the channel. */
void join_channel_send(struct join_channel *channel, const struct buffer *message);

/* `late` is raised at this time of the clock, unless another is set before; UINT64_MAX: never. */
void join_channel_expect(struct join_channel *channel, uint64_t deadline_ms);

/* No more is sent or heard. What was sent still arrives: the channel is closed when the other end
 * has closed, or after LIMIT_JOIN_LINGER_MS. Does nothing when it has ended. */
void join_channel_finish(struct join_channel *channel);

/* No more is sent or heard, at once; to the other end it does not look like an end in order. Does
 * nothing when it has ended. */
void join_channel_abort(struct join_channel *channel);
