#include "mesh/link.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/greeting.h"
#include "mesh/interface_class.h"
#include "mesh/link_state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- making one ---------------------------------------------------------------------------- */

static void link_release(void *owner)
{
    struct link *link = owner;
    if (--link->n_open > 0)
        return;
    struct mesh *mesh = link->mesh;
    if (link->previous)
        link->previous->next = link->next;
    else
        mesh->links = link->next;
    if (link->next)
        link->next->previous = link->previous;
    mesh->n_links--;
    for (uint32_t i = 0; i < LIMIT_LINK_CHANNELS; i++)
        channel_deinit(&link->channels[i]);
    mem_free(link);
    mesh_wake(mesh);
}

static void link_on_timer_closed(uv_handle_t *timer)
{
    link_release(timer->data);
}

enum error_code link_new(struct mesh *mesh, struct stream *control,
                         const uint8_t peer[NODE_ID_BYTES], const struct hello *hello,
                         uint32_t n_channels, bool is_ours, struct link **out, struct error *err)
{
    assert(n_channels >= 2 && n_channels <= LIMIT_LINK_CHANNELS);
    *out = NULL;
    struct link *link = mem_new(sizeof *link);
    if (!link) {
        stream_close(control, NULL, NULL);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a link");
    }
    link->mesh = mesh;
    link->is_ours = is_ours;
    link->n_channels = n_channels;
    link->n_open = 1;
    memcpy(link->peer, peer, NODE_ID_BYTES);
    link->hello = *hello;
    version_agree(mesh->options.version, hello->version, &link->version, NULL);
    link->session = hello->session;
    uv_timer_init(mesh->options.loop, &link->timer);
    link->timer.data = link;
    link->next = mesh->links;
    if (link->next)
        link->next->previous = link;
    mesh->links = link;
    mesh->n_links++;
    link_alive_start(link);
    link_attach(link, LINK_CONTROL, control);
    dials_see_link(mesh, link);
    *out = link;
    return ERROR_NONE;
}

void link_attach(struct link *link, uint32_t index, struct stream *stream)
{
    assert(index < link->n_channels && !link->channels[index].stream);
    channel_attach(&link->channels[index], link, index, stream);
    link->n_open++;
    if (link->phase == LINK_DOWN)
        return;
    if (index == LINK_CONTROL) {
        struct stream_addresses addresses;
        stream_addresses(stream, &addresses);
        link->class = interface_class((struct sockaddr *)&addresses.local,
                                      (struct sockaddr *)&addresses.peer, NULL);
    }
    if (++link->n_attached == link->n_channels)
        link_look(link); /* up in the next turn: no event from within a call */
}

void link_look(struct link *link)
{
    mesh_wake(link->mesh);
}

/* ---- going up and down ----------------------------------------------------------------------- */

static void go_up(struct link *link)
{
    const struct link_events *events = &link->mesh->options.events;
    link->phase = LINK_UP;
    link->was_up = true;
    link->up_ns = link->heard_ns = clock_now_ns();
    link_alive_start(link);
    log_line(LOG_INFO, "mesh", "a link is up: version %u.%u, %u channels, %s", link->version.major,
             link->version.minor, link->n_channels, link->hello.software);
    dials_link_up(link->mesh, link);
    if (events->up)
        events->up(events->self, link);
    for (uint32_t i = 0; i < link->n_channels; i++)
        channel_run(&link->channels[i]);
}

void link_fail(struct link *link, const struct error *why)
{
    if (link->phase == LINK_DOWN)
        return;
    link->phase = LINK_DOWN;
    link->why = *why;
    link_look(link);
}

void link_failf(struct link *link, enum error_code code, const char *format, ...)
{
    struct error err = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(err.text, sizeof err.text, format, args);
    va_end(args);
    link_fail(link, &err);
}

void link_finished_send(struct link *link, struct link_send *send, enum error_code code)
{
    send->next = NULL;
    send->position = code; /* until `done` is called */
    if (link->done_last)
        link->done_last->next = send;
    else
        link->done_first = send;
    link->done_last = send;
    link_look(link);
}

static void link_tell_done(struct link *link)
{
    while (link->done_first) {
        struct link_send *send = link->done_first;
        link->done_first = send->next;
        if (!link->done_first)
            link->done_last = NULL;
        if (send->done)
            send->done(send, (enum error_code)send->position);
    }
}

static void tear_down(struct link *link)
{
    const struct link_events *events = &link->mesh->options.events;
    link->torn = true;
    for (uint32_t i = 0; i < link->n_channels; i++)
        channel_cancel(&link->channels[i]);
    link_tell_done(link);
    log_line(LOG_INFO, "mesh", "a link is down: %s", link->why.text);
    if (link->was_up && events->down)
        events->down(events->self, link, &link->why);
    dials_link_down(link->mesh, link, &link->why);
    greetings_abandon(link->mesh, link);
    for (uint32_t i = 0; i < link->n_channels; i++) {
        struct stream *stream = link->channels[i].stream;
        if (stream)
            stream_close(stream, link_release, link);
    }
    uv_close((uv_handle_t *)&link->timer, link_on_timer_closed);
}

/* ---- closing in order ------------------------------------------------------------------------ */

/* The last frame of this end on a channel. */
static void say_bye(struct link *link, struct channel *channel)
{
    const struct frame_header bye = {.type = FRAME_BYE};
    struct error err;
    if (channel->bye_queued)
        return;
    channel->bye_queued = true;
    if (channel_post(channel, &bye, NULL, true, &err))
        link_fail(link, &err);
}

static void link_begin_closing(struct link *link)
{
    link->phase = LINK_CLOSING;
    link->closing_ns = clock_now_ns() + LIMIT_LINK_CLOSE_MS * UINT64_C(1000000);
    link->closing_end_ns = clock_now_ns() + 6 * LIMIT_LINK_CLOSE_MS * UINT64_C(1000000);
    link_alive_start(link);
    for (uint32_t i = 0; i < link->n_channels; i++) {
        link->channels[i].paused = false; /* nobody would resume it */
        link->channels[i].must_read = true;
    }
    link_look(link);
}

/* Who closes says BYE on all channels; the other end answers each when it has read it, and with it
 * all that came before: then who closes knows that everything has arrived. */
static void hear_bye(struct link *link, struct channel *channel)
{
    channel->bye_received = true;
    if (link->phase == LINK_UP)
        link_begin_closing(link);
    say_bye(link, channel);
    link_look(link);
}

void link_close(struct link *link)
{
    if (link->phase == LINK_OPENING)
        link_failf(link, ERROR_CANCELLED, "closed");
    if (link->phase != LINK_UP)
        return;
    link_begin_closing(link);
    for (uint32_t i = 0; i < link->n_channels; i++)
        say_bye(link, &link->channels[i]);
}

void link_abort(struct link *link, const struct error *why)
{
    link_fail(link, why);
}

/* All said and all heard? */
static void finish_closing(struct link *link)
{
    for (uint32_t i = 0; i < link->n_channels; i++) {
        const struct channel *channel = &link->channels[i];
        if (!channel_is_drained(channel) || !channel->bye_received)
            return;
    }
    for (uint32_t i = 0; i < link->n_channels; i++)
        stream_finish(link->channels[i].stream);
    link_failf(link, ERROR_CANCELLED, "closed in order");
}

/* ---- the turn -------------------------------------------------------------------------------- */

static void tell_drained(struct link *link)
{
    const struct link_events *events = &link->mesh->options.events;
    for (uint32_t i = 0; i < link->n_channels; i++) {
        struct channel *channel = &link->channels[i];
        if (link->phase != LINK_UP || !channel->was_full ||
            channel->queued_bytes > link->mesh->options.queue_bytes / 2)
            continue;
        channel->was_full = false;
        if (events->drained)
            events->drained(events->self, link, i);
    }
}

static void go_on_reading(struct link *link)
{
    for (uint32_t i = 0; i < link->n_channels; i++) {
        struct channel *channel = &link->channels[i];
        if (!channel->must_read || !link_is_reading(link))
            continue;
        channel->must_read = false;
        channel_run(channel);
    }
}

void link_turn(struct link *link)
{
    link_tell_done(link);
    if (link->phase == LINK_OPENING && link->n_attached == link->n_channels)
        go_up(link);
    tell_drained(link);
    go_on_reading(link);
    if (link->phase == LINK_CLOSING)
        finish_closing(link);
    if (link->phase == LINK_DOWN && !link->torn)
        tear_down(link);
}

/* ---- what the channels ask ------------------------------------------------------------------- */

bool link_is_reading(const struct link *link)
{
    return link->phase == LINK_UP || link->phase == LINK_CLOSING;
}

static void take_own_frame(struct link *link, struct channel *channel)
{
    const struct frame_header *header = &channel->reader.header;
    switch ((enum frame_type)header->type) {
    case FRAME_BYE:
        hear_bye(link, channel);
        break;
    case FRAME_PING:
    case FRAME_PONG:
    case FRAME_BURST:
    case FRAME_BURST_REPORT:
        link_alive_frame(link, channel, header, channel->reader.payload);
        break;
    case FRAME_HELLO:
    case FRAME_REFUSAL:
        link_failf(link, ERROR_INVALID, "the other end said hello twice");
        break;
    case FRAME_USER:
    default:
        link->counts.unknown_frames++;
        break;
    }
}

void link_take_frame(struct link *link, struct channel *channel)
{
    const struct link_events *events = &link->mesh->options.events;
    const struct frame_header *header = &channel->reader.header;
    if (channel->index == LINK_CONTROL)
        link->heard_ns = clock_now_ns();
    if (header->type < FRAME_USER) {
        take_own_frame(link, channel);
        return;
    }
    channel->used_ns = clock_now_ns();
    if (events->frame)
        events->frame(events->self, link, channel->index, header, channel->reader.payload);
}

/* ---- the public calls ------------------------------------------------------------------------ */

enum error_code link_post(struct link *link, uint32_t channel, const struct frame_header *header,
                          const void *payload, struct error *err)
{
    assert(channel < link->n_channels && header->type >= FRAME_USER);
    return channel_post(&link->channels[channel], header, payload, false, err);
}

enum error_code link_send(struct link *link, uint32_t channel, struct link_send *send,
                          struct error *err)
{
    assert(channel < link->n_channels && send->type >= FRAME_USER);
    return channel_send(&link->channels[channel], send, err);
}

uint64_t link_queued_bytes(const struct link *link, uint32_t channel)
{
    assert(channel < link->n_channels);
    return link->channels[channel].queued_bytes;
}

void link_pause(struct link *link, uint32_t channel)
{
    assert(channel != LINK_CONTROL && channel < link->n_channels);
    if (link->phase == LINK_UP || link->phase == LINK_OPENING)
        link->channels[channel].paused = true;
}

void link_resume(struct link *link, uint32_t index)
{
    assert(index != LINK_CONTROL && index < link->n_channels);
    struct channel *channel = &link->channels[index];
    channel->paused = false;
    channel->must_read = true;
    channel->begun_ns = clock_now_ns();
    link_look(link);
}
