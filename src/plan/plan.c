#include "plan/plan.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/size_text.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "placement/as_run.h"
#include "placement/check.h"

#include <stdio.h>
#include <string.h>

/* ---- the problem ---------------------------------------------------------------------- */

/* From the devices; anew after some of them were called in. */
static enum error_code plan_pose(struct plan *plan, const struct plan_request *request,
                                 const struct driver_options *options, struct error *err)
{
    const struct placement_demand demand = plan_demand(options);
    cluster_problem_deinit(&plan->posed);
    enum error_code code =
        cluster_problem_init(&plan->posed, &plan->cluster, &plan->model.model, &demand, err);
    plan->problem = plan->posed.problem;
    for (uint32_t i = 0; i < plan->problem.n_devices; i++)
        plan->posed.devices[i].node[0] = '\0'; /* they are all of this one */
    for (uint32_t i = 0; i < plan->problem.n_devices && request->only; i++)
        plan->posed.devices[i].excluded |= request->devices[i] != request->only;
    return code;
}

static enum error_code plan_describe(struct plan *plan, const struct model *model,
                                     const struct plan_request *request,
                                     const struct driver_options *options, struct error *err)
{
    struct plan_compute compute;
    enum error_code code = plan_compute_measure_all(request->devices, request->n_devices, model,
                                                    options, &compute, err);
    if (!code)
        code = plan_devices_init(&plan->cluster, request->devices, request->n_devices, err);
    if (!code && request->beside)
        plan_devices_take(&plan->cluster, &request->beside->problem,
                          &request->beside->solution.placement);
    if (!code)
        code = plan_model_init(&plan->model, model, options, &compute,
                               plan_devices_count_embedding(&plan->cluster), err);
    return code;
}

/* ---- a split that was given ------------------------------------------------------------- */

static void plan_list_ids(const struct plan_request *request, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < request->n_devices && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "",
                                 device_info(request->devices[i])->id);
}

static enum error_code take_split(struct plan *plan, const struct model *model,
                                  const struct plan_request *request, struct error *err)
{
    uint32_t counts[LIMIT_STAGES], n_layers = model_hyperparameters(model)->n_layers;
    enum error_code code = plan_split_read(request->split, n_layers, counts, &plan->n_stages, err);
    if (code)
        return code;
    if (request->n_devices > 1 && plan->n_stages != request->n_devices) {
        char ids[256];
        plan_list_ids(request, ids, sizeof ids);
        return error_set(err, ERROR_INVALID, "split '%s' has %u part%s for %u devices (%s)",
                         request->split, plan->n_stages, plan->n_stages == 1 ? "" : "s",
                         request->n_devices, ids);
    }
    plan->is_given = true;
    for (uint32_t i = 0; i < plan->n_stages; i++)
        plan->stages[i] =
            (struct stage_plan){request->devices[request->n_devices > 1 ? i : 0], counts[i]};
    return ERROR_NONE;
}

/* Who gives a split may use all that there is: nothing is kept free, and no device takes the memory
 * of another. */
static void free_memory(struct plan *plan, bool limited)
{
    for (uint32_t i = 0; i < plan->problem.n_devices; i++) {
        plan->posed.devices[i].memory_free_bytes = plan->cluster.devices[i].memory_bytes;
        plan->posed.devices[i].reserve_bytes = 0;
        if (limited) /* what does not fit is streamed */
            plan->posed.devices[i].memory_free_bytes = PLACEMENT_BYTES_MAX;
    }
}

/* The given stages as a placement, checked. */
static enum error_code check_split(struct plan *plan, const struct plan_request *request,
                                   struct error *err)
{
    struct placement *placement = &plan->solution.placement;
    uint32_t first_layer = 0;
    const bool one_device = plan->problem.n_devices == 1;
    free_memory(plan, request->options->weights_max > 0);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        if (i && one_device)
            placement->stages[0].n_layers += plan->stages[i].n_layers;
        else
            placement->stages[placement->n_stages++] =
                (struct placement_stage){i, first_layer, plan->stages[i].n_layers};
        first_layer += plan->stages[i].n_layers;
    }
    if (one_device) /* each of the stages has buffers of its own, and is launched */
        plan->posed.devices[0].reserve_bytes +=
            (plan->n_stages - 1) * plan->problem.model.compute_bytes;
    if (one_device)
        plan->posed.devices[0].launch_s *= plan->n_stages;
    enum error_code code = placement_check(&plan->problem, placement, err);
    return code ? error_wrap(err, "the split is not possible") : ERROR_NONE;
}

/* ---- a split of our own ----------------------------------------------------------------- */

enum { SOLVE_S = 1 }; /* greedy has answered long before */

static bool before_deadline(void *deadline_ns)
{
    return clock_now_ns() < *(const uint64_t *)deadline_ns;
}

static enum error_code plan_solve(struct plan *plan, const struct plan_request *request,
                                  struct error *err)
{
    const uint64_t deadline_ns =
        clock_now_ns() + UINT64_C(1000000000) * (request->limit_s ? request->limit_s : SOLVE_S);
    struct placement_options options = placement_options_default();
    if (placement_weights_are_set(&request->weights))
        options.weights = request->weights;
    options.go_on = before_deadline;
    options.self = (void *)(uintptr_t)&deadline_ns;
    enum error_code code = placement_solve_as_run(&plan->problem, &options, &plan->solution, err);
    if (code)
        return code;
    plan->proved = plan->solution.proved;
    plan->problem.demand.micro_batches = plan->solution.placement.n_stages;
    return ERROR_NONE;
}

/* First without the spare devices, where nobody knows how fast they are. */
static enum error_code solve_sparing(struct plan *plan, const struct plan_request *request,
                                     const struct driver_options *options, struct error *err)
{
    const bool spared = plan_devices_spare(&plan->cluster, request->n_spare, &plan->model.model);
    enum error_code code = plan_pose(plan, request, options, err);
    if (!code)
        code = plan_solve(plan, request, err);
    if (code != ERROR_NOT_FOUND || !spared)
        return code;
    plan_devices_call_in(&plan->cluster);
    code = plan_pose(plan, request, options, err);
    return code ? code : plan_solve(plan, request, err);
}

/* ---- layers from the disk --------------------------------------------------------------- */

/* All layers on the device that was chosen, which from here on counts as large enough. What a batch
 * waits for the disk beyond its computing is added to what launching one takes. */
static void take_stream(struct plan *plan, const struct plan_request *request)
{
    const struct plan_stream *stream = &plan->stream;
    struct placement_device *device = &plan->posed.devices[stream->device];
    plan->solution.placement = (struct placement){1, {{stream->device, 0, stream->n_layers}}};
    plan->problem.demand.micro_batches = 1;
    plan->n_stages = 1;
    plan->stages[0] = (struct stage_plan){request->devices[stream->device], stream->n_layers};
    device->memory_free_bytes = PLACEMENT_BYTES_MAX;
    device->launch_s += 1 / stream->decode_tokens_per_s - 1 / stream->resident_tokens_per_s;
}

/* Layers are divided over devices that stream a part of them each. False: one device alone is as
 * fast, or none can. */
static bool plan_take_streams(struct plan *plan, const struct plan_request *request)
{
    const struct placement *placement = &plan->streams.placement;
    struct placement_options options = placement_options_default();
    options.max_nodes = PLAN_STREAM_NODES;
    if (request->n_devices < 2 ||
        !plan_stream_place_here(&plan->problem, plan->disk_bps, &options, &plan->streams) ||
        placement->n_stages < 2) {
        plan->streams = (struct plan_stream_placement){0};
        return false;
    }
    plan->solution.placement = *placement;
    plan->problem.demand.micro_batches = placement->n_stages;
    plan->n_stages = placement->n_stages;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const uint32_t at = placement->stages[i].device;
        struct placement_device *device = &plan->posed.devices[at];
        plan->stages[i] = (struct stage_plan){.device = request->devices[at],
                                              .n_layers = placement->stages[i].n_layers,
                                              .weights_max = plan->streams.stages[i].weights_max};
        device->memory_free_bytes = PLACEMENT_BYTES_MAX;
        device->launch_s += device->share * plan->streams.stages[i].wait_s;
    }
    return true;
}

bool plan_stream_say(const struct plan *plan, struct buffer *out)
{
    if (plan->streams.n_streamed)
        plan_stream_here_text(&plan->problem, &plan->streams, plan->disk_bps, out);
    else if (plan->stream.n_streamed)
        plan_stream_text(&plan->stream, plan->problem.devices[plan->stream.device].id, out);
    return plan->streams.n_streamed || plan->stream.n_streamed;
}

/* ERROR_NOT_FOUND: that does not help either. */
static enum error_code plan_try_stream(struct plan *plan, const struct model *model,
                                       const struct plan_request *request, struct error *err)
{
    enum error_code code = plan_stream_disk(model, &plan->disk_bps, err);
    if (code)
        return code;
    if (plan_take_streams(plan, request))
        return placement_check(&plan->problem, &plan->solution.placement, err);
    if (!plan_stream_choose(&plan->problem, request->options->weights_max, plan->disk_bps,
                            &plan->stream))
        return error_set(err, ERROR_NOT_FOUND, "not even a window of its layers fits");
    take_stream(plan, request);
    return placement_check(&plan->problem, &plan->solution.placement, err);
}

static void take_solution(struct plan *plan, const struct plan_request *request)
{
    const struct placement *placement = &plan->solution.placement;
    plan->n_stages = placement->n_stages;
    for (uint32_t i = 0; i < placement->n_stages; i++)
        plan->stages[i] = (struct stage_plan){request->devices[placement->stages[i].device],
                                              placement->stages[i].n_layers};
}

static uint32_t plan_index_of(const struct plan_request *request, const struct device *device)
{
    uint32_t i = 0;
    while (request->devices[i] != device)
        i++;
    return i;
}

static enum error_code plan_fill(struct plan *plan, const struct model *model,
                                 const struct plan_request *request, struct error *err)
{
    struct driver_options options;
    enum error_code code = driver_options_fill(request->options, model, &options, err);
    if (!code && request->split)
        code = take_split(plan, model, request, err);
    if (!code)
        code = plan_describe(plan, model, request, &options, err);
    if (!code && request->split)
        code = plan_pose(plan, request, &options, err);
    if (code)
        return code;
    if (request->split)
        return check_split(plan, request, err);
    struct error why = {0};
    code = solve_sparing(plan, request, &options, &why);
    if (request->may_stream && !plan->model.is_converted && code == ERROR_NOT_FOUND) {
        struct error no_stream;
        if (plan_try_stream(plan, model, request, &no_stream) == ERROR_NONE)
            return ERROR_NONE;
        if (options.weights_max)
            return error_set(err, code, "%s of memory for weights (--weights-memory): %s",
                             size_text(options.weights_max).text, no_stream.text);
    }
    if (code) {
        error_set(err, code, "%s", why.text);
        if (code == ERROR_NOT_FOUND && request->only)
            return plan_refuse_only(&plan->problem, plan_index_of(request, request->only), err);
        return code == ERROR_NOT_FOUND ? plan_refuse(&plan->problem, model, options.kv_type, err)
                                       : code;
    }
    code = placement_check(&plan->problem, &plan->solution.placement, err);
    if (!code)
        take_solution(plan, request);
    return code;
}

enum error_code plan_make(struct plan *out, const struct model *model,
                          const struct plan_request *request, struct error *err)
{
    struct error own;
    *out = (struct plan){0};
    err = err ? err : &own;
    if (!request->n_devices || request->n_devices > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "%u devices; there can be 1 to %d", request->n_devices,
                         LIMIT_STAGES);
    enum error_code code = plan_fill(out, model, request, err);
    if (code)
        plan_deinit(out);
    return code;
}

void plan_deinit(struct plan *plan)
{
    if (!plan)
        return;
    plan_model_deinit(&plan->model);
    cluster_problem_deinit(&plan->posed);
    cluster_deinit(&plan->cluster);
    *plan = (struct plan){0};
}
