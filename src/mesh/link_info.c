/* What there is to know of a link. */
#include "mesh/link_state.h"

const uint8_t *link_peer(const struct link *link)
{
    return link->peer;
}

const struct hello *link_hello(const struct link *link)
{
    return &link->hello;
}

struct link_version link_version(const struct link *link)
{
    return link->version;
}

uint32_t link_channels(const struct link *link)
{
    return link->n_channels;
}

bool link_was_dialled(const struct link *link)
{
    return link->is_ours;
}

struct topology_link link_measured(const struct link *link)
{
    struct topology_link measured = link_probe_reading(&link->probe);
    measured.class = link->class;
    measured.up = link->phase == LINK_UP;
    return measured;
}

bool link_clock(const struct link *link, int64_t *ahead_ns)
{
    return link_probe_clock(&link->probe, ahead_ns);
}

struct link_counts link_counts(const struct link *link)
{
    struct link_counts sum = link->counts;
    for (uint32_t i = 0; i < link->n_channels; i++) {
        const struct link_counts *counts = &link->channels[i].counts;
        sum.frames_sent += counts->frames_sent;
        sum.frames_received += counts->frames_received;
        sum.bytes_sent += counts->bytes_sent;
        sum.bytes_received += counts->bytes_received;
    }
    return sum;
}

void link_set_data(struct link *link, void *data)
{
    link->data = data;
}

void *link_data(const struct link *link)
{
    return link->data;
}
