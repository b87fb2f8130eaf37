#include "cluster/master.h"

#include "placement/as_run.h"
#include "placement/check.h"

static enum error_code solve(const struct master_planner *planner, const struct placement_problem *problem,
                             struct placement_solution *out, struct error *err)
{
    struct placement_problem as_run = *problem;
    struct placement_options options = placement_options_default();
    options.max_nodes = planner->max_nodes;
    return placement_solve_as_run(&as_run, &options, out, err);
}

enum error_code master_plan(void *self, const struct master_view *view, const Cluster__Instance *instance,
                            const bool *allowed, struct master_placement *out, struct error *err)
{
    const struct master_planner *planner = self;
    const struct placement_problem *problem;
    const struct master_device *devices;
    struct placement_solution solution;
    *out = (struct master_placement){0};
    enum error_code code = planner->problem(planner->self, view, instance, allowed, &problem, &devices, err);
    if (!code)
        code = placement_problem_check(problem, err);
    if (!code)
        code = solve(planner, problem, &solution, err);
    if (code == ERROR_NOT_FOUND && planner->call_in && planner->call_in(planner->self))
        code = solve(planner, problem, &solution, err);
    if (!code)
        code = placement_check(problem, &solution.placement, err);
    if (code)
        return code;
    out->n_stages = solution.placement.n_stages;
    for (uint32_t i = 0; i < out->n_stages; i++) {
        const struct placement_stage *stage = &solution.placement.stages[i];
        out->stages[i] = (struct master_stage){devices[stage->device].node, devices[stage->device].device,
                                               stage->first_layer, stage->n_layers};
    }
    return ERROR_NONE;
}
