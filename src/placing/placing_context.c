/* The context of an instance for which nobody gave one. */
#include "placing/placing_impl.h"

#include "model/model.h"
#include "placement/as_run.h"
#include "plan/plan_context.h"
#include "plan/plan_devices.h"

enum {
    SMALL_DEVICES = 6, /* a larger problem is not searched: greedy answers */
    SMALL_NODES = 2000,
};

struct context_trial {
    struct cluster *cluster;
    enum activation_type wire;
    const struct model *model;
    Cluster__Demand demand;
};

static enum error_code trial_solve(const struct cluster_problem *posed,
                                   struct placement_solution *out)
{
    struct placement_problem problem = posed->problem;
    struct placement_options options = placement_options_default();
    options.max_nodes = SMALL_NODES;
    options.greedy_only = problem.n_devices > SMALL_DEVICES;
    return placement_solve_as_run(&problem, &options, out, NULL);
}

/* Whether it fits; `longer` beyond NULL: which context is modest then. */
static bool trial_fits(const struct context_trial *trial, uint32_t *longer)
{
    struct placing_cost cost = {0};
    struct cluster_problem posed = {0};
    struct placement_solution solution;
    enum error_code code = placing_cost_of_model(
        &trial->demand, trial->model, plan_devices_count_embedding(trial->cluster), &cost, NULL);
    if (!code)
        code = cluster_problem_init(&posed, trial->cluster, &cost.model.model, &cost.demand, NULL);
    if (!code) {
        placing_adapt(trial->cluster, trial->wire, &posed);
        code = trial_solve(&posed, &solution);
    }
    if (!code && longer)
        *longer =
            plan_context_modest(&posed.problem, &solution.placement, trial->demand.context_tokens,
                                plan_context_most(trial->model));
    cluster_problem_deinit(&posed);
    plan_model_deinit(&cost.model);
    return !code;
}

static bool trial_fits_with(struct context_trial *trial, uint32_t context)
{
    trial->demand.context_tokens = context;
    return trial_fits(trial, NULL);
}

uint32_t placing_context_usual(const struct model *model)
{
    const uint32_t most = plan_context_most(model);
    return most < PLACING_CONTEXT_USUAL ? most : PLACING_CONTEXT_USUAL;
}

static uint32_t context_search(struct context_trial *trial, uint32_t wished)
{
    const uint32_t most = plan_context_most(trial->model);
    const uint32_t usual = !wished         ? placing_context_usual(trial->model)
                           : wished < most ? wished
                                           : most;
    uint32_t longer = usual;
    trial->demand.context_tokens = usual;
    bool fits = trial_fits(trial, &longer);
    if (!fits) {
        plan_devices_call_in(trial->cluster);
        fits = trial_fits(trial, &longer);
    }
    if (fits)
        return !wished && longer > usual && trial_fits_with(trial, longer) ? longer : usual;
    for (uint32_t less = usual / 2; less >= PLAN_CONTEXT_LEAST; less /= 2) {
        if (trial_fits_with(trial, less))
            return less;
    }
    return usual;
}

uint32_t placing_context(struct cluster *cluster, enum activation_type wire,
                         const struct model *model, const Cluster__Demand *demand, uint32_t wished)
{
    struct context_trial trial = {cluster, wire, model, *demand};
    bool spare[LIMIT_PLACEMENT_DEVICES];
    const uint32_t n = cluster->n_devices;
    if (!n || n > LIMIT_PLACEMENT_DEVICES)
        return placing_context_usual(model);
    for (uint32_t i = 0; i < n; i++)
        spare[i] = cluster->devices[i].spare;
    const struct rope_stretch rope = state_rope(demand);
    struct model *stretched = NULL;
    if (rope_stretch_is_set(&rope) && !model_stretch_copy(model, &rope, &stretched, NULL))
        trial.model = stretched;
    const uint32_t context = context_search(&trial, wished);
    model_close(stretched);
    for (uint32_t i = 0; i < n; i++)
        cluster->devices[i].spare = spare[i];
    return context;
}
