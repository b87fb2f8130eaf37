#include "placement/changed.h"

#include "base/mem.h"

#include <string.h>

static enum error_code changed_no_memory(const struct placement_problem *problem, struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY,
                     "placement: not enough memory for %u devices and %u layers",
                     problem->n_devices, problem->model.n_layers);
}

enum error_code changed_init(struct changed *changed, const struct placement_problem *problem,
                             struct error *err)
{
    *changed = (struct changed){.problem = *problem};
    changed->devices = mem_new_array(problem->n_devices + 1, sizeof *changed->devices);
    changed->layers = mem_new_array(problem->model.n_layers, sizeof *changed->layers);
    if (!changed->devices || !changed->layers) {
        changed_deinit(changed);
        return changed_no_memory(problem, err);
    }
    memcpy(changed->devices, problem->devices, problem->n_devices * sizeof *changed->devices);
    memcpy(changed->layers, problem->model.layers,
           problem->model.n_layers * sizeof *changed->layers);
    changed->problem.devices = changed->devices;
    changed->problem.model.layers = changed->layers;
    return ERROR_NONE;
}

void changed_deinit(struct changed *changed)
{
    mem_free(changed->devices);
    mem_free(changed->layers);
    mem_free(changed->links);
    *changed = (struct changed){0};
}

static void link_last(struct changed *changed, uint32_t like, struct placement_link beside)
{
    const struct placement_device *devices = changed->devices;
    const uint32_t n = changed->problem.n_devices, last = n - 1;
    const bool other_node = strcmp(devices[like].node, devices[last].node) != 0;
    for (uint32_t d = 0; d < last; d++) {
        const bool near = d == like || (other_node && !strcmp(devices[d].node, devices[like].node));
        changed->links[(uint64_t)last * n + d] =
            near ? beside : changed->links[(uint64_t)like * n + d];
        changed->links[(uint64_t)d * n + last] =
            near ? beside : changed->links[(uint64_t)d * n + like];
    }
}

enum error_code changed_add(struct changed *changed, const struct placement_device *device,
                            uint32_t like, struct placement_link beside, struct error *err)
{
    const uint32_t n = changed->problem.n_devices;
    changed->links = mem_new_array((uint64_t)(n + 1) * (n + 1), sizeof *changed->links);
    if (!changed->links)
        return changed_no_memory(&changed->problem, err);
    for (uint32_t from = 0; from < n; from++)
        memcpy(changed->links + (uint64_t)from * (n + 1),
               placement_link(&changed->problem, from, 0), n * sizeof *changed->links);
    changed->devices[n] = *device;
    changed->problem.links = changed->links;
    changed->problem.n_devices = n + 1;
    link_last(changed, like, beside);
    return ERROR_NONE;
}
