#include "placement/forecast.h"

#include "placement/prefill.h"
#include "placement/sequence.h"

#include <math.h>

void placement_forecast(const struct placement_problem *problem, const struct placement *placement,
                        struct placement_forecast *out)
{
    const struct placement_load load = placement_decode_load(problem);
    double variance = 0;
    bool known = true;
    *out = (struct placement_forecast){.cost = placement_decode_cost(problem, placement),
                                       .n_stages = placement->n_stages};
    out->decode_tokens_per_s = placement_decode_tokens_per_s(problem, &out->cost);
    out->prefill_tokens_per_s = placement_prefill_tokens_per_s(problem, placement);
    placement_guessed(problem, placement, &out->guessed);
    if (out->prefill_tokens_per_s <= 0) /* what more rows take is not known */
        out->guessed.repeating = out->guessed.without;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const struct placement_device *device = &problem->devices[stage->device];
        struct placement_stage_forecast *forecast = &out->stages[i];
        forecast->bytes = placement_stage_bytes(problem, stage);
        forecast->decode_s = placement_stage_s(problem, stage, load);
        forecast->hop_s =
            i + 1 < placement->n_stages
                ? placement_hop_s(problem, stage->device, stage[1].device, load.rows)
                : placement_back_s(problem, stage->device, placement->stages[0].device, load.rows);
        forecast->part_of_round =
            out->cost.round_s > 0 ? forecast->decode_s / out->cost.round_s : 0;
        forecast->measured = device->measured;
        known = known && device->spread > 0;
        variance += pow(device->spread * forecast->part_of_round, 2);
    }
    out->decode_spread = known ? sqrt(variance) : 0;
}

/* ---- why not -------------------------------------------------------------------------- */

static bool linked_to_any(const struct placement_problem *problem,
                          const struct placement *placement, uint32_t device)
{
    bool in = false, out = false;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        out = out || placement_linked(problem, device, placement->stages[i].device);
        in = in || placement_linked(problem, placement->stages[i].device, device);
    }
    return in && out;
}

/* What is wrong with the device by itself, or PLACEMENT_COSTS_TIME. */
static enum placement_left_out forecast_alone(const struct placement_problem *problem,
                                              const struct placement *placement, uint32_t device)
{
    bool knows = false, holds = false;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i].device == device)
            return PLACEMENT_USED;
    }
    if (!placement_device_usable(&problem->devices[device]))
        return PLACEMENT_EXCLUDED;
    const uint64_t there = placement_device_bytes(&problem->devices[device]);
    for (uint32_t layer = 0; layer < problem->model.n_layers; layer++) {
        const bool allowed = placement_layer_allowed(problem, device, layer);
        knows = knows || allowed;
        holds = holds ||
                (allowed &&
                 placement_layer_bytes(problem, layer) + problem->model.compute_bytes <= there);
    }
    if (!knows)
        return PLACEMENT_NO_TYPES;
    if (!holds)
        return PLACEMENT_NO_MEMORY;
    return linked_to_any(problem, placement, device) ? PLACEMENT_COSTS_TIME : PLACEMENT_NO_LINK;
}

static void add_at_best_place(const struct placement_tables *tables, struct sequence_work *work,
                              const struct placement *placement, uint32_t device,
                              struct placement_reason *out)
{
    const double now_s = placement_decode_cost(tables->problem, placement).objective_s;
    uint32_t devices[LIMIT_STAGES];
    struct placement found, best = {0};
    double best_s = INFINITY;
    const uint32_t n = placement->n_stages;
    for (uint32_t at = 0; at <= n && n < LIMIT_STAGES; at++) {
        for (uint32_t i = 0; i < n; i++)
            devices[i < at ? i : i + 1] = placement->stages[i].device;
        devices[at] = device;
        const double period_s = sequence_best(tables, work, devices, n + 1, best_s, &found);
        if (period_s < best_s) {
            best_s = period_s;
            best = found;
        }
    }
    out->why = best_s < INFINITY ? PLACEMENT_COSTS_TIME : PLACEMENT_NO_PLACE;
    out->more_s = best_s < INFINITY ? best_s - now_s : 0;
    for (uint32_t i = 0; i < best.n_stages; i++) {
        if (best.stages[i].device == device)
            out->n_layers = best.stages[i].n_layers;
    }
}

enum error_code placement_why_left_out(const struct placement_problem *problem,
                                       const struct placement *placement, uint32_t device,
                                       struct placement_reason *out, struct error *err)
{
    struct placement_tables tables = {0};
    struct sequence_work work = {0};
    *out = (struct placement_reason){.why = forecast_alone(problem, placement, device)};
    if (out->why != PLACEMENT_COSTS_TIME)
        return ERROR_NONE;
    enum error_code code = tables_init(&tables, problem, err);
    if (!code)
        code = sequence_work_init(&work, problem->model.n_layers, err);
    if (!code)
        add_at_best_place(&tables, &work, placement, device, out);
    sequence_work_deinit(&work);
    tables_deinit(&tables);
    return code;
}
