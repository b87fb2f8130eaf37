#include "placement/check.h"

#include "placement/cost.h"

#define MIB(bytes) ((double)(bytes) / (1024 * 1024))

static enum error_code check_order(const struct placement_problem *problem,
                                   const struct placement *placement, struct error *err)
{
    uint64_t next_layer = 0;
    if (placement->n_stages == 0 || placement->n_stages > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "%u stages; 1 to %d are possible", placement->n_stages,
                         LIMIT_STAGES);
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        if (stage->device >= problem->n_devices)
            return error_set(err, ERROR_INVALID, "stage %u: there is no device %u", i,
                             stage->device);
        if (stage->n_layers == 0)
            return error_set(err, ERROR_INVALID, "stage %u has no layers", i);
        if (stage->first_layer != next_layer)
            return error_set(err, ERROR_INVALID, "stage %u begins at layer %u, not %llu", i,
                             stage->first_layer, (unsigned long long)next_layer);
        next_layer += stage->n_layers;
        for (uint32_t j = 0; j < i; j++) {
            if (placement->stages[j].device == stage->device)
                return error_set(err, ERROR_INVALID, "stages %u and %u are on one device, %s", j, i,
                                 problem->devices[stage->device].id);
        }
    }
    if (next_layer != problem->model.n_layers)
        return error_set(err, ERROR_INVALID, "%llu of %u layers are placed",
                         (unsigned long long)next_layer, problem->model.n_layers);
    return ERROR_NONE;
}

static enum error_code check_stage(const struct placement_problem *problem,
                                   const struct placement_stage *stage, struct error *err)
{
    const struct placement_device *device = &problem->devices[stage->device];
    if (!placement_device_usable(device))
        return error_set(err, ERROR_INVALID, "%s is not to be used", device->id);
    for (uint32_t layer = stage->first_layer; layer < stage->first_layer + stage->n_layers;
         layer++) {
        if (!placement_layer_allowed(problem, stage->device, layer))
            return error_set(err, ERROR_INVALID, "%s cannot use the types of layer %u", device->id,
                             layer);
    }
    const uint64_t needed = placement_stage_bytes(problem, stage),
                   there = placement_device_bytes(device);
    if (needed > there)
        return error_set(err, ERROR_INVALID,
                         "%s: layers %u to %u need %.1f MiB; %.1f MiB are available", device->id,
                         stage->first_layer, stage->first_layer + stage->n_layers - 1, MIB(needed),
                         MIB(there));
    return ERROR_NONE;
}

static enum error_code check_link(const struct placement_problem *problem, uint32_t from,
                                  uint32_t to, struct error *err)
{
    if (placement_linked(problem, from, to))
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID, "there is no link from %s to %s",
                     problem->devices[from].id, problem->devices[to].id);
}

enum error_code placement_check(const struct placement_problem *problem,
                                const struct placement *placement, struct error *err)
{
    struct error own;
    err = err ? err : &own;
    if (check_order(problem, placement, err))
        return error_wrap(err, "placement");
    const struct placement_stage *stages = placement->stages;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const uint32_t next = i + 1 < placement->n_stages ? i + 1 : 0;
        if (check_stage(problem, &stages[i], err) ||
            check_link(problem, stages[i].device, stages[next].device, err))
            return error_wrap(err, "placement: stage %u", i);
    }
    return ERROR_NONE;
}

/* ---- several groups --------------------------------------------------------------------- */

static enum error_code check_apart(const struct placement_problem *problem,
                                   const struct placement_groups *groups, uint32_t a, uint32_t b,
                                   struct error *err)
{
    const struct placement *one = &groups->groups[a].placement,
                           *other = &groups->groups[b].placement;
    for (uint32_t i = 0; i < one->n_stages; i++) {
        for (uint32_t j = 0; j < other->n_stages; j++) {
            if (one->stages[i].device == other->stages[j].device)
                return error_set(err, ERROR_INVALID, "groups %u and %u are both on %s", b, a,
                                 problem->devices[one->stages[i].device].id);
        }
    }
    return ERROR_NONE;
}

enum error_code placement_check_groups(const struct placement_problem *problem,
                                       const struct placement_groups *groups, struct error *err)
{
    struct error own;
    err = err ? err : &own;
    uint64_t streams = 0;
    if (groups->n_groups == 0 || groups->n_groups > PLACEMENT_GROUPS_MAX)
        return error_set(err, ERROR_INVALID, "%u groups; 1 to %d are possible", groups->n_groups,
                         PLACEMENT_GROUPS_MAX);
    for (uint32_t i = 0; i < groups->n_groups; i++) {
        const struct placement_group *group = &groups->groups[i];
        const struct placement_problem problem_of = placement_of_group(problem, group);
        if (group->streams == 0 || group->streams > problem->demand.streams)
            return error_set(err, ERROR_INVALID, "group %u has %u of %u streams", i, group->streams,
                             problem->demand.streams);
        if (placement_check(&problem_of, &group->placement, err))
            return error_wrap(err, "group %u", i);
        for (uint32_t j = 0; j < i; j++) {
            if (check_apart(problem, groups, i, j, err))
                return err->code;
        }
        streams += group->streams;
    }
    if (streams != problem->demand.streams)
        return error_set(err, ERROR_INVALID, "the groups have %llu streams of %u",
                         (unsigned long long)streams, problem->demand.streams);
    return ERROR_NONE;
}
