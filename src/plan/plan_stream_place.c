#include "plan/plan_stream_place.h"

#include "base/mem.h"
#include "engine/weight_disk.h"
#include "engine/weight_window.h"
#include "placement/as_run.h"
#include "placement/cost.h"
#include "placement/forecast.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { TRIALS = 12, CHANGES = 12000, STREAM_SLOT_SLACK = 2 * WEIGHT_DISK_ALIGN };

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

/* Stages that compute at the same time wait for all that they read from one disk together, others
 * for what is theirs. */
static double stream_wait_s(const struct placement_problem *problem,
                            const struct plan_stream_disk *disks,
                            const struct plan_stream_placement *of, uint32_t index)
{
    const struct placement_stage *stage = &of->placement.stages[index];
    const struct plan_stream_disk *disk = &disks[stage->device];
    uint64_t bytes = of->stages[index].streamed_bytes;
    assert(disk->bytes_per_s);
    for (uint32_t i = 0; i < of->placement.n_stages && placement_micro_batches(problem) > 1; i++)
        bytes += i != index && disks[of->placement.stages[i].device].index == disk->index
                     ? of->stages[i].streamed_bytes
                     : 0;
    const double reads_s = (double)bytes / (double)disk->bytes_per_s;
    return fmax(0, reads_s - placement_stage_s(problem, stage, placement_decode_load(problem)));
}

void plan_stream_waits(const struct placement_problem *problem,
                       const struct plan_stream_disk *disks, struct plan_stream_placement *of)
{
    for (uint32_t i = 0; i < of->placement.n_stages; i++)
        of->stages[i].wait_s = of->stages[i].n_streamed ? stream_wait_s(problem, disks, of, i) : 0;
}

/* ---- a trial --------------------------------------------------------------------------------- */

struct stream_search {
    const struct placement_problem *problem;
    const struct plan_stream_disk *disks;
    uint64_t *parts; /* of its disk, that a device has in a trial; 0: it streams nothing */
    const struct placement_options *options;
    struct placement_device *devices; /* as large as the trial has them */
    uint64_t slots_bytes;             /* of a window */
    uint32_t n_changes;               /* that may still be tried */
};

/* The limit of a stage's weights in a trial is one for all: that of the fastest disk. A device that
 * does not stream must not have more than the limit itself. */
static uint64_t trial_memory(const struct stream_search *search, uint32_t index)
{
    const struct placement_problem *problem = search->problem;
    const struct placement_device *device = &problem->devices[index];
    const uint64_t most = problem->demand.weights_max,
                   all = device->reserve_bytes + problem->model.compute_bytes + most;
    return most && !search->parts[index] && all < device->memory_free_bytes
               ? all
               : device->memory_free_bytes;
}

static uint64_t trial_weights_max(const struct stream_search *search, double reads_s)
{
    const uint64_t most = search->problem->demand.weights_max;
    uint64_t fastest = 0;
    for (uint32_t i = 0; i < search->problem->n_devices; i++)
        fastest = search->parts[i] > fastest ? search->parts[i] : fastest;
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
        const double streamed = reads_s * (double)search->parts[i],
                     more = fmin(streamed, PLACEMENT_BYTES_MAX / 4.0) - (double)search->slots_bytes;
        if (search->parts[i] && more > 0 && device->memory_free_bytes < PLACEMENT_BYTES_MAX / 2)
            device->memory_free_bytes += (uint64_t)more;
    }
}

/* The memory that is really there for a stage's weights. */
static uint64_t stream_weights_room(const struct placement_problem *problem,
                                    const struct placement_stage *stage)
{
    const uint64_t room = placement_device_bytes(&problem->devices[stage->device]),
                   other = placement_stage_bytes(problem, stage) - stage_weights(problem, stage);
    const uint64_t most = room > other ? room - other : 0, given = problem->demand.weights_max;
    return given && given < most ? given : most;
}

/* Which part of each stage is streamed. */
static bool trial_divide(const struct stream_search *search, struct plan_stream_placement *out)
{
    const struct placement_problem *problem = search->problem;
    out->n_streamed = 0;
    for (uint32_t i = 0; i < out->placement.n_stages; i++) {
        const struct placement_stage *stage = &out->placement.stages[i];
        const uint64_t most = stream_weights_room(problem, stage);
        if (!most || !plan_stream_stage_of(problem, stage, most, &out->stages[i]))
            return false;
        if (out->stages[i].n_streamed && !search->disks[stage->device].bytes_per_s)
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
    plan_stream_waits(&rated, search->disks, out);
    for (uint32_t i = 0; i < out->placement.n_stages; i++) {
        struct placement_device *device = &search->devices[out->placement.stages[i].device];
        device->launch_s += device->share * out->stages[i].wait_s;
    }
    out->decode_tokens_per_s = stream_speed(&rated, &out->placement);
}

/* False: the solver has none. One whose windows do not fit is not rated. */
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
    if (trial_divide(search, out))
        trial_rate(search, out);
    return true;
}

/* ---- trials ---------------------------------------------------------------------------------- */

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
        const uint64_t bps = search->parts[i];
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

/* ---- who reads from a disk ------------------------------------------------------------------- */

static double stream_device_speed(const struct stream_search *search, uint32_t device)
{
    const struct placement_device *of = &search->problem->devices[device];
    double best = 0;
    for (uint32_t i = 0; i < search->problem->model.n_types; i++)
        best = of->decode_bytes_per_s[i] > best ? of->decode_bytes_per_s[i] : best;
    return of->excluded || !search->disks[device].bytes_per_s ? 0 : best * of->share;
}

static bool stream_same_disk(const struct stream_search *search, uint32_t a, uint32_t b)
{
    return search->disks[a].index == search->disks[b].index;
}

/* Everybody, each with a part of the disk. False: nobody has to share one. */
static bool stream_share_disks(const struct stream_search *search)
{
    bool is_shared = false;
    for (uint32_t i = 0; i < search->problem->n_devices; i++) {
        uint64_t n = 0;
        for (uint32_t k = 0; k < search->problem->n_devices; k++)
            n += stream_same_disk(search, i, k) && stream_device_speed(search, k) > 0;
        search->parts[i] =
            stream_device_speed(search, i) > 0 ? search->disks[i].bytes_per_s / n : 0;
        is_shared = is_shared || (search->parts[i] && n > 1);
    }
    return is_shared;
}

/* The fastest device of each disk: one window takes less memory than several. */
static void stream_give_disks_to_fastest(const struct stream_search *search)
{
    for (uint32_t i = 0; i < search->problem->n_devices; i++) {
        const double speed = stream_device_speed(search, i);
        search->parts[i] = speed > 0 ? search->disks[i].bytes_per_s : 0;
        for (uint32_t k = 0; k < search->problem->n_devices; k++) {
            const double other = stream_device_speed(search, k);
            if (stream_same_disk(search, i, k) && (other > speed || (other == speed && k < i)))
                search->parts[i] = 0;
        }
    }
}

bool plan_stream_fits(const struct placement_problem *problem,
                      const struct plan_stream_placement *of)
{
    for (uint32_t i = 0; i < of->placement.n_stages; i++) {
        const struct placement_stage *stage = &of->placement.stages[i];
        const uint64_t given = of->stages[i].weights_max;
        if ((given ? given : stage_weights(problem, stage)) > stream_weights_room(problem, stage))
            return false;
    }
    return true;
}

/* ---- what a division by sizes does not see --------------------------------------------------- */

static bool stream_layers_allowed(const struct placement_problem *problem,
                                  const struct placement_stage *stage)
{
    for (uint32_t i = 0; i < stage->n_layers; i++) {
        if (!placement_layer_allowed(problem, stage->device, stage->first_layer + i))
            return false;
    }
    return true;
}

/* Nothing is changed any more once the time is over. */
static bool stream_goes_on(struct stream_search *search)
{
    const struct placement_options *options = search->options;
    const bool goes_on = !options->go_on || options->go_on(options->self);
    if (!goes_on)
        search->n_changes = 0;
    return goes_on;
}

/* Whether it is better than what there was. */
static bool stream_take_better(struct stream_search *search, const struct placement *placement,
                               struct plan_stream_placement *best)
{
    struct plan_stream_placement one = {.placement = *placement};
    search->n_changes -= search->n_changes > 0;
    if (!stream_goes_on(search))
        return false;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (!stream_layers_allowed(search->problem, &placement->stages[i]))
            return false;
    }
    if (!trial_divide(search, &one))
        return false;
    trial_rate(search, &one);
    if (one.decode_tokens_per_s <= best->decode_tokens_per_s)
        return false;
    *best = one;
    return true;
}

/* So many layers fewer in one stage, more in another; those between move along. */
static bool stream_shift(struct stream_search *search, uint32_t from, uint32_t to,
                         uint32_t n_layers, struct plan_stream_placement *best)
{
    struct placement moved = best->placement;
    if (moved.stages[from].n_layers <= n_layers)
        return false;
    moved.stages[from].n_layers -= n_layers;
    moved.stages[to].n_layers += n_layers;
    for (uint32_t i = 1; i < moved.n_stages; i++)
        moved.stages[i].first_layer =
            moved.stages[i - 1].first_layer + moved.stages[i - 1].n_layers;
    return stream_take_better(search, &moved, best);
}

/* Of stages a and b. */
static bool stream_swap(struct stream_search *search, uint32_t a, uint32_t b,
                        struct plan_stream_placement *best)
{
    struct placement swapped = best->placement;
    swapped.stages[a].device = best->placement.stages[b].device;
    swapped.stages[b].device = best->placement.stages[a].device;
    return stream_take_better(search, &swapped, best);
}

/* A device that has nothing takes the last layers of a stage; all: instead of that stage's. */
static bool stream_call_in(struct stream_search *search, uint32_t index, uint32_t device,
                           uint32_t n_layers, struct plan_stream_placement *best)
{
    struct placement more = best->placement;
    struct placement_stage *of = &more.stages[index];
    if (n_layers > of->n_layers || (n_layers < of->n_layers && more.n_stages == LIMIT_STAGES))
        return false;
    if (n_layers < of->n_layers) {
        memmove(of + 1, of, (more.n_stages++ - index) * sizeof *of);
        of->n_layers -= n_layers;
        of++;
        *of = (struct placement_stage){0, of->first_layer + of->n_layers - n_layers, n_layers};
    }
    of->device = device;
    return stream_take_better(search, &more, best);
}

/* Its layers go to the stage before it, or, of the first, to the one behind. */
static bool stream_drop(struct stream_search *search, uint32_t index,
                        struct plan_stream_placement *best)
{
    struct placement fewer = best->placement;
    struct placement_stage *of = &fewer.stages[index];
    if (index)
        of[-1].n_layers += of->n_layers;
    else {
        of[1].first_layer = 0;
        of[1].n_layers += of->n_layers;
    }
    memmove(of, of + 1, (--fewer.n_stages - index) * sizeof *of);
    return stream_take_better(search, &fewer, best);
}

static bool stream_is_used(const struct placement *placement, uint32_t device)
{
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i].device == device)
            return true;
    }
    return false;
}

/* Of one stage and a step: whether something was better. */
static bool stream_change(struct stream_search *search, uint32_t index, uint32_t by,
                          struct plan_stream_placement *best)
{
    const uint32_t n_stages = best->placement.n_stages;
    if (!search->n_changes)
        return false;
    for (uint32_t i = index + 1; i < n_stages; i++) {
        if (stream_shift(search, index, i, by, best) || stream_shift(search, i, index, by, best) ||
            stream_swap(search, index, i, best))
            return true;
    }
    for (uint32_t i = 0; i < search->problem->n_devices; i++) {
        if (!stream_is_used(&best->placement, i) && stream_call_in(search, index, i, by, best))
            return true;
    }
    return n_stages > 1 && stream_drop(search, index, best);
}

/* A stage reads while it computes, so what is streamed is best where most is computed, too; and
 * windows take memory. */
static void stream_improve(struct stream_search *search, struct plan_stream_placement *best)
{
    for (bool again = best->placement.n_stages > 0; again && search->n_changes;) {
        again = false;
        for (uint32_t by = search->problem->model.n_layers / 2; by; by = by * 2 / 3) {
            for (uint32_t i = 0; i < best->placement.n_stages; i++)
                again = stream_change(search, i, by, best) || again;
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void stream_keep_better(struct stream_search *search, struct plan_stream_placement *one,
                               struct plan_stream_placement *out)
{
    stream_improve(search, one);
    if (one->decode_tokens_per_s > out->decode_tokens_per_s)
        *out = *one;
}

static void stream_search_run(struct stream_search *search, struct plan_stream_placement *out)
{
    struct plan_stream_placement one;
    double least_s, most_s;
    if (!stream_bounds(search, &least_s, &most_s))
        return;
    for (int i = 0; i < TRIALS && stream_goes_on(search); i++) {
        const double reads_s = i ? sqrt(least_s * most_s) : most_s;
        const bool is_placed = stream_try(search, reads_s, &one),
                   is_rated = one.decode_tokens_per_s > 0;
        if (one.decode_tokens_per_s > out->decode_tokens_per_s)
            *out = one;
        if (!is_placed && !i)
            return;
        /* too many layers on too few devices: less time for reading gives more stages */
        const bool is_crowded = is_placed && !is_rated && !(out->decode_tokens_per_s > 0);
        *(is_rated || is_crowded ? &most_s : &least_s) = reads_s;
    }
}

static void stream_look_for(struct stream_search *search, struct plan_stream_placement *out)
{
    const struct placement_problem *problem = search->problem;
    struct plan_stream_placement one = {0};
    if (stream_share_disks(search)) {
        stream_search_run(search, &one);
        stream_keep_better(search, &one, out);
    }
    one = (struct plan_stream_placement){0};
    stream_give_disks_to_fastest(search);
    stream_search_run(search, &one);
    stream_keep_better(search, &one, out);
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        one = (struct plan_stream_placement){0};
        if (stream_device_speed(search, i) > 0 &&
            stream_take_better(search, &(struct placement){1, {{i, 0, problem->model.n_layers}}},
                               &one))
            stream_keep_better(search, &one, out);
    }
}

bool plan_stream_place(const struct placement_problem *problem,
                       const struct plan_stream_disk *disks,
                       const struct placement_options *options, struct plan_stream_placement *out)
{
    const uint32_t n = problem->n_devices;
    struct stream_search search = {.problem = problem,
                                   .disks = disks,
                                   .parts = mem_new_array(n, sizeof *search.parts),
                                   .options = options,
                                   .devices = mem_new_array(n, sizeof *search.devices)};
    *out = (struct plan_stream_placement){0};
    search.n_changes = CHANGES / n; /* each looks at all devices */
    if (search.parts && search.devices)
        stream_look_for(&search, out);
    mem_free(search.devices);
    mem_free(search.parts);
    return out->n_streamed > 0;
}

struct placement_options plan_stream_options(const struct placement_problem *problem)
{
    struct placement_options options = placement_options_default();
    options.max_nodes = PLAN_STREAM_NODES;
    options.greedy_only = problem->n_devices > PLAN_STREAM_SMALL;
    return options;
}

bool plan_stream_place_here(const struct placement_problem *problem, uint64_t disk_bps,
                            const struct placement_options *options,
                            struct plan_stream_placement *out)
{
    struct plan_stream_disk *disks = mem_new_array(problem->n_devices, sizeof *disks);
    *out = (struct plan_stream_placement){0};
    for (uint32_t i = 0; disks && i < problem->n_devices; i++)
        disks[i] = (struct plan_stream_disk){disk_bps, 0};
    const bool found = disks && plan_stream_place(problem, disks, options, out);
    mem_free(disks);
    return found;
}
