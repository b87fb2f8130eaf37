#include "model/model.h"

static uint64_t model_cost_elements(const struct gguf_tensor *tensor)
{
    return (uint64_t)(tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3]);
}

struct layer_cost model_tensor_cost(const struct model *model, enum tensor_role role,
                                    const struct gguf_tensor *tensor)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    if (role == TENSOR_EXPERTS_OF_TOKEN) /* a row is looked up */
        return (struct layer_cost){.bytes = tensor->size,
                                   .bytes_per_token = tensor->size / (uint64_t)tensor->ne[1]};
    struct layer_cost cost = {.bytes = tensor->size,
                              .bytes_per_token = tensor->size,
                              .flops_per_token = 2 * model_cost_elements(tensor)};
    if (tensor_role_is_of_experts(role)) {
        cost.bytes_per_token = cost.bytes_per_token / h->n_experts * h->n_experts_used;
        cost.flops_per_token = cost.flops_per_token / h->n_experts * h->n_experts_used;
    }
    return cost;
}

static void add_weights(struct layer_cost *cost, const struct model *model, enum tensor_role role,
                        const struct gguf_tensor *tensor)
{
    if (!tensor)
        return;
    const struct layer_cost more = model_tensor_cost(model, role, tensor);
    cost->bytes += more.bytes;
    cost->bytes_per_token += more.bytes_per_token;
    cost->flops_per_token += more.flops_per_token;
}

/* In place of what every token has. */
static void add_summaries(struct layer_cost *cost, const struct hyperparameters *h, uint32_t layer)
{
    const struct layer_form *form = &h->layers[layer];
    cost->kv_elements_per_token = summary_width(form->summary, form->dim_k);
    if (form->has_indexer) {
        cost->flops_per_token_per_context += 2 * (uint64_t)h->indexer.n_head * h->indexer.dim;
        cost->kv_elements_per_token += summary_width(form->summary, h->indexer.dim);
    }
    cost->flops_per_token_per_context /= form->summary;
    cost->kv_elements_windowed = form->dim_k;
    cost->draft_bytes = sizeof(float) * hyperparameters_draft_values(h, form);
}

struct layer_cost model_layer_cost(const struct model *model, uint32_t layer)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    struct layer_cost cost = {0};
    for (int role = 0; role < TENSOR_ROLE_COUNT; role++) {
        if (tensor_role_per_layer((enum tensor_role)role))
            add_weights(&cost, model, (enum tensor_role)role,
                        model_tensor(model, (enum tensor_role)role, layer));
    }
    const struct layer_form *form = &h->layers[layer];
    if (form->n_head_kv)
        cost.flops_per_token_per_context = 2 * (uint64_t)form->n_head * (form->dim_k + form->dim_v);
    *(form->kv_layer == layer ? &cost.kv_elements_per_token : &cost.kv_elements_seen) =
        (uint64_t)form->n_head_kv *
        (form->dim_k + (h->is_latent_absorbed || h->summaries.is_there ? 0 : form->dim_v));
    if (form->has_indexer && !form->summary) {
        cost.flops_per_token_per_context += 2 * (uint64_t)h->indexer.n_head * h->indexer.dim;
        cost.kv_elements_per_token += h->indexer.dim;
    }
    if (form->summary)
        add_summaries(&cost, h, layer);
    cost.state_bytes = sizeof(float) * hyperparameters_state_values(h, layer);
    /* decayed, added to and multiplied by a query; the delta rule multiplies by the key, too */
    cost.flops_per_token += (form->is_recurrent ? 8 : 0) * recurrent_matrix_values(&h->recurrent);
    return cost;
}

struct layer_cost model_input_cost(const struct model *model)
{
    struct layer_cost cost = {0};
    for (int i = 0; i < TENSOR_ROLE_COUNT; i++) {
        const enum tensor_role role = (enum tensor_role)i;
        const struct gguf_tensor *tensor =
            tensor_role_place(role) == PLACE_FIRST ? model_tensor(model, role, 0) : NULL;
        if (!tensor)
            continue;
        if (role == TENSOR_INPUTS_PROJECTION) {
            add_weights(&cost, model, role, tensor);
            continue;
        }
        cost.bytes += tensor->size;
        cost.bytes_per_token += tensor->size / (uint64_t)tensor->ne[1];
    }
    return cost;
}

struct layer_cost model_output_cost(const struct model *model)
{
    struct layer_cost cost = {0};
    add_weights(&cost, model, TENSOR_OUTPUT_NORM, model_tensor(model, TENSOR_OUTPUT_NORM, 0));
    add_weights(&cost, model, TENSOR_RANK_DENSE, model_tensor(model, TENSOR_RANK_DENSE, 0));
    add_weights(&cost, model, TENSOR_RANK_OUT, model_tensor(model, TENSOR_RANK_OUT, 0));
    add_weights(&cost, model, TENSOR_STREAMS_OUTPUT, model_tensor(model, TENSOR_STREAMS_OUTPUT, 0));
    add_weights(&cost, model, TENSOR_OUTPUT, model_head(model));
    return cost;
}

uint64_t model_weight_bytes(const struct model *model)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_file_tensor_count(model_file(model)); i++)
        sum += model_tensor_at(model, i)->size;
    return sum;
}

uint64_t model_parameter_count(const struct model *model)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_file_tensor_count(model_file(model)); i++)
        sum += model_cost_elements(gguf_file_tensor(model_file(model), i));
    return sum;
}
