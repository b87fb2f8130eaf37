/* Stages of which a part is read from their nodes' disks: where nothing fits. */
#include "placing/placing_impl.h"

#include "base/mem.h"

#include <string.h>

enum { STREAM_SMALL_DEVICES = 6 }; /* a larger problem is not searched: greedy answers */

uint64_t placing_disk_of(const struct cluster *cluster, uint32_t device)
{
    const uint64_t bps = cluster->nodes[cluster->devices[device].node].disk_bytes_per_s;
    return bps ? bps : PLAN_STREAM_DISK_BPS;
}

static double device_speed(const struct placement_problem *problem, uint32_t device)
{
    const struct placement_device *of = &problem->devices[device];
    double best = 0;
    for (uint32_t i = 0; i < problem->model.n_types; i++)
        best = of->decode_bytes_per_s[i] > best ? of->decode_bytes_per_s[i] : best;
    return of->excluded ? 0 : best * of->share;
}

/* Of a node's devices, which share its disk, the one that computes fastest. */
static void disks_of(const struct cluster *cluster, const struct placement_problem *problem,
                     uint64_t *out)
{
    for (uint32_t n = 0; n < cluster->n_nodes; n++) {
        const struct cluster_node *node = &cluster->nodes[n];
        uint32_t best = UINT32_MAX;
        for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++) {
            out[i] = 0;
            if (device_speed(problem, i) > (best == UINT32_MAX ? 0 : device_speed(problem, best)))
                best = i;
        }
        if (best != UINT32_MAX)
            out[best] = placing_disk_of(cluster, best);
    }
}

bool placing_stream_of(const struct cluster *cluster, const struct placement_problem *problem,
                       struct plan_stream_placement *out)
{
    uint64_t *disks = mem_new_array(problem->n_devices, sizeof *disks);
    struct placement_options options = placement_options_default();
    options.max_nodes = PLAN_STREAM_NODES;
    options.greedy_only = problem->n_devices > STREAM_SMALL_DEVICES;
    if (disks)
        disks_of(cluster, problem, disks);
    const bool found = disks && plan_stream_place(problem, disks, &options, out);
    mem_free(disks);
    return found;
}

bool placing_stream(void *self, struct master_placement *out)
{
    struct placing *p = self;
    struct plan_stream_placement stream;
    if (p->model.is_converted || !placing_stream_of(&p->cluster, &p->posed.problem, &stream))
        return false;
    *out = (struct master_placement){0};
    master_placement_of(&stream.placement, p->names, out);
    for (uint32_t i = 0; i < out->n_stages; i++) {
        out->stages[i].weights_max = stream.stages[i].weights_max;
        out->stages[i].n_streamed = stream.stages[i].n_streamed;
    }
    return true;
}
