#include "placement/problem.h"

#include <math.h>
#include <string.h>

static bool number_in(double value, double max)
{
    return isfinite(value) && value >= 0 && value <= max;
}

static enum error_code check_device(const struct placement_problem *problem, uint32_t index,
                                    struct error *err)
{
    const struct placement_device *device = &problem->devices[index];
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        if (!number_in(device->decode_bytes_per_s[type], PLACEMENT_RATE_MAX))
            return error_set(err, ERROR_INVALID, "decode_bytes_per_s of type %u is not a rate",
                             type);
        if (!number_in(device->prefill_flops[type], PLACEMENT_RATE_MAX))
            return error_set(err, ERROR_INVALID, "prefill_flops of type %u is not a rate", type);
    }
    if (!memchr(device->id, 0, sizeof device->id) || !memchr(device->node, 0, sizeof device->node))
        return error_set(err, ERROR_INVALID, "its name is not terminated");
    if (device->memory_free_bytes > PLACEMENT_BYTES_MAX ||
        device->reserve_bytes > PLACEMENT_BYTES_MAX)
        return error_set(err, ERROR_INVALID, "its memory is beyond 2^50 bytes");
    if (!number_in(device->kv_bytes_per_s, PLACEMENT_RATE_MAX))
        return error_set(err, ERROR_INVALID, "kv_bytes_per_s is not a rate");
    if (!number_in(device->copy_bytes_per_s, PLACEMENT_RATE_MAX))
        return error_set(err, ERROR_INVALID, "copy_bytes_per_s is not a rate");
    if (!number_in(device->launch_s, PLACEMENT_SECONDS_MAX))
        return error_set(err, ERROR_INVALID, "launch_s is not a time");
    if (!number_in(device->full_s, PLACEMENT_SECONDS_MAX) || !number_in(device->share_error, 1))
        return error_set(err, ERROR_INVALID, "full_s or share_error is out of range");
    if (!number_in(device->share, 1) || !number_in(device->thermal_headroom, 1) ||
        !number_in(device->spread, 1))
        return error_set(err, ERROR_INVALID, "share, thermal_headroom and spread are from 0 to 1");
    return ERROR_NONE;
}

static enum error_code check_layer(const struct placement_problem *problem,
                                   const struct placement_layer *layer, struct error *err)
{
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        if (layer->bytes[type] > PLACEMENT_BYTES_MAX)
            return error_set(err, ERROR_INVALID, "bytes of type %u are beyond 2^50", type);
        if (layer->bytes_per_token[type] > layer->bytes[type])
            return error_set(err, ERROR_INVALID, "more bytes of type %u are read than stored",
                             type);
        if (!number_in(layer->flops_per_token[type], PLACEMENT_RATE_MAX))
            return error_set(err, ERROR_INVALID, "flops_per_token of type %u is not an amount",
                             type);
    }
    if (!number_in(layer->flops_per_token_per_context, PLACEMENT_RATE_MAX))
        return error_set(err, ERROR_INVALID, "flops_per_token_per_context is not an amount");
    const uint64_t tokens = (uint64_t)problem->demand.context_tokens * problem->demand.streams;
    if (layer->kv_bytes_per_token > PLACEMENT_BYTES_MAX / (tokens + 1) ||
        layer->ring_bytes_per_token > PLACEMENT_BYTES_MAX / (tokens + 1))
        return error_set(err, ERROR_INVALID, "the KV cache of %llu tokens is beyond 2^50 bytes",
                         (unsigned long long)tokens);
    if (layer->state_bytes >
        PLACEMENT_BYTES_MAX / ((uint64_t)problem->demand.streams + problem->demand.checkpoints + 1))
        return error_set(err, ERROR_INVALID, "the states of %u streams are beyond 2^50 bytes",
                         problem->demand.streams);
    return ERROR_NONE;
}

static enum error_code check_model(const struct placement_problem *problem, struct error *err)
{
    const struct placement_model *model = &problem->model;
    if (model->n_types == 0 || model->n_types > PLACEMENT_TYPES_MAX)
        return error_set(err, ERROR_INVALID, "%u tensor types; 1 to %d are possible",
                         model->n_types, PLACEMENT_TYPES_MAX);
    if (model->n_layers == 0 || model->n_layers > LIMIT_LAYERS)
        return error_set(err, ERROR_INVALID, "%u layers; 1 to %d are possible", model->n_layers,
                         LIMIT_LAYERS);
    if (!number_in(model->expert_share, 1))
        return error_set(err, ERROR_INVALID, "expert_share is from 0 to 1");
    if (model->activation_bytes_per_token > PLACEMENT_BYTES_MAX ||
        model->output_bytes_per_token > PLACEMENT_BYTES_MAX ||
        model->compute_bytes > PLACEMENT_BYTES_MAX ||
        model->compute_bytes_per_context > PLACEMENT_BYTES_MAX ||
        model->compute_input_bytes > PLACEMENT_BYTES_MAX ||
        model->compute_output_bytes > PLACEMENT_BYTES_MAX)
        return error_set(err, ERROR_INVALID,
                         "activations or compute buffers are beyond 2^50 bytes");
    uint64_t input = 0, output = 0;
    for (uint32_t type = 0; type < model->n_types; type++) {
        if (!memchr(model->type_names[type], 0, sizeof model->type_names[type]))
            return error_set(err, ERROR_INVALID, "the name of type %u is not terminated", type);
        input += model->input.bytes[type];
        output += model->output.bytes[type];
    }
    uint64_t all = 0; /* each is below 2^54, so that this cannot wrap around before it is refused */
    for (uint32_t i = 0; i < model->n_layers; i++) {
        if (check_layer(problem, &model->layers[i], err))
            return error_wrap(err, "layer %u", i);
        if (model->layers[i].kv_seen > i)
            return error_set(err, ERROR_INVALID, "layer %u sees the cache of a later one", i);
        for (uint32_t type = 0; type < model->n_types; type++)
            all += model->layers[i].bytes[type];
        if (all > PLACEMENT_BYTES_MAX)
            return error_set(err, ERROR_INVALID, "the layers together are beyond 2^50 bytes");
    }
    if (check_layer(problem, &model->input, err))
        return error_wrap(err, "input");
    if (check_layer(problem, &model->output, err))
        return error_wrap(err, "output");
    if (model->tied_bytes > input || model->tied_bytes > output)
        return error_set(err, ERROR_INVALID, "tied_bytes are more than input or output has");
    return ERROR_NONE;
}

static enum error_code check_demand(const struct placement_demand *demand, struct error *err)
{
    if (demand->goal != PLACEMENT_LATENCY && demand->goal != PLACEMENT_THROUGHPUT &&
        demand->goal != PLACEMENT_MIX)
        return error_set(err, ERROR_INVALID, "unknown goal %d", (int)demand->goal);
    if (!number_in(demand->busy, 1))
        return error_set(err, ERROR_INVALID, "busy is from 0 to 1");
    if (demand->streams == 0 || demand->streams > LIMIT_SEQUENCES)
        return error_set(err, ERROR_INVALID, "%u streams; 1 to %d are possible", demand->streams,
                         LIMIT_SEQUENCES);
    if (demand->context_tokens == 0 || demand->context_tokens > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "a context of %u tokens; 1 to %d are possible",
                         demand->context_tokens, LIMIT_CONTEXT);
    if (demand->prompt_tokens > LIMIT_CONTEXT)
        return error_set(err, ERROR_INVALID, "a prompt of more than %d tokens", LIMIT_CONTEXT);
    if (demand->chunk_tokens > LIMIT_BATCH_ROWS)
        return error_set(err, ERROR_INVALID, "chunks of more than %d tokens", LIMIT_BATCH_ROWS);
    return ERROR_NONE;
}

enum error_code placement_problem_check(const struct placement_problem *problem, struct error *err)
{
    struct error own;
    err = err ? err : &own;
    if (problem->n_devices == 0 || problem->n_devices > LIMIT_PLACEMENT_DEVICES)
        return error_set(err, ERROR_INVALID, "%u devices; 1 to %d are possible", problem->n_devices,
                         LIMIT_PLACEMENT_DEVICES);
    if (!problem->devices || !problem->links || !problem->model.layers)
        return error_set(err, ERROR_INVALID, "devices, links or layers are missing");
    if (check_demand(&problem->demand, err))
        return error_wrap(err, "demand");
    if (check_model(problem, err))
        return error_wrap(err, "model");
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        if (check_device(problem, i, err))
            return error_wrap(err, "device %u", i);
        for (uint32_t j = 0; j < problem->n_devices; j++) {
            const struct placement_link *link = placement_link(problem, i, j);
            if (i != j && (!number_in(link->latency_s, PLACEMENT_SECONDS_MAX) ||
                           !number_in(link->bytes_per_s, PLACEMENT_RATE_MAX)))
                return error_set(err, ERROR_INVALID,
                                 "link from device %u to %u: not a time and a rate", i, j);
        }
    }
    return ERROR_NONE;
}

const char *placement_goal_name(enum placement_goal goal)
{
    static const char *const names[] = {"latency", "throughput", "mix"};
    return names[goal];
}

uint32_t placement_micro_batches(const struct placement_problem *problem)
{
    const struct placement_demand *demand = &problem->demand;
    if (demand->goal == PLACEMENT_LATENCY)
        return 1;
    return demand->micro_batches && demand->micro_batches < demand->streams ? demand->micro_batches
                                                                            : demand->streams;
}

double placement_busy(const struct placement_problem *problem)
{
    return problem->demand.goal == PLACEMENT_MIX ? problem->demand.busy : 1;
}

uint32_t placement_rows(const struct placement_problem *problem)
{
    const uint32_t n = placement_micro_batches(problem);
    return (problem->demand.streams + n - 1) / n;
}

uint32_t placement_prompt_tokens(const struct placement_problem *problem)
{
    const struct placement_demand *demand = &problem->demand;
    return demand->prompt_tokens ? demand->prompt_tokens : (demand->context_tokens + 1) / 2;
}

uint32_t placement_chunk_tokens(const struct placement_problem *problem)
{
    return problem->demand.chunk_tokens ? problem->demand.chunk_tokens : 512;
}

struct placement_problem placement_of_group(const struct placement_problem *problem,
                                            const struct placement_group *group)
{
    struct placement_problem own = *problem;
    own.demand.streams = group->streams;
    own.demand.micro_batches = group->micro_batches;
    return own;
}
