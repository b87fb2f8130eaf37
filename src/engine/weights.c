#include "engine/weights.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "engine/weight_stream.h"
#include "engine/weights_load.h"
#include "gpu/device_ggml.h"
#include "model/model_precision.h"

#include <string.h>

static struct weight_unit *weights_take(struct stage_weights *weights, uint32_t layer, bool repack)
{
    struct weight_unit *unit = weight_unit_take(weights->device, weights->model, layer, repack);
    if (unit)
        weights->units[weights->n_units++] = unit;
    return unit;
}

static void weights_take_place(struct stage_weights *weights, const struct weight_unit *unit,
                               enum tensor_place place)
{
    for (int i = 0; i < TENSOR_ROLE_COUNT; i++) {
        if (tensor_role_place((enum tensor_role)i) == place)
            weights->outside[i] = unit->tensors[i];
    }
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
        weights_take_place(weights, begin, PLACE_FIRST);
    const struct weight_unit *end =
        rope && last ? weights_take(weights, WEIGHT_UNIT_LAST, repack) : NULL;
    if (end) {
        weights_take_place(weights, end, PLACE_LAST);
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
                                      .n_layers = options->n_layers,
                                      .stop = options->stop};
    weights->layers = mem_new_array(options->n_layers, sizeof *weights->layers);
    weights->units = mem_new_array((size_t)options->n_layers + 3, sizeof(struct weight_unit *));
    if (weights->layers && weights->units && take_layers(weights, !options->no_repack) &&
        take_ends(weights, !options->no_repack))
        return ERROR_NONE;
    weights_deinit(weights);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for the tensors of %u layers",
                     options->n_layers);
}

/* The slots of the layers that are streamed. */
static void add_window(const struct stage_weights *weights, uint64_t *device_bytes,
                       uint64_t *host_bytes)
{
    uint64_t most_device = 0, most_host = 0;
    for (uint32_t i = 0; i < weights->n_streamed; i++) {
        uint64_t device, host;
        weight_stream_slot_bytes(weights->streamed[i], &device, &host);
        most_device = device > most_device ? device : most_device;
        most_host = host > most_host ? host : most_host;
    }
    *device_bytes += weights->window.n_slots * most_device;
    *host_bytes += weights->window.n_slots * most_host;
}

void weights_bytes(const struct stage_weights *weights, bool only_new, uint64_t *device_bytes,
                   uint64_t *host_bytes)
{
    *device_bytes = *host_bytes = 0;
    for (uint32_t i = 0; i < weights->n_units; i++) {
        uint64_t device, host;
        if (weights->units[i]->is_streamed || (only_new && weights->units[i]->is_loaded))
            continue;
        weight_unit_bytes(weights->units[i], &device, &host);
        *device_bytes += device;
        *host_bytes += host;
    }
    add_window(weights, device_bytes, host_bytes);
}

/* ---- the layers that are streamed ------------------------------------------------------- */

static uint64_t weights_layer_bytes(const struct stage_weights *weights, uint32_t i,
                                    struct weight_window_layer *out)
{
    uint64_t device, host, slot_device, slot_host;
    weight_unit_bytes(weights->units[i], &device, &host);
    weight_stream_slot_bytes(weights->units[i], &slot_device, &slot_host);
    *out = (struct weight_window_layer){.resident = device, .slot = slot_device};
    return device;
}

/* What another stage has loaded stays as it is. */
static void mark_streamed(struct stage_weights *weights)
{
    weights->n_streamed = 0;
    for (uint32_t i = 0; i < weights->n_layers; i++) {
        struct weight_unit *unit = weights->units[i];
        unit->is_streamed = weights->window.is_streamed[i] && !unit->is_loaded;
        if (unit->is_streamed)
            weights->streamed[weights->n_streamed++] = unit;
    }
    if (weights->n_streamed % WEIGHT_WINDOW_SLOTS)
        weights->window.n_slots = 1;
}

enum error_code weights_limit(struct stage_weights *weights, uint64_t bytes, struct error *err)
{
    uint64_t all, host, ends, least;
    weights_bytes(weights, false, &all, &host);
    if (all <= bytes)
        return ERROR_NONE;
    if (model_is_converted(weights->model))
        return error_set(err, ERROR_UNSUPPORTED,
                         "weights may take %s of memory and need %s: layers are streamed as the "
                         "file has them; leave out --precision, or use a file that `medley "
                         "convert` made",
                         size_text(bytes).text, size_text(all).text);
    struct weight_window_layer *layers = mem_new_array(weights->n_layers, sizeof *layers);
    weights->streamed = mem_new_array(weights->n_layers, sizeof(struct weight_unit *));
    if (!layers || !weights->streamed) {
        mem_free(layers);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to plan %u layers",
                         weights->n_layers);
    }
    ends = all;
    for (uint32_t i = 0; i < weights->n_layers; i++)
        ends -= weights_layer_bytes(weights, i, &layers[i]);
    const bool fits = weight_window_plan_make(
        layers, weights->n_layers, bytes > ends ? bytes - ends : 0, &weights->window, &least);
    mem_free(layers);
    if (!fits)
        return error_set(err, ERROR_NO_MEMORY,
                         "weights may take %s of memory; streaming %u layers needs %s at least "
                         "(%s of it for embedding and output)",
                         size_text(bytes).text, weights->n_layers, size_text(least + ends).text,
                         size_text(ends).text);
    mark_streamed(weights);
    return ERROR_NONE;
}

static bool is_to_load(const struct weight_unit *unit)
{
    return !unit->is_loaded && !unit->is_streamed;
}

/* All that is to be copied in one list, so that its threads share the largest. */
static enum error_code weights_copy_new(struct stage_weights *weights, struct error *err)
{
    size_t n = 0;
    for (uint32_t i = 0; i < weights->n_units; i++)
        n += is_to_load(weights->units[i]) ? weights->units[i]->n_sources : 0;
    struct tensor_copy *sources = mem_new_array(n ? n : 1, sizeof *sources);
    if (!sources)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a list of %zu tensors", n);
    n = 0;
    for (uint32_t i = 0; i < weights->n_units; i++) {
        const struct weight_unit *unit = weights->units[i];
        for (uint32_t k = 0; k < unit->n_sources && is_to_load(unit); k++)
            sources[n++] = unit->sources[k];
    }
    const uint32_t n_threads =
        weights_on_host(weights->device) ? device_threads(weights->device) : 1;
    enum error_code code = weights_copy(sources, (uint32_t)n, model_file(weights->model), n_threads,
                                        weights->n_streamed > 0, weights->stop, err);
    mem_free(sources);
    return code;
}

/* Nothing asks later whether the experts that a table names are there. */
static enum error_code weights_check_table(const struct weight_unit *unit, struct error *err)
{
    const struct model *model = unit->model;
    const struct gguf_tensor *table =
        unit->layer < LIMIT_LAYERS ? model_tensor(model, TENSOR_EXPERTS_OF_TOKEN, unit->layer)
                                   : NULL;
    const uint32_t n_experts = model_hyperparameters(model)->n_experts;
    for (uint64_t i = 0; table && i < table->size; i += sizeof(int32_t)) {
        const uint8_t *at = gguf_file_bytes(model_file(model)) + table->offset + i;
        const uint32_t expert = (uint32_t)bytes_load(at, sizeof(int32_t));
        if (expert >= n_experts)
            return error_set(err, ERROR_INVALID,
                             "tensor %s names expert %u of %u: the file is damaged, get it again",
                             table->name, expert, n_experts);
    }
    return ERROR_NONE;
}

enum error_code weights_load(struct stage_weights *weights, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < weights->n_units && !code; i++) {
        if (is_to_load(weights->units[i]))
            code = weight_unit_alloc(weights->units[i], err);
    }
    for (uint32_t i = 0; i < weights->n_units && !code; i++)
        code = weights_check_table(weights->units[i], err);
    if (!code)
        code = weights_copy_new(weights, err);
    for (uint32_t i = 0; i < weights->n_units && !code; i++) {
        if (!weights->units[i]->is_streamed)
            weight_unit_show(weights->units[i]);
    }
    if (!code && weights->n_streamed)
        code =
            weight_stream_open(weights->device, weights->model, weights->streamed,
                               weights->n_streamed, weights->window.n_slots, &weights->stream, err);
    return code;
}

enum error_code weights_reserve(struct stage_weights *weights, struct error *err)
{
    for (uint32_t i = 0; i < weights->n_units; i++) {
        struct weight_unit *unit = weights->units[i];
        uint64_t device, host;
        if (!is_to_load(unit))
            continue;
        weight_unit_bytes(unit, &device, &host);
        enum error_code code = device_reserve(weights->device, device, err);
        if (code)
            return code;
        unit->reserved_bytes = device;
    }
    uint64_t window = 0, host = 0;
    add_window(weights, &window, &host);
    enum error_code code = device_reserve(weights->device, window, err);
    weights->reserved_bytes = code ? 0 : window;
    return code;
}

void weights_deinit(struct stage_weights *weights)
{
    if (!weights)
        return;
    weight_stream_close(weights->stream);
    if (weights->reserved_bytes)
        device_release(weights->device, weights->reserved_bytes);
    for (uint32_t i = 0; i < weights->n_units; i++)
        weight_unit_drop(weights->units[i]);
    mem_free(weights->streamed);
    mem_free(weights->units);
    mem_free(weights->layers);
    *weights = (struct stage_weights){0};
}
