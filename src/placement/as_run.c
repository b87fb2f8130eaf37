#include "placement/as_run.h"

#include "placement/cost.h"

#include <math.h>

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A stream's mean time for a token. */
static double token_s_as_run(struct placement_problem problem, const struct placement *placement)
{
    problem.demand.micro_batches = placement->n_stages;
    return placement_micro_batches(&problem) * placement_decode_cost(&problem, placement).objective_s;
}

enum error_code placement_solve_as_run(struct placement_problem *problem, const struct placement_options *options,
                                       struct placement_solution *out, struct error *err)
{
    const uint32_t possible = smaller(problem->n_devices, problem->demand.streams);
    const uint32_t most = smaller(possible, PLACEMENT_MICRO_BATCHES_TRIED);
    double best_s = INFINITY;
    bool proved = most == possible;
    if (problem->demand.goal == PLACEMENT_LATENCY || problem->demand.micro_batches)
        return placement_solve(problem, options, out, err);
    for (uint32_t m = 1; m <= most; m++) {
        struct placement_solution solution;
        problem->demand.micro_batches = m;
        const enum error_code code = placement_solve(problem, options, &solution, err);
        if (code && m == 1)
            return code;
        proved = proved && !code && solution.proved;
        const double token_s = code ? INFINITY : token_s_as_run(*problem, &solution.placement);
        if (token_s < best_s * (1 - 1e-9)) {
            best_s = token_s;
            *out = solution;
        }
    }
    problem->demand.micro_batches = out->placement.n_stages;
    out->proved = proved;
    if (!proved && most > 1) /* it bounds one number of micro-batches */
        out->lower_bound_s = 0;
    return ERROR_NONE;
}
