/* Where a model would be placed that the cluster does not know yet. */
#include "placing/placing_impl.h"

#include "placement/as_run.h"
#include "plan/plan_devices.h"

#include <stdio.h>

enum {
    FORESEE_SMALL_DEVICES = 6, /* a larger problem is not searched: greedy answers */
    FORESEE_NODES = 20000,
};

static enum error_code foresee_solve(struct placing_gathered *gathered, enum activation_type wire,
                                     const struct placing_cost *cost,
                                     struct placement_solution *out, struct error *err)
{
    struct cluster_problem posed = {0};
    enum error_code code =
        cluster_problem_init(&posed, &gathered->cluster, &cost->model.model, &cost->demand, err);
    if (code)
        return code;
    placing_adapt(&gathered->cluster, wire, &posed);
    struct placement_options options = placement_options_default();
    options.max_nodes = FORESEE_NODES;
    options.greedy_only = posed.problem.n_devices > FORESEE_SMALL_DEVICES;
    code = placement_solve_as_run(&posed.problem, &options, out, err);
    cluster_problem_deinit(&posed);
    return code;
}

/* The context where nobody gave one, as daemon_demand() takes it. */
static void foresee_context(const struct placing_view *view, struct placing_gathered *gathered,
                            const struct model *model, Cluster__Demand *demand)
{
    if (!demand->context_tokens)
        demand->context_tokens = placing_context(&gathered->cluster, view->wire, model, demand, 0);
}

static void foresee_take(const struct placing_gathered *gathered, const struct placement *placement,
                         struct placing_foreseen *out)
{
    out->n_stages = placement->n_stages;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        struct placing_foreseen_stage *to = &out->stages[i];
        snprintf(to->node, sizeof to->node, "%s", gathered->names[stage->device].node);
        to->first_layer = stage->first_layer;
        to->n_layers = stage->n_layers;
    }
}

enum error_code placing_foresee(const struct placing_view *view, const struct model *model,
                                Cluster__Demand *demand, struct placing_foreseen *out,
                                struct error *err)
{
    struct placing_gathered gathered = {0};
    struct placing_cost cost = {0};
    struct placement_solution solution;
    out->n_stages = 0;
    enum error_code code = placing_gather(view, &gathered, err);
    if (!code && !gathered.cluster.n_devices)
        code = error_set(err, ERROR_NOT_FOUND, "no node of the cluster has a device");
    if (!code)
        code = placing_count_memory(view, &gathered, NULL, err);
    if (!code) {
        foresee_context(view, &gathered, model, demand);
        code = placing_cost_of_model(demand, model, plan_devices_count_embedding(&gathered.cluster),
                                     &cost, err);
    }
    if (!code) {
        const bool stands_by = plan_devices_stand_by(&gathered.cluster, &cost.model.model);
        code = foresee_solve(&gathered, view->wire, &cost, &solution, err);
        if (code == ERROR_NOT_FOUND && stands_by) {
            plan_devices_call_in(&gathered.cluster);
            code = foresee_solve(&gathered, view->wire, &cost, &solution, err);
        }
    }
    if (!code)
        foresee_take(&gathered, &solution.placement, out);
    plan_model_deinit(&cost.model);
    placing_gathered_deinit(&gathered);
    return code;
}
