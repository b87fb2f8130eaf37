#include "engine/stage_work.h"

#include "engine/kv_cache.h"

uint64_t kv_type_bytes(enum kv_type type, uint64_t n_values)
{
    const enum ggml_type ggml_type = kv_ggml_type(type);
    return n_values * ggml_type_size(ggml_type) / (uint64_t)ggml_blck_size(ggml_type);
}

static void work_add(struct layer_cost *sum, struct layer_cost more)
{
    sum->bytes += more.bytes;
    sum->bytes_per_token += more.bytes_per_token;
    sum->flops_per_token += more.flops_per_token;
    sum->flops_per_token_per_context += more.flops_per_token_per_context;
    sum->kv_elements_per_token += more.kv_elements_per_token + more.kv_elements_seen; /* read */
    sum->state_bytes += more.state_bytes;
}

static void work_add_windowed(struct stage_cost *out, const struct layer_cost *layer,
                              enum kv_type type)
{
    out->windowed_flops_per_context += layer->flops_per_token_per_context;
    out->windowed_kv_bytes +=
        kv_type_bytes(type, layer->kv_elements_per_token + layer->kv_elements_seen);
}

void stage_cost_read(const struct model *model, const struct stage_options *options,
                     struct stage_cost *out)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    *out = (struct stage_cost){.bytes_in_per_row = (h->n_embd + h->n_carried) * sizeof(float),
                               .window = h->window};
    for (uint32_t i = 0; i < options->n_layers; i++) {
        const struct layer_cost layer = model_layer_cost(model, options->first_layer + i);
        work_add(&out->layers, layer);
        if (hyperparameters_layer_windowed(h, options->first_layer + i))
            work_add_windowed(out, &layer, options->kv_type);
    }
    if (options->first_layer == 0) {
        out->input = model_input_cost(model);
        out->bytes_in_per_row = sizeof(int32_t);
    }
    if (options->first_layer + options->n_layers == h->n_layers)
        out->output = model_output_cost(model);
    out->kv_bytes_per_token = kv_type_bytes(options->kv_type, out->layers.kv_elements_per_token);
}

/* What the windowed layers leave out of a context is taken off. */
static uint64_t work_beyond_window(const struct stage_cost *cost, uint64_t context)
{
    return context > cost->window ? context - cost->window : 0;
}

void stage_work_count(const struct stage_cost *cost, const struct batch *batch,
                      struct device_work *out)
{
    uint64_t n_rows = batch->n_rows, n_outputs = batch_output_count(batch);
    uint64_t layers = n_rows * cost->layers.bytes_per_token;
    *out = (struct device_work){
        .bytes_read = layers < cost->layers.bytes ? layers : cost->layers.bytes,
        .flops = n_rows * cost->layers.flops_per_token + n_outputs * cost->output.flops_per_token,
        .bytes_copied = n_rows * cost->bytes_in_per_row,
        .n_rows = batch->n_rows,
    };
    out->bytes_read += n_rows * cost->input.bytes_per_token + (n_outputs ? cost->output.bytes : 0);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        uint64_t context = batch->rows[i].position + 1u;
        bool is_last = i + 1 == batch->n_rows || batch->rows[i + 1].slot != batch->rows[i].slot;
        const uint64_t beyond = work_beyond_window(cost, context);
        out->flops += context * cost->layers.flops_per_token_per_context -
                      beyond * cost->windowed_flops_per_context;
        if (is_last)
            out->bytes_read += context * cost->kv_bytes_per_token -
                               beyond * cost->windowed_kv_bytes + 2 * cost->layers.state_bytes;
    }
}
