#include "clusterfile/cluster_totals.h"

#include "base/size_text.h"

#include <stdio.h>
#include <string.h>

static uint64_t totals_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Of one node: `devices` are its. */
static void totals_count_memory(struct cluster_totals *totals, const struct totals_device *devices,
                                uint32_t n)
{
    uint64_t host = 0, host_free = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct totals_device *device = &devices[i];
        const uint64_t unused = device->has_free ? device->free_bytes : 0;
        totals->has_free = totals->has_free && device->has_free;
        if (device->shares_host_memory) {
            host = device->memory_bytes > host ? device->memory_bytes : host;
            host_free = unused > host_free ? unused : host_free;
        } else {
            totals->memory_bytes = totals_add(totals->memory_bytes, device->memory_bytes);
            totals->free_bytes = totals_add(totals->free_bytes, unused);
        }
    }
    totals->memory_bytes = totals_add(totals->memory_bytes, host);
    totals->free_bytes = totals_add(totals->free_bytes, host_free);
}

static void totals_count_vendor(struct cluster_totals *totals, const char *vendor)
{
    if (!vendor || !*vendor)
        return;
    for (uint32_t i = 0; i < totals->n_vendors; i++) {
        if (strncmp(totals->vendors[i].name, vendor, TOTALS_VENDOR_BYTES - 1) == 0) {
            totals->vendors[i].n++;
            return;
        }
    }
    if (totals->n_vendors == TOTALS_VENDORS_MAX)
        return;
    struct totals_vendor *made = &totals->vendors[totals->n_vendors++];
    snprintf(made->name, sizeof made->name, "%s", vendor);
    made->n = 1;
}

static void totals_count_rates(struct cluster_totals *totals, const struct totals_device *devices,
                               uint32_t n)
{
    uint64_t slowest = 0, fastest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t rate = devices[i].decode_bytes_per_s;
        if (!rate)
            continue;
        slowest = !totals->n_rated++ || rate < slowest ? rate : slowest;
        fastest = rate > fastest ? rate : fastest;
        totals->decode_bytes_per_s = totals_add(totals->decode_bytes_per_s, rate);
    }
    totals->fastest_to_slowest = slowest ? (double)fastest / (double)slowest : 0;
}

static void totals_count_links(struct cluster_totals *totals, const uint64_t *bytes_per_s,
                               uint32_t n)
{
    double sum = 0;
    uint32_t n_measured = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t rate = bytes_per_s[i];
        if (!rate)
            continue;
        if (!n_measured++ || rate < totals->bottleneck_link_bytes_per_s)
            totals->bottleneck_link_bytes_per_s = rate;
        sum += (double)rate;
    }
    totals->mean_link_bytes_per_s = n_measured ? (uint64_t)(sum / n_measured) : 0;
}

struct cluster_totals cluster_totals_of(const struct totals_device *devices, uint32_t n_devices,
                                        const uint64_t *links_bytes_per_s, uint32_t n_links)
{
    struct cluster_totals totals = {.n_devices = n_devices, .has_free = n_devices > 0};
    for (uint32_t first = 0, next; first < n_devices; first = next) {
        for (next = first; next < n_devices && devices[next].node == devices[first].node; next++)
            totals_count_vendor(&totals, devices[next].vendor);
        totals_count_memory(&totals, devices + first, next - first);
        totals.n_nodes++;
    }
    totals_count_rates(&totals, devices, n_devices);
    totals_count_links(&totals, links_bytes_per_s, n_links);
    return totals;
}

static void totals_say_size(struct buffer *out, uint64_t bytes, const char *after)
{
    buffer_printf(out, "%s%s", size_text(bytes).text, after);
}

void cluster_totals_say(const struct cluster_totals *totals, struct buffer *out)
{
    buffer_printf(out, "%u %s on %u %s", totals->n_devices,
                  totals->n_devices == 1 ? "device" : "devices", totals->n_nodes,
                  totals->n_nodes == 1 ? "node" : "nodes");
    if (totals->memory_bytes) {
        buffer_text(out, ": ");
        totals_say_size(out, totals->memory_bytes, " of memory");
        if (totals->has_free) {
            buffer_text(out, ", ");
            totals_say_size(out, totals->free_bytes, " free");
        }
    }
    if (totals->n_rated)
        buffer_printf(out, "; together they read %.4g GB/s",
                      (double)totals->decode_bytes_per_s / 1e9);
    if (totals->n_rated > 1)
        buffer_printf(out, ", the fastest %.3g times as fast as the slowest",
                      totals->fastest_to_slowest);
    if (totals->bottleneck_link_bytes_per_s)
        buffer_printf(out, "; the slowest link carries %.3g MB/s",
                      (double)totals->bottleneck_link_bytes_per_s / 1e6);
}

/* The fastest that is not chosen yet, of equals the one with more room; n_devices: none. */
static uint32_t totals_next_best(const struct totals_device *devices, uint32_t n_devices,
                                 const uint32_t *chosen, uint32_t n_chosen)
{
    uint32_t best = n_devices;
    for (uint32_t i = 0; i < n_devices; i++) {
        bool taken = !devices[i].has_free || !devices[i].free_bytes;
        for (uint32_t j = 0; j < n_chosen && !taken; j++)
            taken = chosen[j] == i ||
                    (devices[i].shares_host_memory && devices[chosen[j]].shares_host_memory &&
                     devices[chosen[j]].node == devices[i].node);
        if (taken)
            continue;
        if (best == n_devices || devices[i].decode_bytes_per_s > devices[best].decode_bytes_per_s ||
            (devices[i].decode_bytes_per_s == devices[best].decode_bytes_per_s &&
             devices[i].free_bytes > devices[best].free_bytes))
            best = i;
    }
    return best;
}

uint32_t cluster_best_devices(const struct totals_device *devices, uint32_t n_devices,
                              uint64_t bytes, uint32_t *chosen, uint32_t max)
{
    uint64_t room = 0;
    uint32_t n = 0;
    while (room < bytes) {
        const uint32_t next = totals_next_best(devices, n_devices, chosen, n);
        if (next == n_devices || n == max)
            return 0;
        chosen[n++] = next;
        room = totals_add(room, devices[next].free_bytes);
    }
    return n;
}
