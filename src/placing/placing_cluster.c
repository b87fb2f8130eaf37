/* The cluster as placement has it, of the state and of what is seen. */
#include "placing/placing_impl.h"

#include "base/mem.h"
#include "clusterfile/cluster_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding --------------------------------------------------------------------------------- */

static int placing_cluster_compare(const void *a, const void *b)
{
    const struct placing_node *const *first = a, *const *second = b;
    return strcmp((*first)->node->id, (*second)->node->id);
}

static int compare_id(const void *id, const void *node)
{
    return strcmp(id, (*(const struct placing_node *const *)node)->node->id);
}

const struct placing_node *placing_find_node(const struct placing_gathered *gathered,
                                             const char *id)
{
    const struct placing_node *const *found =
        id ? bsearch(id, gathered->by_id, gathered->cluster.n_nodes, sizeof *gathered->by_id,
                     compare_id)
           : NULL;
    return found ? *found : NULL;
}

uint32_t placing_find_device(const struct placing_gathered *gathered, const Cluster__Stage *stage)
{
    const struct placing_node *node = placing_find_node(gathered, stage->node);
    return node && stage->device
               ? cluster_find_device(&gathered->cluster, node->index, stage->device)
               : UINT32_MAX;
}

const Node__DeviceNow *placing_device_now(const struct placing_node *node, const char *id)
{
    const Node__Now *now = node->seen ? node->seen->now : NULL;
    for (size_t i = 0; now && i < now->n_devices; i++) {
        if (now->devices[i]->id && !strcmp(now->devices[i]->id, id))
            return now->devices[i];
    }
    return NULL;
}

static const struct placing_seen *seen_of(const struct placing_view *view, const char *id)
{
    for (uint32_t i = 0; i < view->n_seen; i++) {
        if (!strcmp(view->seen[i].node, id))
            return &view->seen[i];
    }
    return NULL;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Printable, as a cluster file wants it, and another one than those before: of two nodes with one
 * name the second has the beginning of its id behind it, as much as is needed. */
static void name_node(const struct cluster *cluster, uint32_t index, const Cluster__Node *node,
                      char *out)
{
    enum { NAME_MAX_BYTES = 40 };
    char name[NAME_MAX_BYTES + 1];
    size_t size = 0;
    for (const char *at = node->name; *at && size < NAME_MAX_BYTES; at++)
        name[size++] = *at <= ' ' || *at > '~' || *at == '/' || *at == ',' ? '-' : *at;
    name[size] = '\0';
    snprintf(out, CLUSTER_NODE_MAX, "%s", name);
    for (int n_digits = 8; cluster_find_node(cluster, out) != index; n_digits++) {
        if (n_digits < CLUSTER_NODE_MAX - NAME_MAX_BYTES - 2)
            snprintf(out, CLUSTER_NODE_MAX, "%s-%.*s", name, n_digits, node->id);
        else /* ids that begin alike: nobody's hashes */
            snprintf(out, CLUSTER_NODE_MAX, "%s-%u", name, index);
    }
}

/* A share as peers say it. Nothing said, or more than there is: all. */
static double share_of_ppm(bool known, uint32_t ppm)
{
    return known && ppm < 1000000 ? ppm * 1e-6 : 1;
}

/* What it says of itself now. Where it computes all of its time and is predicted not to go on so,
 * the share is the predicted one, from some time on; where its time is cut already, the less of
 * both. */
static void placing_cluster_take_now(const struct placing_node *node, struct cluster_device *device)
{
    const Node__DeviceNow *now = placing_device_now(node, device->id);
    if (!node->seen || !node->seen->alive)
        device->share = 0;
    if (!now)
        return;
    const double duty = share_of_ppm(now->has_share_ppm, now->share_ppm);
    const double sustained = share_of_ppm(now->has_sustained_ppm, now->sustained_ppm);
    device->share *= fmin(duty, sustained);
    if (now->has_headroom_ppm)
        device->headroom_share = reading_of(UNIT_SHARE, share_of_ppm(true, now->headroom_ppm));
    if (duty < 1 || !now->has_sustained_ppm)
        return;
    device->share_error =
        now->has_sustained_error_ppm ? share_of_ppm(true, now->sustained_error_ppm) : 0;
    device->full_s = now->has_throttles_in_ms
                         ? fmin((double)now->throttles_in_ms / 1000, PLACEMENT_SECONDS_MAX)
                         : PLACEMENT_SECONDS_MAX;
}

static bool add_devices(struct placing_gathered *g, const struct placing_node *node)
{
    for (size_t i = 0; i < node->node->n_devices; i++) {
        const Cluster__Device *said = node->node->devices[i];
        struct cluster_device device;
        if (!placing_device_of(said, &device))
            continue;
        struct cluster_device *added = cluster_add_device(&g->cluster);
        if (!added)
            return false;
        const uint32_t index = g->cluster.n_devices - 1;
        device.node = node->index;
        placing_cluster_take_now(node, &device);
        g->names[index] = (struct master_device){node->node->id, said->id, device.own_memory};
        *added = device;
    }
    return true;
}

/* What no disk can do is not known. */
static uint64_t placing_disk_bytes_per_s(const struct placing_node *node)
{
    const Node__Now *now = node->seen ? node->seen->now : NULL;
    return now && now->has_disk_bytes_per_s && now->disk_bytes_per_s < (UINT64_C(1) << 40)
               ? now->disk_bytes_per_s
               : 0;
}

static bool add_nodes(const struct placing_view *view, struct placing_gathered *g)
{
    const Cluster__State *root = view->state->root;
    for (size_t i = 0; i < root->n_nodes; i++) {
        if (!root->nodes[i]->admitted)
            continue;
        const Cluster__Node *node = root->nodes[i]->node;
        struct cluster_node *added = cluster_add_node(&g->cluster);
        if (!added)
            return false;
        const uint32_t index = g->cluster.n_nodes - 1;
        name_node(&g->cluster, index, node, added->name);
        g->nodes[index] = (struct placing_node){node, seen_of(view, node->id), index};
        added->disk_bytes_per_s = placing_disk_bytes_per_s(&g->nodes[index]);
        g->by_id[index] = &g->nodes[index];
        if (!add_devices(g, &g->nodes[index]))
            return false;
    }
    qsort(g->by_id, g->cluster.n_nodes, sizeof *g->by_id, placing_cluster_compare);
    return true;
}

/* ---- links ----------------------------------------------------------------------------------- */

static struct topology_link placing_cluster_link_of(const Cluster__Link *said)
{
    const struct topology_link link = {
        .class = (enum topology_class)(
            said->has_class_ && said->class_ < TOPOLOGY_CLASSES ? said->class_ : 0),
        .latency_ns = {(double)said->latency_ns, said->has_latency_ns},
        .jitter_ns = {(double)said->jitter_ns, said->has_jitter_ns},
        .overhead_ns = {0, said->has_latency_ns}, /* it was measured between programs */
        .loss_share = {said->loss_ppm * 1e-6, said->has_loss_ppm},
        .bandwidth_bytes_per_s = {(double)said->bytes_per_s, said->has_bytes_per_s},
    };
    return topology_link_clean(link);
}

static bool is_alive(const struct placing_node *node)
{
    return node->seen && node->seen->alive;
}

static bool placing_cluster_misses(const struct placing_node *node,
                                   const struct placing_node *other)
{
    const Node__Now *now = node->seen ? node->seen->now : NULL;
    for (size_t i = 0; now && i < now->n_unreached; i++) {
        if (strcmp(now->unreached[i], other->node->id) == 0)
            return true;
    }
    return false;
}

/* The leader may hear both, and they not each other. */
static bool is_up(const struct placing_node *from, const struct placing_node *to)
{
    return is_alive(from) && is_alive(to) && !placing_cluster_misses(from, to) &&
           !placing_cluster_misses(to, from);
}

static bool add_links(const struct placing_view *view, struct placing_gathered *g)
{
    const Cluster__State *root = view->state->root;
    for (size_t i = 0; i < root->n_links; i++) {
        const struct placing_node *from = placing_find_node(g, root->links[i]->from);
        const struct placing_node *to = placing_find_node(g, root->links[i]->to);
        struct topology_link link = placing_cluster_link_of(root->links[i]);
        bool assumed;
        if (!from || !to || !cluster_link_assume(&link, &assumed))
            continue;
        struct topology_link *added = cluster_add_link(&g->cluster, assumed);
        if (!added)
            return false;
        *added = link;
        added->from = from->index;
        added->to = to->index;
        added->up = is_up(from, to);
    }
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static size_t placing_cluster_count_devices(const Cluster__State *root)
{
    size_t n = 0;
    for (size_t i = 0; i < root->n_nodes; i++)
        n += root->nodes[i]->node->n_devices;
    return n;
}

enum error_code placing_gather(const struct placing_view *view, struct placing_gathered *out,
                               struct error *err)
{
    const Cluster__State *root = view->state->root;
    *out = (struct placing_gathered){0};
    if (!root)
        return ERROR_NONE;
    const size_t n_nodes = root->n_nodes, n_devices = placing_cluster_count_devices(root);
    out->nodes = mem_new_array(n_nodes + 1, sizeof *out->nodes);
    out->by_id = mem_new_array(n_nodes + 1, sizeof *out->by_id);
    out->names = mem_new_array(n_devices + 1, sizeof *out->names);
    if (out->nodes && out->by_id && out->names && add_nodes(view, out) && add_links(view, out))
        return ERROR_NONE;
    placing_gathered_deinit(out);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %zu nodes", n_nodes);
}

void placing_gathered_deinit(struct placing_gathered *gathered)
{
    cluster_deinit(&gathered->cluster);
    mem_free(gathered->nodes);
    mem_free(gathered->by_id);
    mem_free(gathered->names);
    *gathered = (struct placing_gathered){0};
}

enum error_code placing_cluster(const struct placing_view *view, const char *instance,
                                struct cluster *out, struct error *err)
{
    struct placing_gathered gathered;
    *out = (struct cluster){0};
    enum error_code code = placing_gather(view, &gathered, err);
    if (!code)
        code = placing_count_memory(view, &gathered, instance, err);
    if (!code) {
        *out = gathered.cluster;
        gathered.cluster = (struct cluster){0};
    }
    placing_gathered_deinit(&gathered);
    return code;
}
