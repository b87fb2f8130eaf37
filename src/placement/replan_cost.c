#include "placement/replan_cost.h"

#include "base/mem.h"
#include "placement/prefill.h"

#include <math.h>
#include <string.h>

/* ---- where everything is -------------------------------------------------------------- */

static bool is_amount(double value)
{
    return isfinite(value) && value >= 0;
}

static enum error_code replan_cost_check(const struct replan_input *input,
                                         const struct replan_options *options, struct error *err)
{
    if (input->current->n_runs > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "replan: %u runs of layers; %d are possible",
                         input->current->n_runs, LIMIT_STAGES);
    if (!is_amount(input->tokens) || !is_amount(input->seconds) || !is_amount(input->now_s))
        return error_set(err, ERROR_INVALID, "replan: tokens, seconds or now_s is not an amount");
    if (!is_amount(options->margin) || !is_amount(options->worth) ||
        !is_amount(options->switch_s) || !is_amount(options->settle_s) ||
        !is_amount(options->cooldown_s_min) || !is_amount(options->cooldown_s_max) ||
        options->cooldown_s_max < options->cooldown_s_min)
        return error_set(
            err, ERROR_INVALID,
            "replan: margin, worth, switch_s, settle_s or cooldown_s is not an amount");
    const struct placement_demand *demand = &input->problem->demand;
    if (input->kv_tokens > (uint64_t)demand->context_tokens * demand->streams)
        return error_set(
            err, ERROR_INVALID, "replan: %llu tokens are in KV caches for %u streams of %u",
            (unsigned long long)input->kv_tokens, demand->streams, demand->context_tokens);
    if (input->kv_sequences > demand->streams)
        return error_set(err, ERROR_INVALID, "replan: %u sequences are in caches for %u streams",
                         input->kv_sequences, demand->streams);
    for (uint32_t d = 0; d < input->problem->n_devices; d++) {
        if (!is_amount(input->devices[d].disk_bytes_per_s))
            return error_set(err, ERROR_INVALID,
                             "replan: disk_bytes_per_s of device %u is not a rate", d);
    }
    return ERROR_NONE;
}

/* Whether its stages can still compute, valid or not: everything is there, and its time is
 * finite. */
static void find_rate(struct replan_context *context)
{
    const struct placement_problem *problem = context->input->problem;
    const struct placement *current = &context->current;
    uint32_t n_layers = 0;
    for (uint32_t i = 0; i < current->n_stages; i++) {
        const struct placement_stage *stage = &current->stages[i];
        const uint32_t next = current->stages[i + 1 < current->n_stages ? i + 1 : 0].device;
        if (stage->device == REPLAN_GONE || next == REPLAN_GONE || stage->first_layer != n_layers ||
            stage->n_layers > problem->model.n_layers - n_layers ||
            !placement_linked(problem, stage->device, next) ||
            problem->devices[stage->device].share <= 0)
            return;
        n_layers += stage->n_layers;
    }
    if (n_layers != problem->model.n_layers)
        return;
    const struct placement_cost cost = placement_decode_cost(problem, current);
    const double rate = placement_decode_tokens_per_s(problem, &cost);
    context->running = isfinite(rate) && rate > 0;
    context->tokens_per_s = context->running ? rate : 0;
}

static void find_owners(struct replan_context *context)
{
    const uint32_t n_layers = context->input->problem->model.n_layers;
    for (uint32_t layer = 0; layer < n_layers; layer++)
        context->owner[layer] = REPLAN_GONE;
    for (uint32_t i = 0; i < context->current.n_stages; i++) {
        const struct placement_stage *stage = &context->current.stages[i];
        for (uint32_t j = 0; j < stage->n_layers && stage->first_layer < n_layers - j; j++)
            context->owner[stage->first_layer + j] = stage->device;
    }
    for (uint32_t layer = 0; layer < n_layers; layer++)
        context->kv_lost = context->kv_lost || context->owner[layer] == REPLAN_GONE;
}

static struct replan_source replan_cost_find_source(const struct replan_input *input, uint32_t to)
{
    const struct placement_problem *problem = input->problem;
    struct replan_source best = {.device = REPLAN_GONE};
    if (input->devices[to].disk_bytes_per_s > 0)
        best = (struct replan_source){to, 0, input->devices[to].disk_bytes_per_s};
    for (uint32_t from = 0; from < problem->n_devices; from++) {
        const struct placement_link *link = placement_link(problem, from, to);
        const double bytes_per_s = fmin(link->bytes_per_s, input->devices[from].disk_bytes_per_s);
        if (from != to && bytes_per_s > best.bytes_per_s)
            best = (struct replan_source){from, link->latency_s, bytes_per_s};
    }
    return best;
}

enum error_code replan_context_init(struct replan_context *context,
                                    const struct replan_input *input,
                                    const struct replan_options *options, struct error *err)
{
    const uint32_t n = input->problem->n_devices;
    *context = (struct replan_context){.input = input, .options = options};
    if (replan_cost_check(input, options, err))
        return ERROR_INVALID;
    context->sources = mem_new_array(n, sizeof *context->sources);
    context->node_s = mem_new_array(n, sizeof *context->node_s);
    if (!context->sources || !context->node_s) {
        replan_context_deinit(context);
        return error_set(err, ERROR_NO_MEMORY, "replan: not enough memory for %u devices", n);
    }
    context->current = replan_find(input->problem, input->current);
    for (uint32_t d = 0; d < n; d++)
        context->sources[d] = replan_cost_find_source(input, d);
    find_owners(context);
    find_rate(context);
    context->tokens = input->tokens + input->seconds * context->tokens_per_s;
    return ERROR_NONE;
}

void replan_context_deinit(struct replan_context *context)
{
    mem_free(context->sources);
    mem_free(context->node_s);
    context->sources = NULL;
    context->node_s = NULL;
}

/* ---- one layer ------------------------------------------------------------------------ */

static uint64_t replan_cost_stored(const struct placement_problem *problem,
                                   const struct placement_layer *layer)
{
    uint64_t bytes = 0;
    for (uint32_t type = 0; type < problem->model.n_types; type++)
        bytes += layer->bytes[type];
    return bytes;
}

uint64_t replan_weight_bytes(const struct placement_problem *problem, uint32_t layer)
{
    const struct placement_model *model = &problem->model;
    uint64_t bytes = replan_cost_stored(problem, &model->layers[layer]);
    if (layer == 0)
        bytes += replan_cost_stored(problem, &model->input);
    if (layer + 1 == model->n_layers)
        bytes += replan_cost_stored(problem, &model->output);
    return bytes;
}

/* From disks, or from the device that holds the layers now. */
static struct replan_source source_of(const struct replan_context *context, uint32_t from,
                                      uint32_t to)
{
    struct replan_source source = context->sources[to];
    if (from == REPLAN_GONE || from == to)
        return source;
    const struct placement_link *link = placement_link(context->input->problem, from, to);
    if (link->bytes_per_s > source.bytes_per_s)
        source = (struct replan_source){from, link->latency_s, link->bytes_per_s};
    return source;
}

double replan_layer_load_s(const struct replan_context *context, uint32_t device, uint32_t layer)
{
    if (context->owner[layer] == device)
        return 0;
    const struct replan_source source = source_of(context, context->owner[layer], device);
    const double bytes = (double)replan_weight_bytes(context->input->problem, layer);
    return source.device == REPLAN_GONE ? INFINITY : bytes / source.bytes_per_s;
}

/* Of a layer, what is in the caches now. */
static uint64_t layer_kv_bytes(const struct replan_context *context, uint32_t layer)
{
    const struct placement_problem *problem = context->input->problem;
    const struct placement_layer *costs = &problem->model.layers[layer];
    const uint64_t n_tokens = context->input->kv_tokens,
                   most = (uint64_t)costs->kv_tokens_max * problem->demand.streams,
                   ring = (uint64_t)costs->ring_tokens_max * problem->demand.streams;
    return costs->kv_bytes_per_token * (most && most < n_tokens ? most : n_tokens) +
           costs->ring_bytes_per_token * (ring < n_tokens ? ring : n_tokens) +
           costs->state_bytes * context->input->kv_sequences;
}

double replan_layer_kv_s(const struct replan_context *context, uint32_t device, uint32_t layer)
{
    const struct placement_problem *problem = context->input->problem;
    const uint32_t from = context->owner[layer];
    if (from == device || context->input->kv_tokens == 0)
        return 0;
    if (from == REPLAN_GONE || !placement_linked(problem, from, device))
        return INFINITY;
    return (double)layer_kv_bytes(context, layer) /
           placement_link(problem, from, device)->bytes_per_s;
}

/* ---- all of a target ------------------------------------------------------------------ */

static void list_moves(const struct replan_context *context, struct replan_plan *plan)
{
    const struct placement_problem *problem = context->input->problem;
    for (uint32_t i = 0; i < plan->target.n_stages; i++) {
        const struct placement_stage *stage = &plan->target.stages[i];
        struct replan_move *move = NULL;
        for (uint32_t layer = stage->first_layer; layer < stage->first_layer + stage->n_layers;
             layer++) {
            const uint32_t from = context->owner[layer];
            if (move && move->from != from)
                move = NULL;
            if (from == stage->device)
                continue;
            if (!move) {
                move = &plan->moves[plan->n_moves++];
                *move =
                    (struct replan_move){.first_layer = layer, .from = from, .to = stage->device};
                move->source = source_of(context, from, stage->device).device;
            }
            move->n_layers++;
            move->weight_bytes += replan_weight_bytes(problem, layer);
            move->kv_bytes += layer_kv_bytes(context, layer);
        }
    }
}

/* Own disks all at once, links one after the other. */
static bool add_loading(const struct replan_context *context, struct replan_plan *plan)
{
    const struct placement_device *devices = context->input->problem->devices;
    double links_s = 0, disks_s = 0;
    for (uint32_t i = 0; i < plan->n_moves; i++)
        context->node_s[plan->moves[i].to] = 0;
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const struct replan_move *move = &plan->moves[i];
        const struct replan_source source = source_of(context, move->from, move->to);
        if (source.device == REPLAN_GONE)
            return false;
        const double seconds = source.latency_s + (double)move->weight_bytes / source.bytes_per_s;
        plan->weight_bytes += move->weight_bytes;
        if (source.device != move->to) {
            links_s += seconds;
            continue;
        }
        uint32_t first = move->to; /* of the node: its devices share a disk */
        for (uint32_t j = 0; j < i; j++) {
            if (plan->moves[j].source == plan->moves[j].to &&
                !strcmp(devices[plan->moves[j].to].node, devices[move->to].node)) {
                first = plan->moves[j].to;
                break;
            }
        }
        context->node_s[first] += seconds;
        disks_s = fmax(disks_s, context->node_s[first]);
    }
    plan->load_s = fmax(links_s, disks_s);
    return true;
}

static void add_pause(const struct replan_context *context, struct replan_plan *plan)
{
    const struct placement_problem *problem = context->input->problem;
    const double kv_tokens = (double)context->input->kv_tokens;
    double copy_s = context->kv_lost ? INFINITY : 0;
    for (uint32_t i = 0; i < plan->n_moves && copy_s < INFINITY; i++) {
        const struct replan_move *move = &plan->moves[i];
        if (!placement_linked(problem, move->from, move->to))
            copy_s = INFINITY;
        else
            copy_s +=
                placement_link(problem, move->from, move->to)->latency_s +
                (double)move->kv_bytes / placement_link(problem, move->from, move->to)->bytes_per_s;
    }
    double rate = placement_prefill_tokens_per_s(problem, &plan->target);
    if (!(rate > 0)) /* not measured: no slower than token by token */
        rate = plan->decode_tokens_per_s;
    const double replay_s = rate > 0 ? kv_tokens / rate : INFINITY;
    plan->replay = kv_tokens > 0 && replay_s < copy_s;
    plan->pause_s = plan->n_moves
                        ? context->options->switch_s + (kv_tokens > 0 ? fmin(copy_s, replay_s) : 0)
                        : 0;
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        plan->moves[i].kv_bytes = plan->replay ? 0 : plan->moves[i].kv_bytes;
        plan->kv_bytes += plan->moves[i].kv_bytes;
    }
}

/* Of the target beside what a device has: what is there twice is loaded once. */
static uint64_t both_bytes(const struct replan_context *context, const struct placement *target,
                           uint32_t device)
{
    const struct placement_problem *problem = context->input->problem;
    uint64_t bytes = 0, shared = 0;
    for (uint32_t i = 0; i < target->n_stages; i++)
        bytes += target->stages[i].device == device
                     ? placement_stage_bytes(problem, &target->stages[i])
                     : 0;
    for (uint32_t j = 0; j < context->current.n_stages; j++) {
        const struct placement_stage *old = &context->current.stages[j];
        if (old->device != device)
            continue;
        bytes += placement_stage_bytes(problem, old);
        for (uint32_t i = 0; i < target->n_stages; i++)
            shared += target->stages[i].device == device
                          ? placement_shared_bytes(problem, old, &target->stages[i])
                          : 0;
    }
    return bytes - shared;
}

static bool both_fit(const struct replan_context *context, const struct placement *target)
{
    const struct placement_problem *problem = context->input->problem;
    for (uint32_t i = 0; i < target->n_stages; i++) {
        const uint32_t device = target->stages[i].device;
        if (both_bytes(context, target, device) > placement_device_bytes(&problem->devices[device]))
            return false;
    }
    return true;
}

bool replan_cost(const struct replan_context *context, const struct placement *target,
                 struct replan_plan *out)
{
    const struct placement_cost cost = placement_decode_cost(context->input->problem, target);
    *out = (struct replan_plan){.target = *target};
    out->decode_tokens_per_s = placement_decode_tokens_per_s(context->input->problem, &cost);
    list_moves(context, out);
    if (!add_loading(context, out))
        return false;
    add_pause(context, out);
    out->beside = context->running && both_fit(context, target);
    const double before =
        out->beside ? fmin(context->tokens, context->tokens_per_s * out->load_s) : 0;
    const double loading_s = out->beside ? before / context->tokens_per_s : out->load_s;
    out->total_s = loading_s + out->pause_s;
    if (context->tokens > before)
        out->total_s += (context->tokens - before) / out->decode_tokens_per_s;
    return true;
}

double replan_stay_s(const struct replan_context *context)
{
    return context->running && !context->must_move ? context->tokens / context->tokens_per_s
                                                   : INFINITY;
}

bool replan_pays(const struct replan_context *context, const struct replan_plan *plan)
{
    const struct replan_options *options = context->options;
    return plan->n_moves > 0 &&
           plan->decode_tokens_per_s >= (1 + options->margin) * context->tokens_per_s &&
           replan_stay_s(context) - plan->total_s > options->worth * plan->pause_s;
}
