#include "engine/weights.h"

#include "base/mem.h"
#include "engine/weights_load.h"
#include "gpu/device_ggml.h"
#include "model/model.h"

#include <string.h>

static struct weight_unit *weights_take(struct stage_weights *weights, uint32_t layer, bool repack)
{
    struct weight_unit *unit = weight_unit_take(weights->device, weights->model, layer, repack);
    if (unit)
        weights->units[weights->n_units++] = unit;
    return unit;
}

/* What every stage has, then what the first and the last have. */
static bool take_ends(struct stage_weights *weights, bool repack)
{
    const bool first = weights->first_layer == 0;
    const bool last =
        weights->first_layer + weights->n_layers == model_hyperparameters(weights->model)->n_layers;
    const struct weight_unit *rope = weights_take(weights, WEIGHT_UNIT_ROPE, repack);
    if (rope)
        memcpy(weights->outside, rope->tensors, sizeof weights->outside);
    const struct weight_unit *begin =
        rope && first ? weights_take(weights, WEIGHT_UNIT_FIRST, repack) : NULL;
    if (begin)
        weights->outside[TENSOR_TOKEN_EMBEDDING] = begin->tensors[TENSOR_TOKEN_EMBEDDING];
    const struct weight_unit *end =
        rope && last ? weights_take(weights, WEIGHT_UNIT_LAST, repack) : NULL;
    if (end) {
        weights->outside[TENSOR_OUTPUT_NORM] = end->tensors[TENSOR_OUTPUT_NORM];
        weights->outside[TENSOR_OUTPUT_NORM_BIAS] = end->tensors[TENSOR_OUTPUT_NORM_BIAS];
        weights->outside[TENSOR_OUTPUT_BIAS] = end->tensors[TENSOR_OUTPUT_BIAS];
        weights->head = end->head;
    }
    return rope && (begin || !first) && (end || !last);
}

static bool take_layers(struct stage_weights *weights, bool repack)
{
    for (uint32_t i = 0; i < weights->n_layers; i++) {
        const struct weight_unit *unit = weights_take(weights, weights->first_layer + i, repack);
        if (!unit)
            return false;
        memcpy(weights->layers[i], unit->tensors, sizeof weights->layers[i]);
    }
    return true;
}

enum error_code weights_declare(struct stage_weights *weights, struct device *device,
                                const struct model *model, const struct stage_options *options,
                                struct error *err)
{
    *weights = (struct stage_weights){.device = device,
                                      .model = model,
                                      .first_layer = options->first_layer,
                                      .n_layers = options->n_layers};
    weights->layers = mem_new_array(options->n_layers, sizeof *weights->layers);
    weights->units = mem_new_array((size_t)options->n_layers + 3, sizeof(struct weight_unit *));
    if (weights->layers && weights->units && take_layers(weights, !options->no_repack) &&
        take_ends(weights, !options->no_repack))
        return ERROR_NONE;
    weights_deinit(weights);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for the tensors of %u layers",
                     options->n_layers);
}

void weights_bytes(const struct stage_weights *weights, bool only_new, uint64_t *device_bytes,
                   uint64_t *host_bytes)
{
    *device_bytes = *host_bytes = 0;
    for (uint32_t i = 0; i < weights->n_units; i++) {
        uint64_t device, host;
        if (only_new && weights->units[i]->is_loaded)
            continue;
        weight_unit_bytes(weights->units[i], &device, &host);
        *device_bytes += device;
        *host_bytes += host;
    }
}

/* All that is to be copied in one list, so that its threads share the largest. */
static enum error_code weights_copy_new(struct stage_weights *weights, struct error *err)
{
    size_t n = 0;
    for (uint32_t i = 0; i < weights->n_units; i++)
        n += weights->units[i]->is_loaded ? 0 : weights->units[i]->n_sources;
    struct tensor_copy *sources = mem_new_array(n ? n : 1, sizeof *sources);
    if (!sources)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a list of %zu tensors", n);
    n = 0;
    for (uint32_t i = 0; i < weights->n_units; i++) {
        const struct weight_unit *unit = weights->units[i];
        for (uint32_t k = 0; k < unit->n_sources && !unit->is_loaded; k++)
            sources[n++] = unit->sources[k];
    }
    const uint32_t n_threads =
        weights_on_host(weights->device) ? device_threads(weights->device) : 1;
    enum error_code code =
        weights_copy(sources, (uint32_t)n, model_file(weights->model), n_threads, err);
    mem_free(sources);
    return code;
}

enum error_code weights_load(struct stage_weights *weights, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < weights->n_units && !code; i++) {
        if (!weights->units[i]->is_loaded)
            code = weight_unit_alloc(weights->units[i], err);
    }
    if (!code)
        code = weights_copy_new(weights, err);
    for (uint32_t i = 0; i < weights->n_units && !code; i++)
        weight_unit_show(weights->units[i]);
    return code;
}

enum error_code weights_reserve(struct stage_weights *weights, struct error *err)
{
    for (uint32_t i = 0; i < weights->n_units; i++) {
        struct weight_unit *unit = weights->units[i];
        uint64_t device, host;
        if (unit->is_loaded)
            continue;
        weight_unit_bytes(unit, &device, &host);
        enum error_code code = device_reserve(weights->device, device, err);
        if (code)
            return code;
        unit->reserved_bytes = device;
    }
    return ERROR_NONE;
}

void weights_deinit(struct stage_weights *weights)
{
    if (!weights)
        return;
    for (uint32_t i = 0; i < weights->n_units; i++)
        weight_unit_drop(weights->units[i]);
    mem_free(weights->units);
    mem_free(weights->layers);
    *weights = (struct stage_weights){0};
}
