/* Fuzz target: the bytes of a channel on which somebody joins (join/join_channel.h), from a stream
 * without a network. The first byte says in how large pieces they come and are taken (0 to 15), and
 * after how many messages the owner has enough. Every message is sent back.
 * Holds: a message has 1 to LIMIT_JOIN_MESSAGE_BYTES, is whole, and comes in its turn; what is sent
 * back is what came; the channel ends once, in order exactly between two messages; and all is given
 * back. */
#include "fuzz.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "join/join_channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct stream stream;
    bool again, is_finished, is_closing;
    const uint8_t *bytes;
    size_t size, read, written; /* of the bytes */
    size_t piece, enough;
    struct join_channel *channel;
    size_t at; /* where the next message begins */
    uint32_t n_messages, n_ended, n_closed;
} world;

static uv_loop_t *the_loop(void)
{
    static uv_loop_t loop;
    static bool made;
    if (!made && uv_loop_init(&loop))
        abort();
    made = true;
    return &loop;
}

/* ---- the stream ------------------------------------------------------------------------------ */

static size_t piece_of(size_t size)
{
    world.again = !world.again;
    return world.again ? 0 : size < world.piece ? size : world.piece;
}

static enum stream_result fake_read(struct stream *stream, void *into, size_t size, size_t *n,
                                    struct error *err)
{
    size_t left = world.size - world.read;
    *n = 0;
    if (left == 0)
        return STREAM_END;
    *n = piece_of(size < left ? size : left);
    memcpy(into, world.bytes + world.read, *n);
    world.read += *n;
    return *n ? STREAM_DONE : STREAM_AGAIN;
}

static enum stream_result fake_write(struct stream *stream, const void *bytes, size_t size,
                                     size_t *n, struct error *err)
{
    *n = piece_of(size);
    FUZZ_CHECK(!world.is_finished && world.written + *n <= world.at);
    FUZZ_CHECK(memcmp(bytes, world.bytes + world.written, *n) == 0);
    world.written += *n;
    return *n ? STREAM_DONE : STREAM_AGAIN;
}

static enum stream_result fake_flush(struct stream *stream, struct error *err)
{
    return STREAM_DONE;
}

static void fake_finish(struct stream *stream)
{
    FUZZ_CHECK(!world.is_finished && world.written == world.at);
    world.is_finished = true;
}

static void fake_close(struct stream *stream)
{
    FUZZ_CHECK(!world.is_closing);
    world.is_closing = true;
}

static const struct stream_impl impl = {.read = fake_read,
                                        .write = fake_write,
                                        .flush = fake_flush,
                                        .finish = fake_finish,
                                        .close = fake_close};

/* ---- the owner ------------------------------------------------------------------------------- */

static uint64_t length_at(size_t at)
{
    return bytes_load(world.bytes + at, 4);
}

static void on_message(void *self, const void *bytes, size_t size)
{
    FUZZ_CHECK(world.n_ended == 0 && world.n_messages < world.enough);
    FUZZ_CHECK(size > 0 && size <= LIMIT_JOIN_MESSAGE_BYTES);
    FUZZ_CHECK(world.at + 4 + size <= world.size && length_at(world.at) == size);
    FUZZ_CHECK(memcmp(bytes, world.bytes + world.at + 4, size) == 0);
    const struct buffer message = {.data = (char *)(uintptr_t)bytes, .size = size};
    world.at += 4 + size;
    join_channel_send(world.channel, &message);
    if (++world.n_messages == world.enough)
        join_channel_finish(world.channel);
}

static void on_late(void *self)
{
    FUZZ_CHECK(self != NULL && "no deadline was set");
}

static void on_ended(void *self, bool in_order, const struct error *why)
{
    const size_t left = world.size - world.at;
    const uint64_t length = left < 4 ? 0 : length_at(world.at);
    FUZZ_CHECK(world.n_ended++ == 0 && world.n_messages < world.enough && why->text[0]);
    FUZZ_CHECK(in_order == (left == 0));
    if (why->code == ERROR_INVALID)
        FUZZ_CHECK(left >= 4 && (length == 0 || length > LIMIT_JOIN_MESSAGE_BYTES));
    else
        FUZZ_CHECK(world.read == world.size && (left < 4 || left < 4 + length));
}

static void on_closed(void *self)
{
    world.n_closed++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct join_clock clock;
    static const struct join_channel_events events = {on_message, on_late, on_ended, on_closed,
                                                      NULL};
    if (size < 1)
        return 0;
    uv_loop_t *loop = the_loop();
    memset(&world, 0, sizeof world);
    world.stream.impl = &impl;
    world.bytes = data + 1;
    world.size = size - 1;
    world.piece = data[0] % 16 ? data[0] % 16 * 7u : SIZE_MAX;
    world.enough = data[0] / 16 < 15 ? 1 + data[0] / 16u : SIZE_MAX;
    if (join_channel_open(loop, &world.stream, &clock, &events, &world.channel, NULL))
        abort();
    while (!world.is_closing) {
        uv_run(loop, UV_RUN_NOWAIT);
        stream_tell_ready(&world.stream);
    }
    stream_tell_closed(&world.stream);
    uv_run(loop, UV_RUN_DEFAULT);
    FUZZ_CHECK(world.n_closed == 1 && (world.n_ended == 1 || world.n_messages == world.enough));
    return 0;
}
