/* What all devices of nodes that are up are together, and the best few for each model. */
#include "base/buffer.h"
#include "clusterfile/cluster_totals.h"
#include "node/daemon_state.h"
#include "node/live.h"
#include "node/live_view.h"
#include "node/peers.h"
#include "node/telling.h"
#include "placing/placing.h"

#include <string.h>

enum { TOTALS_DEVICES_MAX = 4096, TOTALS_LINKS_MAX = 16384, TOTALS_BEST_MAX = 64 };

/* Large, and the loop's alone; of the last view_gather_totals(). */
struct totals_room {
    struct totals_device devices[TOTALS_DEVICES_MAX];
    const Cluster__Node *nodes[TOTALS_DEVICES_MAX];
    const Cluster__Device *described[TOTALS_DEVICES_MAX];
    uint32_t n_devices;
    uint64_t links[TOTALS_LINKS_MAX];          /* their bandwidths … */
    struct totals_link ways[TOTALS_LINKS_MAX]; /* … and the same links' ends and latencies */
    uint32_t n_links;
    uint64_t keys[LIMIT_CLUSTER_NODES]; /* of the nodes' ids (totals_key()) */
};
static struct totals_room totals_room;

static void totals_read_free(const struct live_view *view, const char *node, const char *id,
                             struct totals_device *out)
{
    const struct vitals_device *vitals = vitals_device_of(telling_vitals(view->daemon, node), id);
    const Node__Now *now = view_now_of(view, node);
    if (vitals && vitals->free_mib != VITALS_UNKNOWN) {
        out->has_free = true;
        out->free_bytes = (uint64_t)(uint32_t)vitals->free_mib << 20;
    }
    for (size_t i = 0; now && !out->has_free && i < now->n_devices; i++) {
        if (!now->devices[i]->id || strcmp(now->devices[i]->id, id) != 0)
            continue;
        out->has_free = now->devices[i]->has_free_bytes;
        out->free_bytes = now->devices[i]->free_bytes;
    }
}

static void totals_add_device(const struct live_view *view, const Cluster__Node *node,
                              uint32_t number, const Cluster__Device *device)
{
    struct cluster_device described;
    if (totals_room.n_devices == TOTALS_DEVICES_MAX || !placing_device_of(device, &described))
        return;
    const double rate = view_decode_rate(&described);
    struct totals_device made = {.node = number,
                                 .vendor = device->vendor,
                                 .shares_host_memory = !described.own_memory,
                                 .memory_bytes = device->memory_bytes,
                                 .decode_bytes_per_s = rate > 0 ? (uint64_t)rate : 0};
    totals_read_free(view, node->id, device->id, &made);
    totals_room.nodes[totals_room.n_devices] = node;
    totals_room.described[totals_room.n_devices] = device;
    totals_room.devices[totals_room.n_devices++] = made;
}

static bool totals_is_up(const struct live_view *view, const char *node)
{
    const struct peer *peer = daemon_peer(view->daemon, node);
    return strcmp(node, view->daemon->id) == 0 || (peer && peer->link && !peer->is_silent);
}

/* The first bytes of an id, which tell nearly all of them apart. */
static uint64_t totals_key(const char *node)
{
    uint64_t key = 0;
    memcpy(&key, node, strnlen(node, sizeof key));
    return key;
}

/* UINT32_MAX: there is no such node. */
static uint32_t totals_number_of(const Cluster__State *state, const char *node)
{
    const uint64_t key = totals_key(node);
    for (uint32_t i = 0; i < state->n_nodes && i < LIMIT_CLUSTER_NODES; i++) {
        if (totals_room.keys[i] == key && strcmp(state->nodes[i]->node->id, node) == 0)
            return i;
    }
    return UINT32_MAX;
}

static void totals_add_link(const Cluster__State *state, const Cluster__Link *link)
{
    totals_room.links[totals_room.n_links] = link->bytes_per_s;
    totals_room.ways[totals_room.n_links++] = (struct totals_link){
        totals_number_of(state, link->from), totals_number_of(state, link->to), link->latency_ns};
}

void view_gather_totals(struct live_view *view)
{
    const Cluster__State *state = daemon_state(view->daemon)->root;
    totals_room.n_devices = totals_room.n_links = 0;
    view->n_up = 0;
    for (size_t i = 0; view->daemon->is_member && state && i < state->n_nodes; i++) {
        const Cluster__Node *node = state->nodes[i]->node;
        if (i < LIMIT_CLUSTER_NODES)
            totals_room.keys[i] = totals_key(node->id);
        if (!state->nodes[i]->admitted || !totals_is_up(view, node->id))
            continue;
        view->n_up++;
        for (size_t j = 0; j < node->n_devices; j++)
            totals_add_device(view, node, (uint32_t)i, node->devices[j]);
    }
    for (size_t i = 0; view->daemon->is_member && state && i < state->n_links; i++) {
        const Cluster__Link *link = state->links[i];
        if (totals_room.n_links < TOTALS_LINKS_MAX && totals_is_up(view, link->from) &&
            totals_is_up(view, link->to))
            totals_add_link(state, link);
    }
}

static void totals_put_vendors(struct live_view *view, yyjson_mut_val *item,
                               const struct cluster_totals *totals)
{
    yyjson_mut_val *vendors = view_object(view, item, "vendors");
    for (uint32_t i = 0; i < totals->n_vendors; i++) {
        yyjson_mut_val *name = yyjson_mut_strcpy(view->doc, totals->vendors[i].name);
        yyjson_mut_obj_put(vendors, name, yyjson_mut_uint(view->doc, totals->vendors[i].n));
    }
}

void view_put_totals(struct live_view *view, yyjson_mut_val *root)
{
    const struct cluster_totals totals = cluster_totals_of(
        totals_room.devices, totals_room.n_devices, totals_room.links, totals_room.n_links);
    struct buffer summary = {0};
    yyjson_mut_val *item = view_object(view, root, "totals");
    view_whole(view, item, "devices", true, totals.n_devices);
    view_whole(view, item, "nodes_up", true, view->n_up);
    view_whole(view, item, "memory_bytes", totals.memory_bytes > 0, totals.memory_bytes);
    view_whole(view, item, "free_bytes", totals.has_free, totals.free_bytes);
    view_whole(view, item, "decode_bytes_per_s", totals.n_rated > 0, totals.decode_bytes_per_s);
    view_number(view, item, "fastest_to_slowest", totals.n_rated > 0,
                view_round(totals.fastest_to_slowest));
    view_whole(view, item, "bottleneck_link_bytes_per_s", totals.bottleneck_link_bytes_per_s > 0,
               totals.bottleneck_link_bytes_per_s);
    view_whole(view, item, "mean_link_bytes_per_s", totals.mean_link_bytes_per_s > 0,
               totals.mean_link_bytes_per_s);
    totals_put_vendors(view, item, &totals);
    cluster_totals_say(&totals, &summary);
    view_text(view, item, "summary", summary.data);
    buffer_deinit(&summary);
}

void view_put_best(struct live_view *view, yyjson_mut_val *model, uint64_t bytes)
{
    uint32_t chosen[TOTALS_BEST_MAX];
    const uint32_t n =
        cluster_best_devices(totals_room.devices, totals_room.n_devices, totals_room.ways,
                             totals_room.n_links, bytes, chosen, TOTALS_BEST_MAX);
    yyjson_mut_val *list = n ? yyjson_mut_obj_add_arr(view->doc, model, "best_devices") : NULL;
    for (uint32_t i = 0; i < n; i++) {
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(view->doc, list);
        view_text(view, item, "node", totals_room.nodes[chosen[i]]->id);
        view_text(view, item, "device", totals_room.described[chosen[i]]->id);
    }
}
