/* Stages of which a part is read from their nodes' disks: where nothing fits. */
#include "placing/placing_impl.h"

#include "base/mem.h"

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
                       const struct placement_options *options, struct plan_stream_placement *out)
{
    struct plan_stream_disk *disks = placing_disks(cluster);
    const struct placement_options usual = plan_stream_options(problem);
    const bool found = disks && plan_stream_place(problem, disks, options ? options : &usual, out);
    mem_free(disks);
    return found;
}

static enum error_code stream_search(const struct placing *p, const char *instance,
                                     struct plan_stream_placement *out, struct error *err)
{
    const struct placement_problem *problem = &p->posed.problem;
    struct plan_stream_disk *disks = placing_disks(&p->cluster);
    const struct placement_options options = plan_stream_options(problem);
    enum error_code code = ERROR_NOT_FOUND;
    if (disks && p->search_streams)
        code = p->search_streams(p->searcher, instance, problem, disks, out, err);
    else if (disks && plan_stream_place(problem, disks, &options, out))
        code = ERROR_NONE;
    mem_free(disks);
    return code;
}

enum error_code placing_stream(void *self, const char *instance, struct master_placement *out,
                               struct error *err)
{
    const struct placing *p = self;
    struct plan_stream_placement stream;
    const enum error_code code =
        p->model.is_converted ? ERROR_NOT_FOUND : stream_search(p, instance, &stream, err);
    if (code)
        return code;
    *out = (struct master_placement){0};
    master_placement_of(&stream.placement, p->names, out);
    for (uint32_t i = 0; i < out->n_stages; i++) {
        out->stages[i].weights_max = stream.stages[i].weights_max;
        out->stages[i].n_streamed = stream.stages[i].n_streamed;
    }
    return ERROR_NONE;
}
