#include "plan/plan_model.h"

#include "base/mem.h"
#include "engine/batch_shape.h"
#include "model/model_precision.h"
#include "plan/plan_compute.h"

#include <stdio.h>
#include <string.h>

/* The index of a tensor's type, which it adds when it is new. */
static enum error_code find_type(struct placement_model *out, const struct gguf_tensor *tensor,
                                 uint32_t *index, struct error *err)
{
    const char *name = gguf_tensor_type_name(tensor);
    if (strcmp(name, "i32") == 0) /* looked up, not multiplied: no speed of its own */
        name = "f32";
    for (*index = 0; *index < out->n_types; ++*index) {
        if (strcmp(out->type_names[*index], name) == 0)
            return ERROR_NONE;
    }
    if (out->n_types == PLACEMENT_TYPES_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "the model has more than %d types of tensors",
                         PLACEMENT_TYPES_MAX);
    snprintf(out->type_names[out->n_types++], sizeof out->type_names[0], "%s", name);
    return ERROR_NONE;
}

/* `tensor` may be NULL: the model has none in that role. */
static enum error_code plan_model_add_tensor(struct placement_model *out,
                                             struct placement_layer *layer,
                                             const struct model *model, enum tensor_role role,
                                             const struct gguf_tensor *tensor, struct error *err)
{
    uint32_t type;
    if (!tensor)
        return ERROR_NONE;
    enum error_code code = find_type(out, tensor, &type, err);
    if (code)
        return code;
    const struct layer_cost cost = model_tensor_cost(model, role, tensor);
    layer->bytes[type] += cost.bytes;
    layer->bytes_per_token[type] += cost.bytes_per_token;
    layer->flops_per_token[type] += (double)cost.flops_per_token;
    return ERROR_NONE;
}

static enum error_code add_layer(struct placement_model *out, struct placement_layer *layer,
                                 const struct model *model, uint32_t index,
                                 const struct driver_options *options, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (int role = 0; role < TENSOR_ROLE_COUNT && !code; role++) {
        if (tensor_role_per_layer((enum tensor_role)role))
            code = plan_model_add_tensor(out, layer, model, (enum tensor_role)role,
                                         model_tensor(model, (enum tensor_role)role, index), err);
    }
    const struct layer_cost cost = model_layer_cost(model, index);
    layer->flops_per_token_per_context = (double)cost.flops_per_token_per_context;
    const struct hyperparameters *h = model_hyperparameters(model);
    layer->kv_bytes_per_token =
        kv_type_bytes(options->kv_type, cost.kv_elements_per_token + cost.kv_elements_seen);
    layer->kv_seen = cost.kv_elements_seen ? h->layers[index].kv_layer + 1 : 0;
    if (hyperparameters_layer_windowed(h, index)) {
        layer->window_tokens = h->window;
        layer->kv_tokens_max = kv_window_cells(h->window, options->batch_rows, LIMIT_CONTEXT);
    }
    if (cost.kv_elements_windowed) {
        layer->ring_bytes_per_token =
            kv_type_bytes(options->kv_type, cost.kv_elements_windowed) + cost.draft_bytes;
        layer->ring_tokens_max = kv_window_cells(h->window, options->batch_rows, LIMIT_CONTEXT);
    }
    layer->state_bytes = cost.state_bytes;
    return code;
}

static enum error_code plan_model_add_ends(struct placement_model *out, const struct model *model,
                                           bool embedding_counts, struct error *err)
{
    const struct gguf_tensor *embedding = model_tensor(model, TENSOR_TOKEN_EMBEDDING, 0);
    static const enum tensor_role ends[] = {TENSOR_OUTPUT_NORM, TENSOR_RANK_DENSE, TENSOR_RANK_OUT,
                                            TENSOR_STREAMS_OUTPUT};
    const struct gguf_tensor *head = model_head(model);
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && !code; i++)
        code = plan_model_add_tensor(out, &out->output, model, ends[i],
                                     model_tensor(model, ends[i], 0), err);
    if (!code)
        code = plan_model_add_tensor(out, &out->output, model, TENSOR_OUTPUT, head, err);
    if (code || !embedding_counts)
        return code;
    uint32_t type;
    code = find_type(out, embedding, &type, err);
    if (code)
        return code;
    const struct layer_cost cost = model_input_cost(model); /* a row of it for a token */
    out->input.bytes[type] = cost.bytes;
    out->input.bytes_per_token[type] = cost.bytes_per_token;
    return ERROR_NONE;
}

/* Tensors that every stage has. */
static uint64_t common_bytes(const struct model *model)
{
    static const enum tensor_role roles[] = {TENSOR_ROPE_FREQS, TENSOR_ROPE_FACTORS_LONG,
                                             TENSOR_ROPE_FACTORS_SHORT};
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        const struct gguf_tensor *tensor = model_tensor(model, roles[i], 0);
        bytes += tensor ? tensor->size : 0;
    }
    return bytes;
}

/* ---- the KV cache ----------------------------------------------------------------------- */

struct placement_kv_type plan_kv_type(enum kv_type type)
{
    static const struct placement_kv_type types[] = {[KV_F16] = {"f16", 1, 2},
                                                     [KV_F32] = {"f32", 1, 4},
                                                     [KV_Q8_0] = {"q8_0", 32, 34},
                                                     [KV_Q4_0] = {"q4_0", 32, 18}};
    return types[type];
}

enum error_code plan_kv_type_find(const char *name, enum kv_type *out, struct error *err)
{
    for (int type = KV_F16; type < KV_TYPES; type++) {
        if (strcmp(plan_kv_type((enum kv_type)type).name, name) == 0) {
            *out = (enum kv_type)type;
            return ERROR_NONE;
        }
    }
    return error_set(err, ERROR_INVALID,
                     "the KV cache's type is f16, f32, q8_0 or q4_0, not '%.32s'", name);
}

static bool heads_allow(const struct model *model, enum kv_type type)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    const uint32_t block = plan_kv_type(type).elements_per_block;
    return hyperparameters_heads_fit(h, block);
}

struct placement_kv_types plan_kv_types(const struct model *model, enum kv_type kv_type)
{
    static const enum kv_type best_first[] = {KV_F32, KV_F16, KV_Q8_0};
    struct placement_kv_types types = {.current = plan_kv_type(kv_type)};
    for (size_t i = 0; i < sizeof best_first / sizeof *best_first; i++) {
        if (heads_allow(model, best_first[i]))
            types.others[types.n++] = plan_kv_type(best_first[i]);
    }
    return types;
}

/* ---- all of it -------------------------------------------------------------------------- */

enum error_code plan_model_init(struct plan_model *out, const struct model *model,
                                const struct driver_options *options,
                                const struct plan_compute *compute, bool embedding_counts,
                                struct error *err)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    *out = (struct plan_model){0};
    enum error_code code = model_at_precision(model, options->precision, &model, err);
    if (code)
        return code;
    if (!heads_allow(model, options->kv_type))
        return error_set(err, ERROR_UNSUPPORTED,
                         "a %s KV cache needs heads of a multiple of %u values, and this model's "
                         "have %u (K) and %u (V); use --kv f16",
                         plan_kv_type(options->kv_type).name,
                         plan_kv_type(options->kv_type).elements_per_block, h->n_head_dim_k,
                         h->n_head_dim_v);
    *out = (struct plan_model){.layers = mem_new_array(h->n_layers, sizeof *out->layers)};
    if (!out->layers)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the costs of %u layers",
                         h->n_layers);
    struct placement_model *cost = &out->model;
    for (uint32_t i = 0; i < h->n_layers && !code; i++)
        code = add_layer(cost, &out->layers[i], model, i, options, err);
    if (!code)
        code = plan_model_add_ends(cost, model, embedding_counts, err);
    if (code) {
        plan_model_deinit(out);
        return code;
    }
    out->is_converted = model_is_converted(model);
    cost->n_layers = h->n_layers;
    cost->layers = out->layers;
    cost->expert_share = h->n_experts ? (double)h->n_experts_used / h->n_experts : 0;
    cost->activation_bytes_per_token = (h->n_embd + h->n_carried) * sizeof(float);
    cost->output_bytes_per_token = h->n_vocab * sizeof(float);
    cost->compute_bytes = compute->stage + common_bytes(model);
    cost->compute_bytes_per_context = plan_compute_per_cell(compute, model, options);
    cost->compute_input_bytes = compute->input;
    cost->compute_output_bytes = compute->output;
    return ERROR_NONE;
}

void plan_model_deinit(struct plan_model *plan)
{
    if (!plan)
        return;
    mem_free(plan->layers);
    *plan = (struct plan_model){0};
}

struct placement_demand plan_demand(const struct driver_options *options)
{
    return (struct placement_demand){
        .goal = options->n_slots > 1 ? PLACEMENT_THROUGHPUT : PLACEMENT_LATENCY,
        .context_tokens = kv_cells(options->context),
        .cells = options->cells,
        .streams = options->n_slots,
        .checkpoints = options->checkpoints,
        .chunk_tokens = options->batch_rows,
        .weights_max = options->weights_max,
    };
}
