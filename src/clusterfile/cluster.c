#include "clusterfile/cluster.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

const char *cluster_speed_name(enum cluster_speed speed)
{
    static const char *const names[] = {"guess", "datasheet", "given", "measured"};
    return names[speed];
}

const char *cluster_kind_name(enum cluster_kind kind)
{
    static const char *const names[] = {"gpu", "integrated gpu", "cpu"};
    return names[kind];
}

void cluster_deinit(struct cluster *cluster)
{
    if (!cluster)
        return;
    mem_free(cluster->nodes);
    mem_free(cluster->devices);
    mem_free(cluster->links);
    mem_free(cluster->link_assumed);
    *cluster = (struct cluster){0};
}

/* Room for one more, in powers of two; the array may have moved. */
static bool cluster_grow(void **array, uint32_t count, size_t size)
{
    if (count & (count - 1)) /* not full: a capacity is always a power of two */
        return true;
    void *more = mem_resize(*array, count ? 2 * (size_t)count : 1, size);
    if (!more)
        return false;
    *array = more;
    return true;
}

struct cluster_node *cluster_add_node(struct cluster *cluster)
{
    if (!cluster_grow((void **)&cluster->nodes, cluster->n_nodes, sizeof *cluster->nodes))
        return NULL;
    struct cluster_node *node = &cluster->nodes[cluster->n_nodes++];
    *node = (struct cluster_node){.first_device = cluster->n_devices};
    return node;
}

struct cluster_device *cluster_add_device(struct cluster *cluster)
{
    assert(cluster->n_nodes);
    if (!cluster_grow((void **)&cluster->devices, cluster->n_devices, sizeof *cluster->devices))
        return NULL;
    struct cluster_device *device = &cluster->devices[cluster->n_devices++];
    *device = (struct cluster_device){.node = cluster->n_nodes - 1};
    cluster->nodes[cluster->n_nodes - 1].n_devices++;
    return device;
}

struct topology_link *cluster_add_link(struct cluster *cluster, bool assumed)
{
    if (!cluster_grow((void **)&cluster->links, cluster->n_links, sizeof *cluster->links) ||
        !cluster_grow((void **)&cluster->link_assumed, cluster->n_links,
                      sizeof *cluster->link_assumed))
        return NULL;
    cluster->link_assumed[cluster->n_links] = assumed;
    struct topology_link *link = &cluster->links[cluster->n_links++];
    *link = (struct topology_link){0};
    return link;
}

uint32_t cluster_find_node(const struct cluster *cluster, const char *name)
{
    for (uint32_t i = 0; i < cluster->n_nodes; i++) {
        if (!strcmp(cluster->nodes[i].name, name))
            return i;
    }
    return UINT32_MAX;
}

uint32_t cluster_find_device(const struct cluster *cluster, uint32_t node, const char *id)
{
    const struct cluster_node *of = &cluster->nodes[node];
    for (uint32_t i = of->first_device; i < of->first_device + of->n_devices; i++) {
        if (!strcmp(cluster->devices[i].id, id))
            return i;
    }
    return UINT32_MAX;
}

bool cluster_share_memory(const struct cluster *cluster, uint32_t a, uint32_t b)
{
    const struct cluster_device *first = &cluster->devices[a], *second = &cluster->devices[b];
    return a == b ||
           (first->node == second->node && ((!first->own_memory && !second->own_memory) ||
                                            (first->pci[0] && !strcmp(first->pci, second->pci))));
}

/* Gigabit Ethernet and five-gigahertz Wi-Fi among them. Assumptions. */
static const struct {
    double latency_ns, bytes_per_s;
} assumptions[TOPOLOGY_CLASSES] = {
    [TOPOLOGY_LOOPBACK] = {20000, 2000000000},     [TOPOLOGY_SAME_HOST] = {20000, 2000000000},
    [TOPOLOGY_ETHERNET] = {200000, 117000000},     [TOPOLOGY_WIFI] = {2000000, 30000000},
    [TOPOLOGY_THUNDERBOLT] = {100000, 1000000000}, [TOPOLOGY_RDMA] = {5000, 2500000000},
};

bool cluster_link_assume(struct topology_link *link, bool *assumed)
{
    const bool has_bandwidth =
        link->bandwidth_bytes_per_s.valid || link->peer_bandwidth_bytes_per_s.valid;
    *assumed = !link->latency_ns.valid || !has_bandwidth;
    if (*assumed && link->class == TOPOLOGY_UNKNOWN)
        return false;
    if (!link->latency_ns.valid)
        link->latency_ns = reading_of(UNIT_DELAY_NS, assumptions[link->class].latency_ns);
    if (!has_bandwidth)
        link->bandwidth_bytes_per_s =
            reading_of(UNIT_BYTES_PER_S, assumptions[link->class].bytes_per_s);
    return true;
}

/* ---- one more ------------------------------------------------------------------------- */

static bool copy_node(const struct cluster *from, uint32_t index, const struct cluster_device *more,
                      struct cluster *out)
{
    const struct cluster_node *node = &from->nodes[index];
    struct cluster_node *copy = cluster_add_node(out);
    if (!copy)
        return false;
    memcpy(copy->name, node->name, sizeof copy->name);
    copy->memory_bytes = node->memory_bytes;
    for (uint32_t i = 0; i < node->n_devices + (more != NULL); i++) {
        struct cluster_device *device = cluster_add_device(out);
        if (!device)
            return false;
        *device = i < node->n_devices ? from->devices[node->first_device + i] : *more;
        device->node = index;
    }
    return true;
}

static bool copy_all(const struct cluster *from, uint32_t node, const struct cluster_device *device,
                     struct cluster *out)
{
    for (uint32_t i = 0; i < from->n_nodes; i++) {
        if (!copy_node(from, i, i == node ? device : NULL, out))
            return false;
    }
    for (uint32_t i = 0; i < from->n_links; i++) {
        struct topology_link *link = cluster_add_link(out, from->link_assumed[i]);
        if (!link)
            return false;
        *link = from->links[i];
    }
    return true;
}

enum error_code cluster_with_device(const struct cluster *cluster, uint32_t node,
                                    const struct cluster_device *device, struct cluster *out,
                                    struct error *err)
{
    assert(node < cluster->n_nodes);
    *out = (struct cluster){0};
    if (copy_all(cluster, node, device, out))
        return ERROR_NONE;
    cluster_deinit(out);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %u devices",
                     cluster->n_devices + 1);
}
