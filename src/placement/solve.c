#include "placement/solve.h"

#include "base/mem.h"
#include "base/size_text.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/exact.h"
#include "placement/greedy.h"
#include "placement/root.h"

#include <math.h>

struct placement_options placement_options_default(void)
{
    return (struct placement_options){.weights = PLACEMENT_WEIGHTS_DEFAULT};
}

/* The reason that is nearest to a remedy: a layer that fits nowhere, then all memory, then
 * links. */
static enum error_code say_missing(const struct placement_problem *problem, struct error *err)
{
    const uint32_t n_layers = problem->model.n_layers;
    uint64_t needed = 0, there = 0;
    for (uint32_t layer = 0; layer < n_layers; layer++) {
        const uint64_t bytes = placement_layer_bytes(problem, layer) + problem->model.compute_bytes;
        uint64_t most = 0;
        bool allowed = false;
        needed += placement_layer_bytes(problem, layer);
        for (uint32_t d = 0; d < problem->n_devices; d++) {
            if (!placement_layer_allowed(problem, d, layer))
                continue;
            const uint64_t room = placement_device_bytes(&problem->devices[d]);
            allowed = true;
            most = room > most ? room : most;
        }
        if (!allowed)
            return error_set(err, ERROR_NOT_FOUND,
                             "no usable device supports the types of layer %u", layer);
        if (most < bytes && n_layers > 1)
            return error_set(
                err, ERROR_NOT_FOUND,
                "layer %u needs %s with its KV cache and buffers; the largest device has %s "
                "(a shorter context or fewer streams need less)",
                layer, size_text(bytes).text, size_text(most).text);
    }
    uint32_t n_usable = 0;
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        const uint64_t room = placement_device_bytes(&problem->devices[d]);
        if (placement_device_usable(&problem->devices[d]) && room > problem->model.compute_bytes) {
            there += room - problem->model.compute_bytes;
            n_usable++;
        }
    }
    if (there < needed)
        return error_set(err, ERROR_NOT_FOUND,
                         "the model needs %s, %u devices have %s beside their buffers: %s are "
                         "missing (a shorter context, fewer streams or another device would help)",
                         size_text(needed).text, n_usable, size_text(there).text,
                         size_text(needed - there).text);
    if (problem->demand.weights_max)
        return error_set(err, ERROR_NOT_FOUND,
                         "no row of linked devices holds all layers with at most %s of weights "
                         "on each (--weights-memory)",
                         size_text(problem->demand.weights_max).text);
    return error_set(
        err, ERROR_NOT_FOUND,
        "%s are there for %s, but no order of linked devices can hold whole layers of it",
        size_text(there).text, size_text(needed).text);
}

/* The bound of all devices, then the search among those that it leaves. */
static enum error_code solve_prove(const struct placement_tables *tables,
                                   struct sequence_work *work, struct exact_limits *limits,
                                   struct placement_solution *solution, struct error *err)
{
    struct exact_result result = {0};
    double bound_s = 0, longest_limit_s = INFINITY;
    bool *out = mem_new(tables->n_devices);
    if (!out)
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for %u devices",
                         tables->n_devices);
    enum error_code code = root_search(tables, work, limits, &solution->placement,
                                       &solution->period_s, &bound_s, &longest_limit_s, out, err);
    solution->proved = !code && bound_s >= solution->period_s * (1 - PLACEMENT_EPSILON);
    limits->enough_s = limits->enough_gap > 0 ? bound_s * (1 + limits->enough_gap) : 0;
    if (!code && !solution->proved && !(solution->period_s <= limits->enough_s)) {
        code = exact_search(tables, work, limits, out, longest_limit_s, &solution->placement,
                            &solution->period_s, &result, err);
        solution->proved = result.proved;
        bound_s = fmax(bound_s, result.lower_bound_s);
    }
    solution->nodes = result.nodes;
    solution->lower_bound_s =
        solution->proved ? solution->period_s : fmin(bound_s, solution->period_s);
    if (!(solution->lower_bound_s < INFINITY))
        solution->lower_bound_s = 0;
    mem_free(out);
    return code;
}

static enum error_code solve_search(const struct placement_problem *problem,
                                    const struct placement_options *options,
                                    const struct placement_tables *tables,
                                    struct placement_solution *solution, struct error *err)
{
    struct sequence_work work = {0};
    double *scores = mem_new_array(problem->n_devices, sizeof *scores);
    enum error_code code =
        scores ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for scores");
    if (!code)
        code = sequence_work_init(&work, problem->model.n_layers, err);
    if (!code) {
        placement_scores(problem,
                         placement_weights_are_set(&problem->demand.weights)
                             ? &problem->demand.weights
                             : &options->weights,
                         scores);
        code = greedy_search(tables, &work, scores, &solution->placement, &solution->period_s, err);
        solution->greedy_s = solution->placement.n_stages ? solution->period_s : INFINITY;
    }
    if (!code && !options->greedy_only) {
        struct exact_limits limits = {options->go_on, options->self, options->max_nodes,
                                      options->enough_gap, 0};
        code = solve_prove(tables, &work, &limits, solution, err);
    }
    sequence_work_deinit(&work);
    mem_free(scores);
    return code;
}

enum error_code placement_solve(const struct placement_problem *problem,
                                const struct placement_options *options,
                                struct placement_solution *solution, struct error *err)
{
    struct placement_tables tables = {0};
    struct error own;
    err = err ? err : &own;
    *solution =
        (struct placement_solution){.period_s = options->below_s > 0 ? options->below_s : INFINITY};
    enum error_code code = placement_problem_check(problem, err);
    if (!code)
        code = tables_init(&tables, problem, err);
    tables.stages_min = options->stages_min;
    if (options->stages_max > 0 && options->stages_max < LIMIT_STAGES)
        tables.stages_max = options->stages_max;
    if (!code)
        code = solve_search(problem, options, &tables, solution, err);
    tables_deinit(&tables);
    if (code)
        return code;
    if (solution->placement.n_stages == 0) {
        solution->period_s = INFINITY;
        if (solution->proved)
            return say_missing(problem, err);
        return error_set(err, ERROR_BUSY, "the search ended before it found a placement");
    }
    if (placement_check(problem, &solution->placement, err)) {
        solution->placement.n_stages = 0;
        return error_wrap(err, "the solver's own answer");
    }
    return ERROR_NONE;
}

double placement_gap(const struct placement_solution *solution)
{
    if (solution->proved)
        return 0;
    return solution->lower_bound_s > 0 ? solution->period_s / solution->lower_bound_s - 1
                                       : INFINITY;
}
