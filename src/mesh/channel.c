#include "mesh/channel.h"

#include "base/clock.h"
#include "base/mem.h"
#include "mesh/link_state.h"

#include <assert.h>
#include <string.h>

static void channel_on_ready(struct stream *stream, void *owner)
{
    channel_run(owner);
}

void channel_attach(struct channel *channel, struct link *link, uint32_t index,
                    struct stream *stream)
{
    *channel = (struct channel){.link = link, .index = index, .stream = stream};
    frame_reader_init(&channel->reader,
                      index == LINK_CONTROL ? LIMIT_FRAME_CONTROL_BYTES : LIMIT_FRAME_DATA_BYTES);
    stream->on_ready = channel_on_ready;
    stream->owner = channel;
}

/* ---- sending ------------------------------------------------------------------------------- */

static void channel_write_header(const struct link_send *send,
                                 uint8_t bytes[static FRAME_HEADER_BYTES])
{
    const struct frame_header header = {
        .type = send->type,
        .flags = send->flags,
        .tag = send->tag,
        .length = (uint32_t)(send->size - FRAME_HEADER_BYTES),
    };
    frame_header_write(&header, bytes);
}

/* Gathers at most `room` bytes of the frame from `position` on. */
static size_t channel_gather(const struct link_send *send, uint64_t position, uint8_t *into,
                             size_t room)
{
    size_t n = 0;
    if (position < FRAME_HEADER_BYTES) {
        uint8_t header[FRAME_HEADER_BYTES];
        channel_write_header(send, header);
        n = FRAME_HEADER_BYTES - (size_t)position;
        memcpy(into, header + position, n);
        position = FRAME_HEADER_BYTES;
    }
    uint64_t begin = FRAME_HEADER_BYTES;
    for (uint32_t i = 0; i < send->n_pieces && n < room; i++) {
        const struct link_piece *piece = &send->pieces[i];
        if (position < begin + piece->size) {
            const size_t skip = (size_t)(position - begin), left = piece->size - skip;
            const size_t part = left < room - n ? left : room - n;
            memcpy(into + n, (const uint8_t *)piece->bytes + skip, part);
            n += part;
            position += part;
        }
        begin += piece->size;
    }
    return n;
}

/* The next bytes: where they lie, when a whole record of them lies in one piece, else gathered in
 * scratch. */
static const void *next_run(const struct link_send *send,
                            uint8_t scratch[static CHANNEL_RECORD_BYTES], size_t *size)
{
    uint64_t begin = FRAME_HEADER_BYTES;
    for (uint32_t i = 0; i < send->n_pieces && send->position >= begin; i++) {
        const struct link_piece *piece = &send->pieces[i];
        if (send->position < begin + piece->size) {
            const size_t skip = (size_t)(send->position - begin);
            *size = piece->size - skip;
            if (*size >= CHANNEL_RECORD_BYTES)
                return (const uint8_t *)piece->bytes + skip;
            break;
        }
        begin += piece->size;
    }
    *size = channel_gather(send, send->position, scratch, CHANNEL_RECORD_BYTES);
    return scratch;
}

static void channel_pop(struct channel *channel)
{
    struct link_send *send = channel->first;
    channel->first = send->next;
    if (!channel->first)
        channel->last = NULL;
    channel->counts.frames_sent++;
    if (send->is_copy)
        mem_free(send);
    else
        link_finished_send(channel->link, send, ERROR_NONE);
}

/* Gives the stream as much as it takes. */
static void channel_pump(struct channel *channel)
{
    uint8_t scratch[CHANNEL_RECORD_BYTES];
    struct error err = {0};
    enum stream_result result = STREAM_DONE;
    while (channel->first && result == STREAM_DONE) {
        struct link_send *send = channel->first;
        size_t size, n;
        const void *run = next_run(send, scratch, &size);
        result = stream_write(channel->stream, run, size, &n, &err);
        if (result != STREAM_DONE)
            break;
        send->position += n;
        channel->queued_bytes -= n;
        channel->counts.bytes_sent += n;
        if (send->position == send->size)
            channel_pop(channel);
        if (!channel->first || n >= CHANNEL_RECORD_BYTES)
            result = stream_flush(channel->stream, &err);
    }
    if (result == STREAM_AGAIN)
        result = stream_flush(channel->stream, &err);
    if (result == STREAM_FAILED)
        link_fail(channel->link, &err);
    if (channel->was_full && channel->queued_bytes <= channel->link->mesh->options.queue_bytes / 2)
        link_look(channel->link);
}

static void channel_push(struct channel *channel, struct link_send *send)
{
    send->next = NULL;
    if (channel->last)
        channel->last->next = send;
    else
        channel->first = send;
    channel->last = send;
    channel->queued_bytes += send->size - send->position;
}

static enum error_code check_room(struct channel *channel, uint64_t length, bool own,
                                  struct error *err)
{
    const struct link *link = channel->link;
    if (link->phase == LINK_DOWN || (!own && link->phase != LINK_UP))
        return error_set(err, ERROR_CANCELLED, "the link is closing");
    if (length > channel->reader.length_max)
        return error_set(err, ERROR_INVALID, "a frame of %llu bytes; this channel takes at most %u",
                         (unsigned long long)length, channel->reader.length_max);
    if (!own && channel->queued_bytes >= link->mesh->options.queue_bytes) {
        channel->was_full = true;
        return error_set(err, ERROR_BUSY, "the queue is full: %llu bytes wait to be sent",
                         (unsigned long long)channel->queued_bytes);
    }
    if (!own)
        channel->used_ns = clock_now_ns();
    return ERROR_NONE;
}

/* How much of a small frame the stream took at once. */
static uint64_t channel_post_now(struct channel *channel, const struct link_send *frame)
{
    uint8_t record[CHANNEL_POST_BYTES];
    if (channel->first || frame->size > sizeof record)
        return 0;
    struct error err = {0};
    size_t n = 0, size = channel_gather(frame, 0, record, sizeof record);
    enum stream_result result = stream_write(channel->stream, record, size, &n, &err);
    if (result == STREAM_DONE)
        result = stream_flush(channel->stream, &err);
    if (result == STREAM_FAILED)
        link_fail(channel->link, &err);
    channel->counts.bytes_sent += n;
    channel->counts.frames_sent += n == size;
    return n;
}

enum error_code channel_post(struct channel *channel, const struct frame_header *header,
                             const void *payload, bool own, struct error *err)
{
    enum error_code code = check_room(channel, header->length, own, err);
    if (code)
        return code;
    struct link_send frame = {
        .type = header->type,
        .flags = header->flags,
        .tag = header->tag,
        .n_pieces = 1,
        .pieces = {{payload, header->length}},
        .size = (uint64_t)FRAME_HEADER_BYTES + header->length,
        .is_copy = true,
    };
    frame.position = channel_post_now(channel, &frame);
    if (frame.position == frame.size)
        return ERROR_NONE;
    struct link_send *copy = mem_new(sizeof *copy + header->length);
    if (!copy) {
        if (frame.position > 0) /* half a frame is on its way */
            link_failf(channel->link, ERROR_NO_MEMORY, "out of memory for a frame of %u bytes",
                       header->length);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a frame of %u bytes",
                         header->length);
    }
    *copy = frame;
    copy->pieces[0].bytes = copy + 1;
    if (header->length)
        memcpy(copy + 1, payload, header->length);
    channel_push(channel, copy);
    channel_pump(channel);
    return ERROR_NONE;
}

enum error_code channel_send(struct channel *channel, struct link_send *send, struct error *err)
{
    assert(send->n_pieces <= LINK_PIECES_MAX);
    uint64_t length = 0;
    for (uint32_t i = 0; i < send->n_pieces; i++)
        length += send->pieces[i].size;
    enum error_code code = check_room(channel, length, false, err);
    if (code)
        return code;
    send->size = FRAME_HEADER_BYTES + length;
    send->position = 0;
    send->is_copy = false;
    channel_push(channel, send);
    if (channel->first == send)
        channel_pump(channel);
    return ERROR_NONE;
}

bool channel_is_drained(const struct channel *channel)
{
    return channel->bye_queued && !channel->first;
}

void channel_cancel(struct channel *channel)
{
    while (channel->first) {
        struct link_send *send = channel->first;
        channel->first = send->next;
        if (send->is_copy)
            mem_free(send);
        else
            link_finished_send(channel->link, send, ERROR_CANCELLED);
    }
    channel->last = NULL;
    channel->queued_bytes = 0;
}

void channel_deinit(struct channel *channel)
{
    mem_free(channel->memory);
    channel->memory = NULL;
    channel->memory_bytes = 0;
}

/* ---- receiving ----------------------------------------------------------------------------- */

static uint8_t *own_memory(struct channel *channel, uint32_t bytes)
{
    if (bytes > channel->memory_bytes) {
        uint32_t size = channel->memory_bytes ? channel->memory_bytes : 4096;
        while (size < bytes)
            size *= 2; /* a payload has at most 256 MiB */
        channel_deinit(channel);
        channel->memory = mem_new(size);
        channel->memory_bytes = channel->memory ? size : 0;
    }
    return channel->memory;
}

/* Memory for the frame that was begun. */
static bool give_memory(struct channel *channel)
{
    struct link *link = channel->link;
    const struct frame_header *header = &channel->reader.header;
    const struct link_events *events = &link->mesh->options.events;
    uint8_t *memory = NULL;
    if (header->type >= FRAME_USER && events->memory)
        memory = events->memory(events->self, link, channel->index, header);
    if (!link_is_reading(link)) /* the event ended it */
        return false;
    if (!memory)
        memory = own_memory(channel, header->length);
    if (!memory) {
        link_failf(link, ERROR_NO_MEMORY, "out of memory for a frame of %u bytes", header->length);
        return false;
    }
    frame_reader_payload(&channel->reader, memory);
    return true;
}

static void channel_complete(struct channel *channel)
{
    channel->counts.frames_received++;
    channel->counts.bytes_received += FRAME_HEADER_BYTES + channel->reader.header.length;
    link_take_frame(channel->link, channel);
    frame_reader_next(&channel->reader);
    if (channel->memory_bytes > CHANNEL_KEPT_BYTES)
        channel_deinit(channel);
}

/* What the stream says instead of giving bytes. */
static void channel_stop(struct channel *channel, enum stream_result result,
                         const struct error *err)
{
    if (result == STREAM_FAILED)
        link_fail(channel->link, err);
    else if (result == STREAM_END && !channel->bye_received)
        link_failf(channel->link, ERROR_IO, "the other end closed channel %u%s", channel->index,
                   frame_reader_is_inside(&channel->reader) ? " within a frame" : "");
}

static bool can_read(const struct channel *channel)
{
    return link_is_reading(channel->link) && !channel->paused && !channel->bye_received;
}

/* Takes what has arrived. */
static void channel_drink(struct channel *channel)
{
    size_t taken = 0;
    while (can_read(channel)) {
        if (taken >= CHANNEL_TURN_BYTES) {
            channel->must_read = true;
            link_look(channel->link);
            return;
        }
        struct error err = {0};
        void *into;
        size_t size, n;
        frame_reader_want(&channel->reader, &into, &size);
        const enum stream_result result = stream_read(channel->stream, into, size, &n, &err);
        if (result != STREAM_DONE) {
            channel_stop(channel, result, &err);
            return;
        }
        taken += n;
        if (!frame_reader_is_inside(&channel->reader))
            channel->begun_ns = clock_now_ns();
        if (channel->index != LINK_CONTROL)
            channel->link->heard_ns = clock_now_ns();
        switch (frame_reader_took(&channel->reader, n, &err)) {
        case FRAME_MORE:
            break;
        case FRAME_BEGUN:
            if (!give_memory(channel))
                return;
            break;
        case FRAME_COMPLETE:
            channel_complete(channel);
            break;
        case FRAME_BROKEN:
            link_fail(channel->link, &err);
            return;
        }
    }
}

void channel_run(struct channel *channel)
{
    struct link *link = channel->link;
    channel_drink(channel);
    if (link->phase == LINK_UP || link->phase == LINK_CLOSING)
        channel_pump(channel);
    if (link->phase == LINK_CLOSING)
        link_look(link);
}
