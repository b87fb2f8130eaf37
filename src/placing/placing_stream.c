/* Stages of which a part is read from their nodes' disks: where nothing fits. */
#include "placing/placing_impl.h"

#include "base/mem.h"

#include <string.h>

enum { STREAM_SMALL_DEVICES = 6 }; /* a larger problem is not searched: greedy answers */

struct plan_stream_disk *placing_disks(const struct cluster *cluster)
{
    struct plan_stream_disk *disks = mem_new_array((size_t)cluster->n_devices + 1, sizeof *disks);
    for (uint32_t i = 0; disks && i < cluster->n_devices; i++) {
        const uint32_t node = cluster->devices[i].node;
        const uint64_t bps = cluster->nodes[node].disk_bytes_per_s;
        disks[i] = (struct plan_stream_disk){bps ? bps : PLAN_STREAM_DISK_BPS, node};
    }
    return disks;
}

bool placing_stream_of(const struct cluster *cluster, const struct placement_problem *problem,
                       struct plan_stream_placement *out)
{
    struct plan_stream_disk *disks = placing_disks(cluster);
    struct placement_options options = placement_options_default();
    options.max_nodes = PLAN_STREAM_NODES;
    options.greedy_only = problem->n_devices > STREAM_SMALL_DEVICES;
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
