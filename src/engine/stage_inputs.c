#include "engine/stage_inputs.h"

#include <assert.h>
#include <ggml-backend.h>
#include <math.h>

/* Inputs live in host memory: the scheduler gives them to the CPU and copies them to other
 * devices itself. An input that the graph does not use has no memory. */
static void *host_data(struct ggml_tensor *tensor)
{
    if (!tensor || !tensor->buffer)
        return NULL;
    assert(ggml_backend_buffer_is_host(tensor->buffer));
    return tensor->data;
}

/* Cell c is visible to position p when c <= p and, under a window, p - c < window. What a
 * slot held before lies beyond its length and so beyond p. */
static void set_mask(struct ggml_tensor *tensor, const struct batch *batch, uint32_t window)
{
    ggml_fp16_t *mask = host_data(tensor);
    if (!mask)
        return;
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY), visible = ggml_fp32_to_fp16(0.0f);
    uint32_t n_kv = (uint32_t)tensor->ne[0];
    for (uint32_t row = 0; row < batch->n_rows; row++, mask += n_kv) {
        uint32_t end = batch->rows[row].position + 1,
                 start = window && end > window ? end - window : 0;
        for (uint32_t c = 0; c < n_kv; c++)
            mask[c] = c >= start && c < end ? visible : hidden;
    }
}

/* Llama 4's temperature of attention: it grows with the logarithm of the position. */
static float temperature(const struct hyperparameters *h, uint32_t position)
{
    const float steps =
        floorf(((float)position + h->temperature_offset) / (float)h->temperature_length);
    return 1.0f + h->temperature_scale * logf(1.0f + steps);
}

void stage_inputs_set(const struct graph *graph, const struct batch *batch,
                      const struct hyperparameters *hyperparameters, uint32_t cells,
                      const float *hidden)
{
    int32_t *tokens = host_data(graph->tokens), *positions = host_data(graph->positions);
    int32_t *outputs = host_data(graph->outputs);
    int64_t *rows = host_data(graph->cells);
    float *temperatures = host_data(graph->temperatures);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        if (tokens)
            tokens[i] = row->token;
        if (positions)
            positions[i] = (int32_t)row->position;
        if (temperatures)
            temperatures[i] = temperature(hyperparameters, row->position);
        if (rows)
            rows[i] = (int64_t)row->slot * cells + row->position;
        if (outputs && row->output)
            *outputs++ = (int32_t)i;
    }
    if (graph->hidden)
        ggml_backend_tensor_set(graph->hidden, hidden, 0, ggml_nbytes(graph->hidden));
    set_mask(graph->mask, batch, 0);
    set_mask(graph->mask_window, batch, hyperparameters->window);
}
