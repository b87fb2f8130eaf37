#include "placement/cost.h"

#include <math.h>

bool placement_device_usable(const struct placement_device *device)
{
    return !device->excluded && device->share > 0;
}

double placement_share_over(const struct placement_device *device, double seconds)
{
    if (device->full_s <= 0)
        return device->share;
    return seconds <= device->full_s
               ? 1
               : seconds / (device->full_s + (seconds - device->full_s) / device->share);
}

static bool types_allowed(const struct placement_problem *problem,
                          const struct placement_device *device,
                          const struct placement_layer *layer)
{
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        if (layer->bytes[type] && device->decode_bytes_per_s[type] <= 0)
            return false;
    }
    return true;
}

bool placement_layer_allowed(const struct placement_problem *problem, uint32_t index,
                             uint32_t layer)
{
    const struct placement_model *model = &problem->model;
    const struct placement_device *device = &problem->devices[index];
    return placement_device_usable(device) &&
           types_allowed(problem, device, &model->layers[layer]) &&
           (layer > 0 || types_allowed(problem, device, &model->input)) &&
           (layer + 1 < model->n_layers || types_allowed(problem, device, &model->output));
}

struct placement_load placement_decode_load(const struct placement_problem *problem)
{
    const uint32_t rows = placement_rows(problem);
    return (struct placement_load){rows, rows, problem->demand.context_tokens / 2.0};
}

/* ---- one layer ------------------------------------------------------------------------ */

static double kv_bandwidth(const struct placement_problem *problem,
                           const struct placement_device *device)
{
    double best = device->kv_bytes_per_s;
    if (best > 0)
        return best;
    for (uint32_t type = 0; type < problem->model.n_types; type++)
        best = fmax(best, device->decode_bytes_per_s[type]);
    return best;
}

/* Bytes of one type that `rows` rows read. */
static double bytes_read(const struct placement_layer *layer, uint32_t type, double expert_share,
                         uint32_t rows)
{
    const double all = (double)layer->bytes[type], one = (double)layer->bytes_per_token[type];
    if (rows <= 1 || one >= all)
        return one;
    if (expert_share <= 0 || expert_share >= 1)
        return fmin(all, one * rows);
    return all - (all - one) * pow(1 - expert_share, rows - 1.0);
}

/* What attention reads of a context. */
static double attended_tokens(const struct placement_layer *layer, struct placement_load load)
{
    return layer->window_tokens ? fmin(load.context_tokens, layer->window_tokens)
                                : load.context_tokens;
}

static double placement_cost_reading_s(const struct placement_problem *problem,
                                       const struct placement_device *device,
                                       const struct placement_layer *layer, double expert_share,
                                       struct placement_load load)
{
    double seconds = 0;
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        if (layer->bytes[type])
            seconds +=
                bytes_read(layer, type, expert_share, load.rows) / device->decode_bytes_per_s[type];
    }
    if (layer->state_bytes) /* read and written */
        seconds += 2 * load.sequences * (double)layer->state_bytes / kv_bandwidth(problem, device);
    if (layer->kv_bytes_per_token)
        seconds += load.sequences * attended_tokens(layer, load) *
                   (double)layer->kv_bytes_per_token / kv_bandwidth(problem, device);
    return seconds;
}

static double computing_s(const struct placement_problem *problem,
                          const struct placement_device *device,
                          const struct placement_layer *layer, struct placement_load load)
{
    double seconds = 0, most = 0, main_rate = 0;
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        const double flops = load.rows * layer->flops_per_token[type];
        if (flops <= 0)
            continue;
        if (device->prefill_flops[type] > 0)
            seconds += flops / device->prefill_flops[type];
        else
            seconds +=
                load.rows * (double)layer->bytes_per_token[type] / device->decode_bytes_per_s[type];
        if (flops > most) {
            most = flops;
            main_rate = device->prefill_flops[type];
        }
    }
    if (main_rate > 0)
        seconds += load.rows * attended_tokens(layer, load) * layer->flops_per_token_per_context /
                   main_rate;
    return seconds;
}

static double part_s(const struct placement_problem *problem, const struct placement_device *device,
                     const struct placement_layer *layer, double expert_share,
                     struct placement_load load)
{
    const double read = placement_cost_reading_s(problem, device, layer, expert_share, load);
    const double seconds =
        load.rows == 1 ? read : fmax(read, computing_s(problem, device, layer, load));
    return seconds / device->share;
}

static double placement_cost_copy_s(const struct placement_device *device, double bytes)
{
    return device->copy_bytes_per_s > 0 ? bytes / device->copy_bytes_per_s / device->share : 0;
}

double placement_layer_s(const struct placement_problem *problem, uint32_t index, uint32_t layer,
                         struct placement_load load)
{
    const struct placement_model *model = &problem->model;
    const struct placement_device *device = &problem->devices[index];
    const double activation = (double)model->activation_bytes_per_token * load.rows;
    double seconds = part_s(problem, device, &model->layers[layer], model->expert_share, load);
    if (layer == 0) { /* an embedding is looked up: a row of it for a row, and no expert chooses */
        seconds += part_s(problem, device, &model->input, 0, load);
        seconds += placement_cost_copy_s(device, 4.0 * load.rows - activation);
    }
    if (layer + 1 == model->n_layers) {
        /* A prompt's chunk needs the logits of its last row at most. */
        const uint32_t rows = load.rows > load.sequences ? load.sequences : load.rows;
        const struct placement_load last = {rows, rows, 0};
        seconds += part_s(problem, device, &model->output, 0, last);
        seconds += placement_cost_copy_s(device,
                                         (double)model->output_bytes_per_token * rows - activation);
    }
    return fmax(seconds, 0);
}

double placement_launch_s(const struct placement_problem *problem, uint32_t index, uint32_t rows)
{
    const struct placement_device *device = &problem->devices[index];
    const double copied = 2.0 * (double)problem->model.activation_bytes_per_token * rows;
    return device->launch_s / device->share + placement_cost_copy_s(device, copied);
}

double placement_stage_s(const struct placement_problem *problem,
                         const struct placement_stage *stage, struct placement_load load)
{
    double seconds = placement_launch_s(problem, stage->device, load.rows);
    for (uint32_t i = 0; i < stage->n_layers; i++)
        seconds += placement_layer_s(problem, stage->device, stage->first_layer + i, load);
    return seconds;
}

/* ---- links ---------------------------------------------------------------------------- */

bool placement_linked(const struct placement_problem *problem, uint32_t from, uint32_t to)
{
    return from == to || placement_link(problem, from, to)->bytes_per_s > 0;
}

static double placement_cost_carry_s(const struct placement_problem *problem, uint32_t from,
                                     uint32_t to, double bytes)
{
    if (from == to)
        return 0;
    const struct placement_link *link = placement_link(problem, from, to);
    return link->bytes_per_s > 0 ? bytes / link->bytes_per_s : INFINITY;
}

double placement_occupation_s(const struct placement_problem *problem, uint32_t from, uint32_t to,
                              uint32_t rows)
{
    return placement_cost_carry_s(problem, from, to,
                                  (double)problem->model.activation_bytes_per_token * rows);
}

double placement_hop_s(const struct placement_problem *problem, uint32_t from, uint32_t to,
                       uint32_t rows)
{
    if (from == to)
        return 0;
    return placement_link(problem, from, to)->latency_s +
           placement_occupation_s(problem, from, to, rows);
}

double placement_back_s(const struct placement_problem *problem, uint32_t from, uint32_t to,
                        uint32_t rows)
{
    if (from == to)
        return 0;
    return placement_link(problem, from, to)->latency_s +
           placement_cost_carry_s(problem, from, to, 4.0 * rows);
}

/* ---- memory --------------------------------------------------------------------------- */

static uint64_t weight_bytes(const struct placement_problem *problem,
                             const struct placement_layer *layer)
{
    uint64_t bytes = 0;
    for (uint32_t type = 0; type < problem->model.n_types; type++)
        bytes += layer->bytes[type];
    return bytes;
}

/* Of all streams together; `most`: of one; 0: all that it has. */
static uint64_t tokens_kept(uint64_t most, const struct placement_demand *demand)
{
    const uint64_t each = demand->context_tokens;
    const bool is_ring = most && most < each;
    return demand->cells && !is_ring ? demand->cells : (is_ring ? most : each) * demand->streams;
}

static uint64_t cache_bytes(const struct placement_layer *layer,
                            const struct placement_demand *demand)
{
    return layer->kv_bytes_per_token * tokens_kept(layer->kv_tokens_max, demand) +
           layer->ring_bytes_per_token * tokens_kept(layer->ring_tokens_max, demand);
}

uint64_t placement_kv_bytes(const struct placement_layer *layer,
                            const struct placement_demand *demand)
{
    return layer->kv_seen ? 0 : cache_bytes(layer, demand);
}

uint64_t placement_copy_bytes(const struct placement_problem *problem, uint32_t first, uint32_t end)
{
    const struct placement_layer *layers = problem->model.layers;
    uint64_t bytes = 0;
    for (uint32_t i = first; i < end; i++) {
        uint32_t before = first;
        if (!layers[i].kv_seen || layers[i].kv_seen > first)
            continue; /* its own, or in this stage */
        while (before < i && layers[before].kv_seen != layers[i].kv_seen)
            before++;
        bytes += before == i ? cache_bytes(&layers[i], &problem->demand) : 0;
    }
    return bytes;
}

uint64_t placement_state_bytes(const struct placement_layer *layer,
                               const struct placement_demand *demand)
{
    return layer->state_bytes * ((uint64_t)demand->streams + demand->checkpoints);
}

static uint64_t stored_bytes(const struct placement_problem *problem,
                             const struct placement_layer *layer)
{
    return weight_bytes(problem, layer) + placement_kv_bytes(layer, &problem->demand) +
           placement_state_bytes(layer, &problem->demand);
}

uint64_t placement_layer_bytes(const struct placement_problem *problem, uint32_t layer)
{
    const struct placement_model *model = &problem->model;
    uint64_t bytes = stored_bytes(problem, &model->layers[layer]);
    if (layer == 0)
        bytes += stored_bytes(problem, &model->input) + model->compute_input_bytes;
    if (layer + 1 == model->n_layers)
        bytes += stored_bytes(problem, &model->output) + model->compute_output_bytes;
    return bytes;
}

uint64_t placement_stage_bytes(const struct placement_problem *problem,
                               const struct placement_stage *stage)
{
    const struct placement_model *model = &problem->model;
    uint64_t bytes =
        model->compute_bytes +
        placement_copy_bytes(problem, stage->first_layer, stage->first_layer + stage->n_layers);
    for (uint32_t i = 0; i < stage->n_layers; i++)
        bytes += placement_layer_bytes(problem, stage->first_layer + i);
    return stage->n_layers == model->n_layers ? bytes - model->tied_bytes : bytes;
}

uint64_t placement_shared_bytes(const struct placement_problem *problem,
                                const struct placement_stage *a, const struct placement_stage *b)
{
    const struct placement_model *model = &problem->model;
    const uint32_t first = a->first_layer > b->first_layer ? a->first_layer : b->first_layer;
    const uint32_t a_end = a->first_layer + a->n_layers, b_end = b->first_layer + b->n_layers;
    uint64_t bytes = 0;
    for (uint32_t layer = first; layer < a_end && layer < b_end && layer < model->n_layers;
         layer++) {
        bytes += weight_bytes(problem, &model->layers[layer]);
        bytes += layer == 0 ? weight_bytes(problem, &model->input) : 0;
        bytes += layer + 1 == model->n_layers ? weight_bytes(problem, &model->output) : 0;
    }
    return a->n_layers == model->n_layers && b->n_layers == model->n_layers
               ? bytes - model->tied_bytes
               : bytes;
}

uint64_t placement_device_bytes(const struct placement_device *device)
{
    return device->memory_free_bytes > device->reserve_bytes
               ? device->memory_free_bytes - device->reserve_bytes
               : 0;
}

/* ---- the whole ------------------------------------------------------------------------ */

static void placement_cost_note(struct placement_cost *cost, double seconds, uint32_t stage,
                                bool is_link)
{
    if (seconds > cost->longest_s || (stage == 0 && !is_link)) {
        cost->longest_s = seconds;
        cost->longest = stage;
        cost->link_is_longest = is_link;
    }
}

static struct placement_cost placement_cost_add_up(const struct placement_problem *problem,
                                                   const struct placement *placement,
                                                   struct placement_load load)
{
    struct placement_cost cost = {0};
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const double stage_s = placement_stage_s(problem, stage, load);
        cost.round_s += stage_s;
        placement_cost_note(&cost, stage_s, i, false);
        if (i + 1 == placement->n_stages)
            break;
        cost.round_s += placement_hop_s(problem, stage->device, stage[1].device, load.rows);
        placement_cost_note(
            &cost, placement_occupation_s(problem, stage->device, stage[1].device, load.rows), i,
            true);
    }
    return cost;
}

struct placement_cost placement_decode_cost(const struct placement_problem *problem,
                                            const struct placement *placement)
{
    const struct placement_load load = placement_decode_load(problem);
    struct placement_cost cost = placement_cost_add_up(problem, placement, load);
    if (placement->n_stages == 0)
        return cost;
    cost.round_s += placement_back_s(problem, placement->stages[placement->n_stages - 1].device,
                                     placement->stages[0].device, load.rows);
    const double alone_s = cost.round_s / placement_micro_batches(problem),
                 busy = placement_busy(problem);
    cost.period_s = fmax(cost.longest_s, alone_s);
    cost.objective_s = busy * cost.period_s + (1 - busy) * alone_s;
    return cost;
}

double placement_decode_tokens_per_s(const struct placement_problem *problem,
                                     const struct placement_cost *cost)
{
    if (cost->period_s <= 0)
        return 0;
    return problem->demand.streams / (placement_micro_batches(problem) * cost->period_s);
}

double placement_group_rate(const struct placement_problem *problem,
                            const struct placement_group *group)
{
    const struct placement_problem own = placement_of_group(problem, group);
    const double objective_s = placement_decode_cost(&own, &group->placement).objective_s;
    return objective_s > 0 ? group->streams / (placement_micro_batches(&own) * objective_s) : 0;
}

double placement_groups_rate(const struct placement_problem *problem,
                             const struct placement_groups *groups)
{
    double rate = 0;
    for (uint32_t i = 0; i < groups->n_groups; i++)
        rate += placement_group_rate(problem, &groups->groups[i]);
    return rate;
}
