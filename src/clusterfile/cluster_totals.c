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

/* ---- the best few ---------------------------------------------------------------------- */

/* A set that grows from one device. */
struct totals_set {
    const struct totals_device *devices;
    uint32_t n_devices;
    uint32_t home;                        /* the first one's node */
    uint64_t way_ns[LIMIT_CLUSTER_NODES]; /* from there to a node; 0: unknown */
    uint32_t *chosen, n;
    bool used[LIMIT_CLUSTER_NODES]; /* its nodes */
};

static bool totals_set_reaches(const struct totals_set *set, uint32_t node)
{
    return node == set->home || (node < LIMIT_CLUSTER_NODES && set->way_ns[node]);
}

static bool totals_set_may_take(const struct totals_set *set, uint32_t index)
{
    const struct totals_device *device = &set->devices[index];
    bool taken = !device->has_free || !device->free_bytes || !totals_set_reaches(set, device->node);
    for (uint32_t j = 0; j < set->n && !taken; j++) {
        const struct totals_device *other = &set->devices[set->chosen[j]];
        taken =
            set->chosen[j] == index || (device->shares_host_memory && other->shares_host_memory &&
                                        other->node == device->node);
    }
    return !taken;
}

static bool totals_is_better(const struct totals_device *a, const struct totals_device *b)
{
    return a->decode_bytes_per_s > b->decode_bytes_per_s ||
           (a->decode_bytes_per_s == b->decode_bytes_per_s && a->free_bytes > b->free_bytes);
}

/* What it adds to the time of a token when it takes as much of `bytes` as it has room for. */
static double totals_set_cost(const struct totals_set *set, uint32_t index, uint64_t bytes)
{
    const struct totals_device *device = &set->devices[index];
    const uint64_t share = device->free_bytes < bytes ? device->free_bytes : bytes;
    const uint64_t rate = device->decode_bytes_per_s ? device->decode_bytes_per_s : 1;
    const bool is_new = device->node != set->home && !set->used[device->node];
    return (double)share / (double)rate + (is_new ? 2e-9 * (double)set->way_ns[device->node] : 0);
}

/* What costs the least for a byte, of equals the one with more room; n_devices: none. */
static uint32_t totals_set_next(const struct totals_set *set, uint64_t bytes)
{
    uint32_t best = set->n_devices;
    double best_cost = 0;
    for (uint32_t i = 0; i < set->n_devices; i++) {
        if (!totals_set_may_take(set, i))
            continue;
        const uint64_t free = set->devices[i].free_bytes;
        const double cost = totals_set_cost(set, i, bytes) / (double)(free < bytes ? free : bytes);
        if (best == set->n_devices || cost < best_cost ||
            (cost <= best_cost && free > set->devices[best].free_bytes)) {
            best = i;
            best_cost = cost;
        }
    }
    return best;
}

static void totals_set_links(struct totals_set *set, const struct totals_link *links, uint32_t n)
{
    memset(set->way_ns, 0, sizeof set->way_ns);
    for (uint32_t i = 0; i < n; i++) {
        const bool leaves = links[i].from == set->home;
        const uint32_t other = leaves ? links[i].to : links[i].from;
        if ((!leaves && links[i].to != set->home) || other >= LIMIT_CLUSTER_NODES)
            continue;
        if (links[i].latency_ns > set->way_ns[other])
            set->way_ns[other] = links[i].latency_ns; /* the slower direction */
    }
}

/* Until there is room: how long a token takes, in seconds; negative: there is none. */
static double totals_set_grow(struct totals_set *set, uint64_t bytes, uint32_t max)
{
    double token_s = 0;
    memset(set->used, 0, sizeof set->used);
    for (set->n = 0; bytes;) {
        const uint32_t next = totals_set_next(set, bytes);
        if (next == set->n_devices || set->n == max)
            return -1;
        const struct totals_device *device = &set->devices[next];
        token_s += totals_set_cost(set, next, bytes);
        set->chosen[set->n++] = next;
        bytes -= device->free_bytes < bytes ? device->free_bytes : bytes;
        if (device->node < LIMIT_CLUSTER_NODES)
            set->used[device->node] = true;
    }
    return token_s;
}

/* The fastest devices of different nodes. */
static uint32_t totals_list_starts(const struct totals_device *devices, uint32_t n_devices,
                                   uint32_t starts[TOTALS_STARTS])
{
    uint32_t n = 0;
    for (; n < TOTALS_STARTS; n++) {
        uint32_t best = n_devices;
        for (uint32_t i = 0; i < n_devices; i++) {
            bool known = !devices[i].has_free || !devices[i].free_bytes;
            for (uint32_t j = 0; j < n && !known; j++)
                known = devices[starts[j]].node == devices[i].node;
            if (!known && (best == n_devices || totals_is_better(&devices[i], &devices[best])))
                best = i;
        }
        if (best == n_devices)
            break;
        starts[n] = best;
    }
    return n;
}

uint32_t cluster_best_devices(const struct totals_device *devices, uint32_t n_devices,
                              const struct totals_link *links, uint32_t n_links, uint64_t bytes,
                              uint32_t *chosen, uint32_t max)
{
    uint32_t starts[TOTALS_STARTS];
    struct totals_set set = {.devices = devices, .n_devices = n_devices, .chosen = chosen};
    const uint32_t n_starts = totals_list_starts(devices, n_devices, starts);
    double best_s = -1;
    uint32_t best = 0;
    for (uint32_t i = 0; i < n_starts; i++) {
        set.home = devices[starts[i]].node;
        totals_set_links(&set, links, n_links);
        const double token_s = totals_set_grow(&set, bytes, max);
        if (token_s >= 0 && (best_s < 0 || token_s < best_s)) {
            best_s = token_s;
            best = i;
        }
    }
    if (best_s < 0)
        return 0;
    set.home = devices[starts[best]].node;
    totals_set_links(&set, links, n_links);
    totals_set_grow(&set, bytes, max);
    return set.n;
}
