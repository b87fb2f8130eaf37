#include "clusterfile/cluster_problem.h"

#include "base/mem.h"
#include "clusterfile/cluster_rates.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- devices --------------------------------------------------------------------------------- */

void cluster_device_describe(const struct cluster_device *device,
                             const struct placement_model *model, struct placement_device *out)
{
    uint64_t most = 0, all = 0, known = 0;
    /* The reader of files and placing, which hears what nodes say, let nothing else in. */
    assert(unit_is_plausible(UNIT_SHARE, device->share));
    assert(unit_is_plausible(UNIT_SHARE, device->share_error) && device->full_s >= 0);
    *out = (struct placement_device){
        .memory_free_bytes = device->memory_bytes,
        .reserve_bytes = device->reserve_bytes,
        .kv_bytes_per_s = cluster_kv_bytes_per_s(device),
        .copy_bytes_per_s = cluster_copy_bytes_per_s(device),
        .launch_s = device->launch_s > 0 || device->speed == CLUSTER_GIVEN
                        ? device->launch_s
                        : CLUSTER_LAUNCH_ASSUMED_S,
        .share = device->share,
        .full_s = device->full_s,
        .share_error = device->share_error,
        .thermal_headroom = device->headroom_share.valid ? device->headroom_share.value : 1,
        .excluded = device->spare,
    };
    snprintf(out->id, sizeof out->id, "%s", device->id);
    for (uint32_t type = 0; type < model->n_types; type++) {
        uint64_t bytes = model->output.bytes[type];
        for (uint32_t i = 0; i < model->n_layers; i++)
            bytes += model->layers[i].bytes[type];
        out->decode_bytes_per_s[type] = cluster_decode_bytes_per_s(device, model->type_names[type]);
        out->prefill_flops[type] = cluster_prefill_flops(device, model->type_names[type]);
        if (bytes > most) {
            most = bytes;
            out->spread = cluster_decode_spread(device, model->type_names[type]);
        }
        all += bytes;
        known += cluster_type_is_known(device, model->type_names[type]) ? bytes : 0;
    }
    out->measured = all - known <= all / 100;
}

/* Seconds to read the whole model once. */
static double cluster_problem_reading_s(const struct placement_model *model,
                                        const struct placement_device *device)
{
    double seconds = 0;
    for (uint32_t type = 0; type < model->n_types; type++) {
        double bytes = (double)model->output.bytes_per_token[type];
        for (uint32_t i = 0; i < model->n_layers; i++)
            bytes += (double)model->layers[i].bytes_per_token[type];
        seconds += bytes / device->decode_bytes_per_s[type];
    }
    return device->share > 0 && !device->excluded ? seconds / device->share : INFINITY;
}

/* ---- one memory, several devices ------------------------------------------------------------- */

/* The fastest of those that share memory with `index` (it may be that one) and have not got theirs;
 * n_devices: none. */
static uint32_t cluster_problem_next_of(const struct cluster_problem *p,
                                        const struct cluster *cluster, uint32_t index,
                                        const bool *served)
{
    uint32_t best = cluster->n_devices;
    double least_s = INFINITY;
    const struct cluster_node *node = &cluster->nodes[cluster->devices[index].node];
    for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++) {
        const double seconds = cluster_problem_reading_s(&p->problem.model, &p->devices[i]);
        if (served[i] || !cluster_share_memory(cluster, index, i))
            continue;
        if (best == cluster->n_devices || seconds < least_s) {
            best = i;
            least_s = seconds;
        }
    }
    return best;
}

static uint64_t pool_bytes(const struct cluster *cluster, uint32_t index)
{
    const struct cluster_device *device = &cluster->devices[index];
    const struct cluster_node *node = &cluster->nodes[device->node];
    uint64_t most = device->memory_bytes;
    if (!device->own_memory && node->memory_bytes)
        return node->memory_bytes;
    for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++) {
        if (cluster_share_memory(cluster, index, i) && cluster->devices[i].memory_bytes > most)
            most = cluster->devices[i].memory_bytes;
    }
    return most;
}

static void divide_memory(struct cluster_problem *p, const struct cluster *cluster, bool *served)
{
    for (uint32_t i = 0; i < cluster->n_devices; i++) {
        const uint64_t pool = pool_bytes(cluster, i);
        uint64_t left = pool;
        uint32_t first = cluster->n_devices;
        if (served[i])
            continue;
        for (uint32_t d;
             (d = cluster_problem_next_of(p, cluster, i, served)) < cluster->n_devices;) {
            struct placement_device *device = &p->devices[d];
            served[d] = true;
            first = first == cluster->n_devices ? d : first;
            p->memory_of[d] = first;
            left = left < pool / 16 ? 0 : left;
            if (device->memory_free_bytes > left)
                device->memory_free_bytes = left;
            if (device->reserve_bytes > device->memory_free_bytes)
                device->reserve_bytes = device->memory_free_bytes;
            left -= device->share > 0 && !device->excluded ? device->memory_free_bytes : 0;
        }
    }
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Of a message on the best path; what has none was not asked. */
static double path_s(const struct cluster_problem *p, uint32_t from, uint32_t to, uint64_t bytes)
{
    double seconds = 0;
    for (uint32_t at = from, next; at != to; at = next) {
        next = topology_paths_next(&p->paths, at, to);
        seconds += topology_link_time(topology_link(&p->topology, at, next), bytes).seconds;
    }
    return seconds;
}

static struct placement_link network_link(const struct cluster_problem *p, uint32_t from,
                                          uint32_t to)
{
    const uint64_t activation = p->problem.model.activation_bytes_per_token;
    const uint64_t small = activation * placement_rows(&p->problem);
    uint64_t large = activation * placement_chunk_tokens(&p->problem);
    if (!(topology_paths_seconds(&p->paths, from, to) < TOPOLOGY_APART))
        return (struct placement_link){0};
    if (large <= small)
        large = 2 * small + 4096;
    const double small_s = path_s(p, from, to, small);
    const double s_per_byte = (path_s(p, from, to, large) - small_s) / (double)(large - small);
    return (struct placement_link){fmax(0, small_s - (double)small * s_per_byte), 1 / s_per_byte};
}

static void cluster_problem_fill_links(struct cluster_problem *p, const struct cluster *cluster,
                                       struct placement_link *network)
{
    const uint32_t n = cluster->n_devices, n_nodes = cluster->n_nodes;
    for (uint32_t i = 0; i < n_nodes * n_nodes; i++)
        network[i] = i / n_nodes == i % n_nodes ? (struct placement_link){0}
                                                : network_link(p, i / n_nodes, i % n_nodes);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            const struct cluster_device *from = &cluster->devices[i], *to = &cluster->devices[j];
            struct placement_link *link = &p->links[(size_t)i * n + j];
            if (i == j)
                continue;
            *link = from->node == to->node ? (struct placement_link){0, PLACEMENT_RATE_MAX}
                                           /* from thread to thread */
                                           : network[(size_t)from->node * n_nodes + to->node];
        }
    }
}

static enum error_code make_links(struct cluster_problem *p, const struct cluster *cluster,
                                  struct error *err)
{
    const size_t n = cluster->n_nodes;
    const char **names = mem_new_array(n, sizeof *names);
    struct placement_link *network = mem_new_array(n * n, sizeof *network);
    enum error_code code = ERROR_NO_MEMORY;
    if (!names || !network) {
        error_set(err, code, "not enough memory for a cluster of %zu nodes", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        names[i] = cluster->nodes[i].name;
    code = topology_init(&p->topology, names, (uint32_t)n, cluster->links, cluster->n_links, err);
    if (!code)
        code = topology_paths_init(
            &p->paths, &p->topology,
            p->problem.model.activation_bytes_per_token * placement_rows(&p->problem), err);
    if (!code)
        cluster_problem_fill_links(p, cluster, network);
out:
    mem_free(network);
    mem_free(names);
    return code;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum error_code cluster_problem_take_memory(struct cluster_problem *p, uint32_t n,
                                                   struct error *err)
{
    p->devices = mem_new_array(n, sizeof *p->devices);
    p->links = mem_new_array((size_t)n * n, sizeof *p->links);
    p->memory_of = mem_new_array(n, sizeof *p->memory_of);
    if (p->devices && p->links && p->memory_of)
        return ERROR_NONE;
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %u devices", n);
}

static enum error_code cluster_problem_fill(struct cluster_problem *p,
                                            const struct cluster *cluster, struct error *err)
{
    bool *served = mem_new_array(cluster->n_devices, sizeof *served);
    if (!served)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %u devices",
                         cluster->n_devices);
    for (uint32_t i = 0; i < cluster->n_devices; i++) {
        const struct cluster_device *device = &cluster->devices[i];
        cluster_device_describe(device, &p->problem.model, &p->devices[i]);
        snprintf(p->devices[i].node, sizeof p->devices[i].node, "%s",
                 cluster->nodes[device->node].name);
    }
    divide_memory(p, cluster, served);
    mem_free(served);
    enum error_code code =
        placement_problem_check(&p->problem, err); /* its numbers are used from here on */
    if (!code)
        code = make_links(p, cluster, err);
    return code ? code : placement_problem_check(&p->problem, err);
}

enum error_code cluster_problem_init(struct cluster_problem *out, const struct cluster *cluster,
                                     const struct placement_model *model,
                                     const struct placement_demand *demand, struct error *err)
{
    *out = (struct cluster_problem){0};
    if (!cluster->n_devices || cluster->n_devices > LIMIT_PLACEMENT_DEVICES)
        return error_set(err, ERROR_INVALID, "%u devices; 1 to %d are possible", cluster->n_devices,
                         LIMIT_PLACEMENT_DEVICES);
    enum error_code code = cluster_problem_take_memory(out, cluster->n_devices, err);
    if (!code) {
        out->problem = (struct placement_problem){.n_devices = cluster->n_devices,
                                                  .devices = out->devices,
                                                  .links = out->links,
                                                  .model = *model,
                                                  .demand = *demand};
        code = cluster_problem_fill(out, cluster, err);
    }
    if (code)
        cluster_problem_deinit(out);
    return code;
}

void cluster_problem_deinit(struct cluster_problem *problem)
{
    if (!problem)
        return;
    mem_free(problem->devices);
    mem_free(problem->links);
    mem_free(problem->memory_of);
    topology_paths_deinit(&problem->paths);
    topology_deinit(&problem->topology);
    *problem = (struct cluster_problem){0};
}
