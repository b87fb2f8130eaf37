/* Is the peer there? Pings on the control channel, and the deadlines of everything that a peer
 * could leave undone. */
#include "base/clock.h"
#include "mesh/link_state.h"

#include <string.h>

#define MS_NS UINT64_C(1000000)

static void link_alive_ping(struct link *link, uint64_t now_ns)
{
    link->pinged_ns = now_ns;
    uint8_t bytes[PING_BYTES];
    ping_write(&(struct ping){.number = link->ping_number++, .sent_ns = now_ns}, bytes);
    struct error err;
    const struct frame_header header = {.type = FRAME_PING, .length = PING_BYTES};
    if (channel_post(&link->channels[LINK_CONTROL], &header, bytes, true, &err))
        link_fail(link, &err);
}

static void answer_ping(struct link *link, const struct ping *asked, uint64_t received_ns)
{
    struct channel *control = &link->channels[LINK_CONTROL];
    if (control->bye_queued)
        return; /* the BYE is the last frame */
    uint8_t bytes[PONG_BYTES];
    pong_write(&(struct pong){asked->number, asked->sent_ns, received_ns, clock_now_ns()}, bytes);
    struct error err;
    const struct frame_header header = {.type = FRAME_PONG, .length = PONG_BYTES};
    if (channel_post(control, &header, bytes, true, &err))
        link_fail(link, &err);
}

/* ---- deadlines ----------------------------------------------------------------------------- */

/* A frame that drips in holds its memory: it must come within its time. */
static void check_frames(struct link *link, uint64_t now_ns)
{
    for (uint32_t i = 0; i < link->n_channels; i++) {
        const struct channel *channel = &link->channels[i];
        if (channel->paused || !frame_reader_is_inside(&channel->reader))
            continue;
        const uint64_t allowed_ms = LIMIT_FRAME_GRACE_MS + (uint64_t)channel->reader.header.length *
                                                               1000 / LIMIT_FRAME_BYTES_PER_S;
        if (now_ns > channel->begun_ns + allowed_ms * MS_NS)
            link_failf(link, ERROR_IO, "a frame of %u bytes did not arrive in %llu s",
                       channel->reader.header.length, (unsigned long long)(allowed_ms / 1000));
    }
}

static bool is_suspected(struct link *link, uint64_t now_ns)
{
    return link->watched && link->phase == LINK_UP &&
           pulse_suspects(&link->pulse, link->heard_ns, now_ns);
}

static void check_silence(struct link *link, uint64_t now_ns)
{
    const struct mesh_options *options = &link->mesh->options;
    const uint64_t silent_ms = now_ns > link->heard_ns ? (now_ns - link->heard_ns) / MS_NS : 0;
    if (silent_ms >= options->dead_ms) {
        link_failf(link, ERROR_IO, "nothing was heard for %llu ms", (unsigned long long)silent_ms);
    } else if (silent_ms < options->silence_ms && !is_suspected(link, now_ns)) {
        link->silent_told = false;
    } else if (!link->silent_told) {
        link->silent_told = true;
        if (options->events.silent)
            options->events.silent(options->events.self, link);
    }
}

static void check_doubt(struct link *link, uint64_t now_ns)
{
    if (link->doubt_ns == 0)
        return;
    if (link->heard_ns + LIMIT_LINK_DOUBT_MS * MS_NS > link->doubt_ns)
        link->doubt_ns = 0; /* heard since */
    else if (now_ns >= link->doubt_ns)
        link_failf(link, ERROR_IO, "the peer dials again and does not answer here");
}

static void look_at_packets(struct link *link)
{
    struct stream_packets sum = {.valid = true};
    for (uint32_t i = 0; i < link->n_channels; i++) {
        struct stream_packets packets;
        stream_packets(link->channels[i].stream, &packets);
        sum.sent += packets.sent;
        sum.lost += packets.lost;
        sum.valid &= packets.valid;
    }
    if (sum.valid)
        link_probe_packets(&link->probe, sum.sent, sum.lost);
}

/* A slow link may take its time over what is queued, but not for ever. */
static void check_closing(struct link *link, uint64_t now_ns)
{
    const struct link_counts counts = link_counts(link);
    const uint64_t bytes = counts.bytes_sent + counts.bytes_received;
    if (bytes != link->closing_bytes)
        link->closing_ns = now_ns + LIMIT_LINK_CLOSE_MS * MS_NS;
    link->closing_bytes = bytes;
    if (now_ns >= link->closing_ns || now_ns >= link->closing_end_ns)
        link_failf(link, ERROR_CANCELLED, "closed; not all of it was sent in time");
}

/* A link that is watched is looked at twice a ping; ticks are not exact. */
static bool is_ping_due(const struct link *link, uint64_t now_ns)
{
    const struct mesh_options *options = &link->mesh->options;
    const uint64_t every_ns = options->watch_ms * MS_NS;
    return !link->watched || now_ns - link->pinged_ns > every_ns - every_ns / 4;
}

static void link_alive_on_tick(uv_timer_t *timer)
{
    struct link *link = timer->data;
    const uint64_t now_ns = clock_now_ns();
    switch (link->phase) {
    case LINK_OPENING:
        link_failf(link, ERROR_IO, "its channels were not complete in time");
        break;
    case LINK_UP:
        if (is_ping_due(link, now_ns))
            link_alive_ping(link, now_ns);
        check_silence(link, now_ns);
        check_doubt(link, now_ns);
        check_frames(link, now_ns);
        look_at_packets(link);
        link_bursts_step(link, now_ns);
        break;
    case LINK_CLOSING:
        check_silence(link, now_ns);
        check_frames(link, now_ns);
        check_closing(link, now_ns);
        break;
    case LINK_DOWN:
        break;
    }
}

void link_alive_start(struct link *link)
{
    const struct mesh_options *options = &link->mesh->options;
    if (link->phase == LINK_OPENING) /* one tick, the deadline */
        uv_timer_start(&link->timer, link_alive_on_tick, options->greeting_ms, 0);
    else if (link->phase == LINK_UP) /* the first pings come soon: who plans wants to know */
        uv_timer_start(&link->timer, link_alive_on_tick,
                       options->ping_ms < 10 ? options->ping_ms : 10, options->ping_ms);
    else
        uv_timer_start(&link->timer, link_alive_on_tick, 100, 100);
}

void link_watch(struct link *link, bool closely)
{
    const struct mesh_options *options = &link->mesh->options;
    const uint32_t half_ms = options->watch_ms / 2 ? options->watch_ms / 2 : 1;
    if (link->watched == closely || link->phase != LINK_UP)
        return;
    link->watched = closely;
    link->pulse = (struct pulse){0};
    uv_timer_start(&link->timer, link_alive_on_tick, closely ? half_ms : options->ping_ms,
                   closely ? half_ms : options->ping_ms);
}

/* The measurements are of pings as they are sent at rest, so that they mean the same whoever
 * watches. */
static void take_pong(struct link *link, const struct pong *answer, uint64_t now_ns)
{
    const uint64_t every_ns = link->mesh->options.ping_ms * MS_NS;
    if (link->watched)
        pulse_beat(&link->pulse, now_ns);
    link_probe_hear_clock(&link->probe, answer, now_ns);
    if (link->watched && now_ns - link->probed_ns < every_ns - every_ns / 8)
        return;
    link->probed_ns = now_ns;
    link_probe_pong(&link->probe, answer, now_ns);
}

void link_doubt(struct link *link)
{
    if (link->phase != LINK_UP || link->doubt_ns)
        return;
    const uint64_t now_ns = clock_now_ns();
    link->doubt_ns = now_ns + LIMIT_LINK_DOUBT_MS * MS_NS;
    link_alive_ping(link, now_ns);
    if (!link->watched) /* else it is looked at often enough */
        uv_timer_start(&link->timer, link_alive_on_tick, LIMIT_LINK_DOUBT_MS,
                       link->mesh->options.ping_ms);
}

/* ---- frames -------------------------------------------------------------------------------- */

void link_alive_frame(struct link *link, struct channel *channel, const struct frame_header *header,
                      const uint8_t *payload)
{
    const uint64_t now_ns = clock_now_ns();
    struct error err = {0};
    struct ping asked;
    struct pong answer;
    struct burst_report report;
    enum error_code code = ERROR_NONE;
    switch (header->type) {
    case FRAME_PING:
        code = ping_read(payload, header->length, &asked, &err);
        if (!code)
            answer_ping(link, &asked, now_ns);
        break;
    case FRAME_PONG:
        code = pong_read(payload, header->length, &answer, &err);
        if (!code && answer.number < link->ping_number)
            take_pong(link, &answer, now_ns);
        break;
    case FRAME_BURST:
        code = link_bursts_frame(link, channel, payload, header->length, &err);
        break;
    default:
        code = burst_report_read(payload, header->length, &report, &err);
        if (!code)
            link_probe_report(&link->probe, &report, now_ns);
        break;
    }
    if (code)
        link_fail(link, &err);
}
