#include "placement/as_run.h"

#include "placement/cost.h"

#include <math.h>

static uint32_t as_run_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A stream's mean time for a token. */
static double token_s_as_run(struct placement_problem problem, const struct placement *placement)
{
    problem.demand.micro_batches = placement->n_stages;
    return placement_micro_batches(&problem) *
           placement_decode_cost(&problem, placement).objective_s;
}

struct tries {
    struct placement_problem *problem;
    struct placement_options options;
    struct placement_solution *out;
    double best_s;  /* for a token */
    double bound_s; /* the same; nothing that was looked for has less */
    double greedy_s;
    uint64_t nodes;
    bool proved; /* all until now */
};

/* With m micro-batches and as many stages; with the last number tried, or more. What is worse than
 * the best so far need not be known. */
static enum error_code try_number(struct tries *tries, uint32_t m, bool last, struct error *err)
{
    struct placement_solution solution;
    tries->problem->demand.micro_batches = m;
    tries->options.stages_min = m;
    tries->options.stages_max = last ? 0 : m;
    tries->options.below_s = tries->best_s < INFINITY ? tries->best_s / m : 0;
    const enum error_code code = placement_solve(tries->problem, &tries->options, &solution, err);
    if (code && code != ERROR_NOT_FOUND && code != ERROR_BUSY)
        return code;
    tries->nodes += solution.nodes;
    tries->greedy_s = fmin(tries->greedy_s, m * solution.greedy_s);
    tries->proved = tries->proved && code != ERROR_BUSY && (code || solution.proved);
    if (code != ERROR_NOT_FOUND)
        tries->bound_s = fmin(tries->bound_s, m * solution.lower_bound_s);
    if (code)
        return code;
    const double token_s = token_s_as_run(*tries->problem, &solution.placement);
    if (token_s < tries->best_s * (1 - 1e-9)) {
        tries->best_s = token_s;
        *tries->out = solution;
    }
    return ERROR_NONE;
}

enum error_code placement_solve_as_run(struct placement_problem *problem,
                                       const struct placement_options *options,
                                       struct placement_solution *out, struct error *err)
{
    const uint32_t possible = as_run_smaller(problem->n_devices, problem->demand.streams);
    const uint32_t most = as_run_smaller(possible, PLACEMENT_MICRO_BATCHES_TRIED);
    if (problem->demand.goal == PLACEMENT_LATENCY || problem->demand.micro_batches)
        return placement_solve(problem, options, out, err);
    struct tries tries = {.problem = problem,
                          .options = *options,
                          .out = out,
                          .best_s = INFINITY,
                          .bound_s = INFINITY,
                          .greedy_s = INFINITY,
                          .proved = true};
    struct error own;
    bool busy = false;
    err = err ? err : &own;
    *out = (struct placement_solution){.period_s = INFINITY, .greedy_s = INFINITY};
    for (uint32_t m = 1; m <= most; m++) {
        const enum error_code code = try_number(&tries, m, m == most, err);
        busy = busy || code == ERROR_BUSY;
        if (code && code != ERROR_NOT_FOUND && code != ERROR_BUSY)
            return code;
    }
    out->nodes = tries.nodes;
    out->proved = tries.proved;
    if (out->placement.n_stages == 0) /* the text is that of the last */
        return busy ? error_set(err, ERROR_BUSY, "the search ended before it found a placement")
                    : ERROR_NOT_FOUND;
    problem->demand.micro_batches = out->placement.n_stages;
    const uint32_t m = placement_micro_batches(problem);
    out->period_s = tries.best_s / m;
    out->greedy_s = tries.greedy_s / m;
    out->proved = tries.proved && most == possible;
    out->lower_bound_s = out->proved       ? out->period_s
                         : most < possible ? 0
                                           : fmin(tries.bound_s, tries.best_s) / m;
    return ERROR_NONE;
}
