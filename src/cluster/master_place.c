#include "cluster/master.h"

#include "base/mem.h"
#include "placement/as_run.h"
#include "placement/check.h"
#include "placement/cost.h"

#include <string.h>

/* ---- what the current placement leaves ---- */

/* The problem without what the instance's current placement takes, in a copy of its devices. */
struct rest {
    struct placement_problem problem;
    struct placement_device *devices;
};

static uint32_t question_device(const struct placement_problem *problem,
                                const struct master_device *names, const char *node,
                                const char *device)
{
    uint32_t i = 0;
    while (i < problem->n_devices &&
           (strcmp(names[i].node, node) != 0 || strcmp(names[i].device, device) != 0))
        i++;
    return i;
}

static uint64_t question_take_bytes(uint64_t *from, uint64_t bytes)
{
    const uint64_t taken = *from < bytes ? *from : bytes;
    *from -= taken;
    return bytes - taken;
}

/* What the new stages on a device use of the weights that the old one has loaded there. */
static uint64_t shared_bytes(const struct placement_problem *problem, const Cluster__Stage *old,
                             const struct master_placement *new)
{
    const struct placement_stage was = {.first_layer = old->first_layer, .n_layers = old->n_layers};
    uint64_t bytes = 0;
    for (uint32_t i = 0; new && i < new->n_stages; i++) {
        const struct master_stage *stage = &new->stages[i];
        const struct placement_stage is = {.first_layer = stage->first_layer,
                                           .n_layers = stage->n_layers};
        if (strcmp(stage->node, old->node) == 0 && strcmp(stage->device, old->device) == 0)
            bytes += placement_shared_bytes(problem, &was, &is);
    }
    return bytes;
}

/* A problem has shared memory divided among the devices that live in it: what a device's part does
 * not cover was taken from its neighbours'. */
static void take_stage(struct rest *rest, const struct master_device *names,
                       const Cluster__Stage *stage, const struct master_placement *new)
{
    const uint32_t device = question_device(&rest->problem, names, stage->node, stage->device);
    if (device == rest->problem.n_devices)
        return;
    const struct placement_stage of = {device, stage->first_layer, stage->n_layers};
    const uint64_t whole = placement_stage_bytes(&rest->problem, &of),
                   shared = shared_bytes(&rest->problem, stage, new);
    uint64_t left = question_take_bytes(&rest->devices[device].memory_free_bytes,
                                        whole > shared ? whole - shared : 0);
    for (uint32_t i = 0; i < rest->problem.n_devices && left && !names[device].own_memory; i++) {
        if (!names[i].own_memory && strcmp(names[i].node, stage->node) == 0)
            left = question_take_bytes(&rest->devices[i].memory_free_bytes, left);
    }
    for (uint32_t i = 0; i < rest->problem.n_devices; i++) {
        struct placement_device *of_rest = &rest->devices[i];
        if (of_rest->reserve_bytes > of_rest->memory_free_bytes)
            of_rest->reserve_bytes = of_rest->memory_free_bytes;
    }
}

static enum error_code rest_of(const struct placement_problem *problem,
                               const struct master_device *names, const Cluster__Placement *current,
                               const struct master_placement *new, struct rest *out,
                               struct error *err)
{
    *out = (struct rest){.problem = *problem};
    out->devices = mem_new_array(problem->n_devices, sizeof *out->devices);
    if (!out->devices)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u devices",
                         problem->n_devices);
    memcpy(out->devices, problem->devices, problem->n_devices * sizeof *out->devices);
    out->problem.devices = out->devices;
    for (size_t i = 0; current && i < current->n_stages; i++)
        take_stage(out, names, current->stages[i], new);
    return ERROR_NONE;
}

/* ---- placing ---- */

struct question {
    const struct master_planner *planner;
    const char *instance;
    const struct placement_problem *problem;
    const struct master_device *devices;
    const Cluster__Placement *current; /* that stays loaded; NULL: none does */
};

enum error_code master_answer_ended(enum error_code code, struct error *err)
{
    return code == ERROR_BUSY
               ? error_set(err, ERROR_NOT_FOUND,
                           "no placement was found in the time of the search, and none is ruled "
                           "out: give it more (--time-limit), or more memory")
               : code;
}

static enum error_code question_solve(const struct question *q,
                                      const struct placement_problem *problem,
                                      struct placement_solution *out, struct error *err)
{
    const struct master_planner *planner = q->planner;
    struct placement_problem as_run = *problem;
    struct placement_options options = placement_options_default();
    if (planner->solve)
        return planner->solve(planner->solver, q->instance, q->current, problem, out, err);
    options.max_nodes = planner->max_nodes;
    return master_answer_ended(placement_solve_as_run(&as_run, &options, out, err), err);
}

/* *proved, where there is none: there is no placement, or none was found in time. */
static enum error_code question_answer(const struct question *q, struct placement *out,
                                       bool *proved, struct error *err)
{
    struct placement_solution solution = {.proved = true};
    struct rest rest;
    enum error_code code = rest_of(q->problem, q->devices, q->current, NULL, &rest, err);
    if (!code)
        code = placement_problem_check(&rest.problem, err);
    if (!code)
        code = question_solve(q, &rest.problem, &solution, err);
    if (!code)
        code = placement_check(&rest.problem, &solution.placement, err);
    if (!code)
        *out = solution.placement;
    *proved = solution.proved;
    mem_free(rest.devices);
    return code;
}

/* ---- checking ---- */

static enum error_code question_check(const struct question *q, const struct master_placement *said,
                                      struct error *err)
{
    struct placement placement = {.n_stages = said->n_stages};
    struct rest rest;
    for (uint32_t i = 0; i < said->n_stages; i++) {
        const struct master_stage *stage = &said->stages[i];
        const uint32_t device = question_device(q->problem, q->devices, stage->node, stage->device);
        if (device == q->problem->n_devices)
            return error_set(err, ERROR_NOT_FOUND,
                             "stage %u: device %.64s does not exist or may not be used", i,
                             stage->device);
        placement.stages[i] = (struct placement_stage){device, stage->first_layer, stage->n_layers};
    }
    enum error_code code = rest_of(q->problem, q->devices, q->current, said, &rest, err);
    if (!code)
        code = placement_check(&rest.problem, &placement, err);
    mem_free(rest.devices);
    return code;
}

void master_placement_of(const struct placement *placement, const struct master_device *names,
                         struct master_placement *out)
{
    out->n_stages = placement->n_stages;
    for (uint32_t i = 0; i < out->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        out->stages[i] =
            (struct master_stage){names[stage->device].node, names[stage->device].device,
                                  stage->first_layer, stage->n_layers};
    }
}

/* The best of all, if there is room for it beside what stays, with the weights that both use. The
 * solver does not know of those. */
static enum error_code ask_sharing(const struct question *q, struct master_placement *out,
                                   struct error *err)
{
    struct question alone = *q;
    struct placement placement;
    struct master_placement best = {0};
    bool proved;
    alone.current = NULL;
    enum error_code code = question_answer(&alone, &placement, &proved, err);
    if (code)
        return code;
    master_placement_of(&placement, q->devices, &best);
    code = question_check(q, &best, err);
    if (!code)
        *out = best;
    return code;
}

static enum error_code refuse_limit(const struct placement_demand *demand, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND,
                     "not even a window of its layers fits in the %llu bytes of --weights-memory, "
                     "or in the devices' memory: more of it, or a shorter context",
                     (unsigned long long)demand->weights_max);
}

/* ---- planning ---- */

enum error_code master_plan(void *self, const struct master_view *view,
                            const Cluster__Instance *instance, const bool *allowed, bool beside,
                            struct master_placement *out, struct error *err)
{
    const struct master_planner *planner = self;
    struct question q = {
        .planner = planner, .instance = instance->id, .current = beside ? instance->current : NULL};
    struct placement placement;
    bool proved;
    *out = (struct master_placement){0};
    enum error_code code =
        planner->problem(planner->self, view, instance, allowed, &q.problem, &q.devices, err);
    if (code)
        return code;
    code = question_answer(&q, &placement, &proved, err);
    if (code == ERROR_NOT_FOUND && planner->call_in && planner->call_in(planner->self))
        code = question_answer(&q, &placement, &proved, err);
    if (code == ERROR_NOT_FOUND && !(beside && instance->current) && planner->stream) {
        struct error why = {0};
        const enum error_code streams = planner->stream(planner->self, instance->id, out, &why);
        if (streams == ERROR_BUSY && err)
            *err = why;
        out->unproved = !streams && !proved;
        if (streams != ERROR_NOT_FOUND)
            return streams;
    }
    if (code && code != ERROR_BUSY && beside)
        return ask_sharing(&q, out, err);
    if (!code)
        master_placement_of(&placement, q.devices, out);
    return code == ERROR_NOT_FOUND && proved && q.problem->demand.weights_max
               ? refuse_limit(&q.problem->demand, err)
               : code;
}

enum error_code master_check_beside(const struct placement_problem *problem,
                                    const struct master_device *names,
                                    const Cluster__Placement *stays,
                                    const struct master_placement *placement, struct error *err)
{
    const struct question q = {.problem = problem, .devices = names, .current = stays};
    return question_check(&q, placement, err);
}

enum error_code master_check(const struct master_planner *planner, const struct master_view *view,
                             const Cluster__Instance *instance, const bool *allowed,
                             const struct master_placement *placement, bool *beside,
                             struct error *err)
{
    struct question q = {.planner = planner};
    *beside = false;
    enum error_code code =
        planner->problem(planner->self, view, instance, allowed, &q.problem, &q.devices, err);
    if (!code)
        code = placement_problem_check(q.problem, err);
    if (code)
        return code;
    if (planner->call_in) /* what stands by may be asked for by name */
        planner->call_in(planner->self);
    code = question_check(&q, placement, err);
    if (code)
        return code;
    q.current = instance->current;
    *beside = question_check(&q, placement, NULL) == ERROR_NONE;
    return ERROR_NONE;
}
