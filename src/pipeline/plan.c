#include "pipeline/plan.h"

#include "base/clock.h"
#include "base/limits.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "placement/check.h"
#include "placement/cost.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- the problem ---------------------------------------------------------------------- */

/* What computes from host memory has the token embedding there, too (engine/weights.c). */
static bool lives_in_host_memory(const struct device *device)
{
    struct device_speed speed;
    const struct device_info *info = device_info(device);
    return strcmp(info->backend, "cpu") == 0 || device_given_speed(device, &speed);
}

/* The most that any device's engine asks for. Simulated devices all compute on the CPU: one of them is asked. */
static enum error_code measure_compute(const struct model *model, const struct plan_request *request,
                                       const struct driver_options *options, struct plan_compute *out,
                                       struct error *err)
{
    bool asked_simulated = false;
    *out = (struct plan_compute){0};
    for (uint32_t i = 0; i < request->n_devices; i++) {
        struct device_speed speed;
        struct plan_compute compute;
        if (device_given_speed(request->devices[i], &speed)) {
            if (asked_simulated)
                continue;
            asked_simulated = true;
        }
        enum error_code code = plan_compute_measure(request->devices[i], model, options, &compute, err);
        if (code)
            return code;
        plan_compute_max(out, &compute);
    }
    return ERROR_NONE;
}

static enum error_code pose(struct plan *plan, const struct model *model, const struct plan_request *request,
                            const struct driver_options *options, struct error *err)
{
    struct plan_compute compute;
    bool embedding_counts = false;
    for (uint32_t i = 0; i < request->n_devices; i++)
        embedding_counts = embedding_counts || lives_in_host_memory(request->devices[i]);
    enum error_code code = measure_compute(model, request, options, &compute, err);
    if (!code)
        code = plan_model_init(&plan->model, model, options, &compute, embedding_counts, err);
    if (!code)
        code = plan_devices_init(&plan->devices, request->devices, request->n_devices, &plan->model.model, err);
    if (code)
        return code;
    plan->problem = (struct placement_problem){
        .n_devices = request->n_devices,
        .devices = plan->devices.devices,
        .links = plan->devices.links,
        .model = plan->model.model,
        .demand = plan_demand(options),
    };
    return placement_problem_check(&plan->problem, err);
}

/* ---- a split that was given ------------------------------------------------------------- */

static void list_ids(const struct plan_request *request, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < request->n_devices && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", device_info(request->devices[i])->id);
}

static enum error_code take_split(struct plan *plan, const struct model *model, const struct plan_request *request,
                                  struct error *err)
{
    uint32_t counts[LIMIT_STAGES], n_layers = model_hyperparameters(model)->n_layers;
    enum error_code code = plan_split_read(request->split, n_layers, counts, &plan->n_stages, err);
    if (code)
        return code;
    if (request->n_devices > 1 && plan->n_stages != request->n_devices) {
        char ids[256];
        list_ids(request, ids, sizeof ids);
        return error_set(err, ERROR_INVALID, "split '%s' has %u part%s for %u devices (%s)", request->split,
                         plan->n_stages, plan->n_stages == 1 ? "" : "s", request->n_devices, ids);
    }
    plan->is_given = true;
    for (uint32_t i = 0; i < plan->n_stages; i++)
        plan->stages[i] = (struct stage_plan){request->devices[request->n_devices > 1 ? i : 0], counts[i]};
    return ERROR_NONE;
}

/* The given stages as a placement, checked. */
static enum error_code check_split(struct plan *plan, struct error *err)
{
    struct placement *placement = &plan->solution.placement;
    uint32_t first_layer = 0;
    const bool one_device = plan->problem.n_devices == 1;
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (i && one_device)
            placement->stages[0].n_layers += plan->stages[i].n_layers;
        else
            placement->stages[placement->n_stages++] =
                (struct placement_stage){i, first_layer, plan->stages[i].n_layers};
        first_layer += plan->stages[i].n_layers;
    }
    if (one_device) /* each of the stages has buffers of its own, and is launched */
        plan->devices.devices[0].reserve_bytes += (plan->n_stages - 1) * plan->problem.model.compute_bytes;
    if (one_device)
        plan->devices.devices[0].launch_s *= plan->n_stages;
    enum error_code code = placement_check(&plan->problem, placement, err);
    return code ? error_wrap(err, "the split does not work") : ERROR_NONE;
}

/* ---- a split of our own ----------------------------------------------------------------- */

enum { SOLVE_NS = 1000 * 1000 * 1000 }; /* greedy has answered long before */

static bool before_deadline(void *deadline_ns)
{
    return clock_now_ns() < *(const uint64_t *)deadline_ns;
}

static double tokens_per_s(const struct placement_problem *problem, const struct placement *placement)
{
    struct placement_problem as_run = *problem; /* with a micro-batch for every stage */
    as_run.demand.micro_batches = placement->n_stages;
    const struct placement_cost cost = placement_decode_cost(&as_run, placement);
    return placement_decode_tokens_per_s(&as_run, &cost);
}

/* How many micro-batches are under way depends on the answer: every number is tried. */
static enum error_code solve(struct plan *plan, struct error *err)
{
    const uint64_t deadline_ns = clock_now_ns() + SOLVE_NS;
    struct placement_options options = placement_options_default();
    options.go_on = before_deadline;
    options.self = (void *)(uintptr_t)&deadline_ns;
    struct placement_problem problem = plan->problem;
    uint32_t most = 1;
    if (problem.demand.goal == PLACEMENT_THROUGHPUT)
        most = problem.demand.streams < problem.n_devices ? problem.demand.streams : problem.n_devices;
    double best = -1;
    bool proved = true;
    for (uint32_t m = 1; m <= most; m++) {
        struct placement_solution solution;
        problem.demand.micro_batches = m;
        enum error_code code = placement_solve(&problem, &options, &solution, err);
        if (code && m == 1)
            return code;
        proved = proved && !code && solution.proved;
        if (code)
            break;
        const double rate = tokens_per_s(&problem, &solution.placement);
        if (rate > best * (1 + 1e-9)) {
            best = rate;
            plan->solution = solution;
        }
    }
    plan->proved = proved;
    plan->problem.demand.micro_batches = plan->solution.placement.n_stages;
    return ERROR_NONE;
}

/* First without the spare devices, where nobody knows how fast they are. */
static enum error_code solve_sparing(struct plan *plan, const struct plan_request *request, struct error *err)
{
    bool all_measured = true;
    for (uint32_t i = 0; i < request->n_devices; i++)
        all_measured = all_measured && plan->devices.devices[i].measured;
    assert(request->n_spare < request->n_devices);
    const uint32_t n_first = request->n_devices - (all_measured ? 0 : request->n_spare);
    for (uint32_t i = n_first; i < request->n_devices; i++)
        plan->devices.devices[i].excluded = true;
    enum error_code code = solve(plan, err);
    if (code != ERROR_NOT_FOUND || n_first == request->n_devices)
        return code;
    for (uint32_t i = n_first; i < request->n_devices; i++)
        plan->devices.devices[i].excluded = false;
    return solve(plan, err);
}

static void take_solution(struct plan *plan, const struct plan_request *request)
{
    const struct placement *placement = &plan->solution.placement;
    plan->n_stages = placement->n_stages;
    for (uint32_t i = 0; i < placement->n_stages; i++)
        plan->stages[i] =
            (struct stage_plan){request->devices[placement->stages[i].device], placement->stages[i].n_layers};
}

static enum error_code make(struct plan *plan, const struct model *model, const struct plan_request *request,
                            struct error *err)
{
    struct driver_options options;
    enum error_code code = driver_options_fill(request->options, model, &options, err);
    if (!code && request->split)
        code = take_split(plan, model, request, err);
    if (!code)
        code = pose(plan, model, request, &options, err);
    if (code)
        return code;
    if (request->split)
        return check_split(plan, err);
    struct error why = {0};
    code = solve_sparing(plan, request, &why);
    if (code) {
        error_set(err, code, "%s", why.text);
        return code == ERROR_NOT_FOUND ? plan_refuse(&plan->problem, model, options.kv_type, err) : code;
    }
    code = placement_check(&plan->problem, &plan->solution.placement, err);
    if (!code)
        take_solution(plan, request);
    return code;
}

enum error_code plan_make(struct plan *out, const struct model *model, const struct plan_request *request,
                          struct error *err)
{
    struct error own;
    *out = (struct plan){0};
    err = err ? err : &own;
    if (!request->n_devices || request->n_devices > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "%u devices; there can be 1 to %d", request->n_devices, LIMIT_STAGES);
    enum error_code code = make(out, model, request, err);
    if (code)
        plan_deinit(out);
    return code;
}

void plan_deinit(struct plan *plan)
{
    if (!plan)
        return;
    plan_model_deinit(&plan->model);
    plan_devices_deinit(&plan->devices);
    *plan = (struct plan){0};
}
