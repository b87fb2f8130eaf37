/* Bandwidth: bursts on the data channel while it is idle. probe.h decides when and what they
 * mean. */
#include "base/clock.h"
#include "base/mem.h"
#include "mesh/link_state.h"

#include <string.h>

enum { BURST_FRAME_BYTES = 16 * 1024 - FRAME_HEADER_BYTES, IDLE_MS = 200 };

static bool is_idle(const struct link *link, uint64_t now_ns)
{
    for (uint32_t i = LINK_DATA; i < link->n_channels; i++) {
        const struct channel *channel = &link->channels[i];
        if (channel->first || channel->paused ||
            channel->used_ns + IDLE_MS * UINT64_C(1000000) > now_ns)
            return false;
    }
    return !link->watch.active;
}

void link_bursts_step(struct link *link, uint64_t now_ns)
{
    if (!link->mesh->options.measures_bandwidth || !is_idle(link, now_ns))
        return;
    const uint64_t wanted = link_probe_due(&link->probe, now_ns);
    if (wanted == 0)
        return;
    const uint32_t n = (uint32_t)(wanted / BURST_FRAME_BYTES) + 1;
    struct channel *channel = &link->channels[LINK_DATA];
    struct burst burst = {.n_frames = n};
    burst.number = link_probe_began(&link->probe, (uint64_t)n * BURST_FRAME_BYTES, now_ns);
    const struct frame_header header = {.type = FRAME_BURST, .length = BURST_FRAME_BYTES};
    uint8_t payload[BURST_FRAME_BYTES] = {0};
    for (burst.place = 0; burst.place < n && link->phase == LINK_UP; burst.place++) {
        struct error err;
        burst_write(&burst, payload);
        if (channel_post(channel, &header, payload, true, &err))
            link_fail(link, &err);
    }
}

static void link_bursts_report(struct link *link, uint64_t now_ns)
{
    const struct burst_watch *watch = &link->watch;
    const struct burst_report seen = {watch->number, watch->bytes, now_ns - watch->half_ns};
    uint8_t bytes[BURST_REPORT_BYTES];
    burst_report_write(&seen, bytes);
    struct error err;
    const struct frame_header header = {.type = FRAME_BURST_REPORT, .length = BURST_REPORT_BYTES};
    struct channel *control = &link->channels[LINK_CONTROL];
    if (!control->bye_queued && channel_post(control, &header, bytes, true, &err))
        link_fail(link, &err);
}

enum error_code link_bursts_frame(struct link *link, struct channel *channel,
                                  const uint8_t *payload, uint32_t size, struct error *err)
{
    struct burst burst;
    enum error_code code = burst_read(payload, size, &burst, err);
    if (code)
        return code;
    const uint64_t now_ns = clock_now_ns();
    struct burst_watch *watch = &link->watch;
    if (burst.place == 0)
        *watch = (struct burst_watch){.number = burst.number, .active = true};
    if (!watch->active || burst.number != watch->number || burst.place != watch->n_seen)
        return ERROR_NONE; /* its begin was not seen */
    watch->n_seen++;
    if (burst.place >= burst.n_frames / 2 && watch->half_ns)
        watch->bytes += size;
    if (burst.place + 1 == burst.n_frames / 2 || burst.n_frames < 2)
        watch->half_ns = now_ns;
    if (burst.place + 1 == burst.n_frames) {
        watch->active = false;
        link_bursts_report(link, now_ns);
    }
    return ERROR_NONE;
}
