#include "plan/plan_stream_place.h"

#include "base/mem.h"
#include "base/size_text.h"
#include "engine/weight_disk.h"
#include "engine/weight_window.h"
#include "placement/as_run.h"
#include "placement/cost.h"
#include "placement/forecast.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { TRIALS = 12, STREAM_SLOT_SLACK = 2 * WEIGHT_DISK_ALIGN };

/* ---- one stage ------------------------------------------------------------------------------- */

static uint64_t streamable_bytes(const struct placement_problem *problem, uint32_t layer)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < problem->model.n_types; i++)
        sum += problem->model.layers[layer].bytes[i];
    return sum;
}

static uint64_t stage_weights(const struct placement_problem *problem,
                              const struct placement_stage *stage)
{
    return placement_shared_bytes(problem, stage, stage);
}

static uint64_t stage_window(const struct placement_problem *problem,
                             const struct placement_stage *stage, uint64_t weights_max,
                             struct weight_window_plan *out, bool *fits)
{
    struct weight_window_layer layers[LIMIT_LAYERS];
    uint64_t ends = stage_weights(problem, stage), least;
    for (uint32_t i = 0; i < stage->n_layers; i++) {
        layers[i].resident = streamable_bytes(problem, stage->first_layer + i);
        layers[i].slot = layers[i].resident + STREAM_SLOT_SLACK;
        ends -= layers[i].resident;
    }
    *fits = weights_max > ends &&
            weight_window_plan_make(layers, stage->n_layers, weights_max - ends, out, &least);
    return ends;
}

bool plan_stream_stage_of(const struct placement_problem *problem,
                          const struct placement_stage *stage, uint64_t weights_max,
                          struct plan_stream_stage *out)
{
    struct weight_window_plan window;
    const uint64_t all = stage_weights(problem, stage);
    bool fits;
    *out = (struct plan_stream_stage){0};
    if (all <= weights_max)
        return true;
    stage_window(problem, stage, weights_max, &window, &fits);
    if (!fits)
        return false;
    out->weights_max = weights_max;
    out->n_streamed = window.n_streamed;
    out->missing_bytes = all - weights_max;
    for (uint32_t i = 0; i < stage->n_layers; i++)
        out->streamed_bytes +=
            window.is_streamed[i] ? streamable_bytes(problem, stage->first_layer + i) : 0;
    return true;
}

double plan_stream_wait_s(const struct placement_problem *problem,
                          const struct placement_stage *stage, uint64_t streamed_bytes,
                          uint64_t disk_bps)
{
    assert(disk_bps);
    const double reads_s = (double)streamed_bytes / (double)disk_bps;
    return fmax(0, reads_s - placement_stage_s(problem, stage, placement_decode_load(problem)));
}

/* ---- a trial --------------------------------------------------------------------------------- */

struct stream_search {
    const struct placement_problem *problem;
    const uint64_t *disk_bps;
    uint64_t shared_bps; /* of the one disk that disk_bps are parts of; 0: each has its own */
    const struct placement_options *options;
    struct placement_device *devices; /* as large as the trial has them */
    uint64_t slots_bytes;             /* of a window */
};

/* The limit of a stage's weights in a trial is one for all: that of the fastest disk. A device that
 * does not stream must not have more than the limit itself. */
static uint64_t trial_memory(const struct stream_search *search, uint32_t index)
{
    const struct placement_problem *problem = search->problem;
    const struct placement_device *device = &problem->devices[index];
    const uint64_t most = problem->demand.weights_max,
                   all = device->reserve_bytes + problem->model.compute_bytes + most;
    return most && !search->disk_bps[index] && all < device->memory_free_bytes
               ? all
               : device->memory_free_bytes;
}

static uint64_t trial_weights_max(const struct stream_search *search, double reads_s)
{
    const uint64_t most = search->problem->demand.weights_max;
    uint64_t fastest = 0;
    for (uint32_t i = 0; i < search->problem->n_devices; i++)
        fastest = search->disk_bps[i] > fastest ? search->disk_bps[i] : fastest;
    const double more = reads_s * (double)fastest - (double)search->slots_bytes;
    return most && more > 0 ? most + (uint64_t)fmin(more, PLACEMENT_BYTES_MAX / 4.0) : most;
}

static void trial_enlarge(struct stream_search *search, double reads_s)
{
    const struct placement_problem *problem = search->problem;
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        struct placement_device *device = &search->devices[i];
        *device = problem->devices[i];
        device->memory_free_bytes = trial_memory(search, i);
        const double streamed = reads_s * (double)search->disk_bps[i],
                     more = fmin(streamed, PLACEMENT_BYTES_MAX / 4.0) - (double)search->slots_bytes;
        if (search->disk_bps[i] && more > 0 && device->memory_free_bytes < PLACEMENT_BYTES_MAX / 2)
            device->memory_free_bytes += (uint64_t)more;
    }
}

/* Which part of each stage is streamed, by the memory that is really there. */
static bool trial_divide(const struct stream_search *search, struct plan_stream_placement *out)
{
    const struct placement_problem *problem = search->problem;
    out->n_streamed = 0;
    for (uint32_t i = 0; i < out->placement.n_stages; i++) {
        const struct placement_stage *stage = &out->placement.stages[i];
        const uint64_t room = placement_device_bytes(&problem->devices[stage->device]),
                       weights = stage_weights(problem, stage),
                       other = placement_stage_bytes(problem, stage) - weights;
        uint64_t most = room > other ? room - other : 0;
        if (problem->demand.weights_max && problem->demand.weights_max < most)
            most = problem->demand.weights_max;
        if (!most || !plan_stream_stage_of(problem, stage, most, &out->stages[i]))
            return false;
        if (out->stages[i].n_streamed && !search->disk_bps[stage->device])
            return false;
        out->n_streamed += out->stages[i].n_streamed;
    }
    return true;
}

static double stream_speed(const struct placement_problem *problem,
                           const struct placement *placement)
{
    struct placement_forecast forecast;
    placement_forecast(problem, placement, &forecast);
    return forecast.decode_tokens_per_s;
}

/* One disk serves stages that compute at the same time with all that they stream together, others
 * one after the other. */
static double trial_wait_s(const struct stream_search *search,
                           const struct placement_problem *rated,
                           const struct plan_stream_placement *of, uint32_t i)
{
    const struct placement_stage *stage = &of->placement.stages[i];
    uint64_t bytes = of->stages[i].streamed_bytes;
    const uint64_t bps = search->shared_bps ? search->shared_bps : search->disk_bps[stage->device];
    for (uint32_t k = 0; k < of->placement.n_stages; k++) {
        if (k != i && search->shared_bps && placement_micro_batches(rated) > 1)
            bytes += of->stages[k].streamed_bytes;
    }
    return plan_stream_wait_s(search->problem, stage, bytes, bps);
}

/* The devices become as large as they would have to be, and launching takes as long as waiting. */
static void trial_rate(struct stream_search *search, struct plan_stream_placement *out)
{
    struct placement_problem rated = *search->problem;
    rated.devices = search->devices;
    rated.demand.micro_batches = out->placement.n_stages;
    for (uint32_t i = 0; i < rated.n_devices; i++) {
        search->devices[i] = search->problem->devices[i];
        search->devices[i].memory_free_bytes = PLACEMENT_BYTES_MAX;
        search->devices[i].reserve_bytes = 0;
    }
    out->resident_tokens_per_s = stream_speed(&rated, &out->placement);
    for (uint32_t i = 0; i < out->placement.n_stages; i++) {
        const struct placement_stage *stage = &out->placement.stages[i];
        struct placement_device *device = &search->devices[stage->device];
        if (out->stages[i].n_streamed)
            out->stages[i].wait_s = trial_wait_s(search, &rated, out, i);
        device->launch_s += device->share * out->stages[i].wait_s;
    }
    out->decode_tokens_per_s = stream_speed(&rated, &out->placement);
}

static bool stream_try(struct stream_search *search, double reads_s,
                       struct plan_stream_placement *out)
{
    struct placement_problem trial = *search->problem;
    struct placement_solution solution;
    *out = (struct plan_stream_placement){0};
    trial.devices = search->devices;
    trial.demand.weights_max = trial_weights_max(search, reads_s);
    trial_enlarge(search, reads_s);
    if (placement_solve_as_run(&trial, search->options, &solution, NULL))
        return false;
    out->placement = solution.placement;
    if (!trial_divide(search, out))
        return false;
    trial_rate(search, out);
    return out->decode_tokens_per_s > 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Between these the least time for reading is looked for: a layer on the fastest disk, and the
 * whole model with a window on the slowest. False: nothing can be streamed. */
static bool stream_bounds(struct stream_search *search, double *least_s, double *most_s)
{
    const struct placement_problem *problem = search->problem;
    uint64_t all = 0, largest = 0, fastest = 0, slowest = UINT64_MAX;
    for (uint32_t i = 0; i < problem->model.n_layers; i++) {
        const uint64_t bytes = streamable_bytes(problem, i);
        all += bytes;
        largest = bytes > largest ? bytes : largest;
    }
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        const uint64_t bps = search->disk_bps[i];
        fastest = bps > fastest ? bps : fastest;
        slowest = bps && bps < slowest ? bps : slowest;
    }
    search->slots_bytes = WEIGHT_WINDOW_SLOTS * (largest + STREAM_SLOT_SLACK);
    if (!fastest || !largest)
        return false;
    *least_s = (double)largest / (double)fastest;
    *most_s = 2 * (double)(all + search->slots_bytes) / (double)slowest;
    return true;
}

static bool stream_search_run(struct stream_search *search, struct plan_stream_placement *out)
{
    struct plan_stream_placement one;
    double least_s, most_s;
    if (!stream_bounds(search, &least_s, &most_s))
        return false;
    for (int i = 0; i < TRIALS; i++) {
        const double reads_s = i ? sqrt(least_s * most_s) : most_s;
        const bool found = stream_try(search, reads_s, &one);
        if (found && one.decode_tokens_per_s > out->decode_tokens_per_s)
            *out = one;
        if (!found && !i)
            return false;
        *(found ? &most_s : &least_s) = reads_s;
    }
    return out->n_streamed > 0;
}

bool plan_stream_place(const struct placement_problem *problem, const uint64_t *disk_bps,
                       const struct placement_options *options, struct plan_stream_placement *out)
{
    struct stream_search search = {.problem = problem,
                                   .disk_bps = disk_bps,
                                   .options = options,
                                   .devices =
                                       mem_new_array(problem->n_devices, sizeof *search.devices)};
    *out = (struct plan_stream_placement){0};
    const bool found = search.devices && stream_search_run(&search, out);
    mem_free(search.devices);
    return found;
}

/* ---- on one machine -------------------------------------------------------------------------- */

static bool stream_can_alone(const struct placement_problem *problem, uint32_t device)
{
    for (uint32_t i = 0; i < problem->model.n_layers; i++) {
        if (!placement_layer_allowed(problem, device, i))
            return false;
    }
    return true;
}

static void stream_try_alone(struct stream_search *search, uint32_t device,
                             struct plan_stream_placement *out)
{
    const uint32_t n_layers = search->problem->model.n_layers;
    struct plan_stream_placement one = {.placement = {1, {{device, 0, n_layers}}}};
    if (!stream_can_alone(search->problem, device) || !trial_divide(search, &one))
        return;
    trial_rate(search, &one);
    if (one.decode_tokens_per_s > out->decode_tokens_per_s)
        *out = one;
}

bool plan_stream_place_here(const struct placement_problem *problem, uint64_t disk_bps,
                            const struct placement_options *options,
                            struct plan_stream_placement *out)
{
    const uint32_t n = problem->n_devices;
    uint64_t *parts = mem_new_array(n, sizeof *parts);
    struct stream_search search = {.problem = problem,
                                   .disk_bps = parts,
                                   .shared_bps = disk_bps,
                                   .options = options,
                                   .devices = mem_new_array(n, sizeof *search.devices)};
    *out = (struct plan_stream_placement){0};
    for (uint32_t i = 0; parts && search.devices && i < n; i++)
        parts[i] = disk_bps / n;
    if (parts && search.devices && disk_bps >= n) {
        stream_search_run(&search, out);
        for (uint32_t i = 0; i < n; i++)
            stream_try_alone(&search, i, out);
    }
    mem_free(search.devices);
    mem_free(parts);
    return out->n_streamed > 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

static int speed_decimals(double speed)
{
    return speed < 1 ? 2 : speed < 10 ? 1 : 0;
}

static void say_devices_streaming(const struct placement_problem *problem,
                                  const struct plan_stream_placement *stream, bool with_bytes,
                                  struct buffer *out)
{
    const char *between = "";
    for (uint32_t i = 0; i < stream->placement.n_stages; i++) {
        const struct placement_device *device =
            &problem->devices[stream->placement.stages[i].device];
        if (!stream->stages[i].n_streamed)
            continue;
        buffer_text(out, between);
        if (with_bytes)
            buffer_printf(out, "%s more on ", size_text(stream->stages[i].missing_bytes).text);
        buffer_printf(out, "%s", device->node[0] ? device->node : device->id);
        between = " and ";
    }
}

void plan_stream_place_text(const struct placement_problem *problem,
                            const struct plan_stream_placement *stream, struct buffer *out)
{
    const double so = stream->decode_tokens_per_s, all = stream->resident_tokens_per_s;
    buffer_printf(out, "%.*f tok/s with %u of %u layers from the disk of ", speed_decimals(so), so,
                  stream->n_streamed, problem->model.n_layers);
    say_devices_streaming(problem, stream, false, out);
    buffer_printf(out, "; %.*f with ", speed_decimals(all), all);
    say_devices_streaming(problem, stream, true, out);
}

void plan_stream_here_text(const struct placement_problem *problem,
                           const struct plan_stream_placement *stream, uint64_t disk_bps,
                           struct buffer *out)
{
    const double so = stream->decode_tokens_per_s, all = stream->resident_tokens_per_s;
    const char *between = ":";
    buffer_printf(out, "%.*f tok/s with %u of %u layers streamed from this disk (%.1f GB/s)",
                  speed_decimals(so), so, stream->n_streamed, problem->model.n_layers,
                  (double)disk_bps * 1e-9);
    for (uint32_t i = 0; i < stream->placement.n_stages; i++) {
        if (!stream->stages[i].n_streamed)
            continue;
        buffer_printf(out, "%s %u on %s", between, stream->stages[i].n_streamed,
                      problem->devices[stream->placement.stages[i].device].id);
        between = ",";
    }
    buffer_printf(out, "; %.*f with ", speed_decimals(all), all);
    say_devices_streaming(problem, stream, true, out);
}
