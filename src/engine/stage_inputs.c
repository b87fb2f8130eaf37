#include "engine/stage_inputs.h"

#include "engine/kv_away.h"
#include "model/picture.h"

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

/* Of the row's cells; its own, but for rows that see others behind them. */
static uint32_t last_seen(const struct batch *batch, uint32_t row)
{
    return batch->rows[row].position + (batch->places ? batch->places[row].ahead : 0);
}

/* Cell c is visible to position p when c <= p. What a slot held before lies beyond its length and
 * so beyond p. */
static void set_mask(struct ggml_tensor *tensor, const struct batch *batch)
{
    ggml_fp16_t *mask = host_data(tensor);
    if (!mask)
        return;
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY), visible = ggml_fp32_to_fp16(0.0f);
    uint32_t n_kv = (uint32_t)tensor->ne[0];
    for (uint32_t row = 0; row < batch->n_rows; row++, mask += n_kv) {
        for (uint32_t c = 0; c < n_kv; c++)
            mask[c] = c <= last_seen(batch, row) ? visible : hidden;
    }
}

/* Where a text is seen whole: its rows, which stand together, see all cells up to its last, with a
 * bias by distance where the family has one (Press et al. 2021, arXiv:2108.12409), or those within
 * `reach` on each side (0: all). */
static void set_mask_whole(struct ggml_tensor *tensor, const struct batch *batch, bool has_bias,
                           uint32_t reach)
{
    ggml_fp16_t *mask = host_data(tensor);
    if (!mask)
        return;
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
    const uint32_t n_kv = (uint32_t)tensor->ne[0];
    for (uint32_t row = 0, end = 0; row < batch->n_rows; row++, mask += n_kv) {
        const struct batch_row *at = &batch->rows[row];
        for (end = end > row ? end : row; end < batch->n_rows && batch->rows[end].slot == at->slot;
             end++)
            ;
        const uint32_t last = batch->rows[end - 1].position;
        for (uint32_t c = 0; c < n_kv; c++) {
            const uint32_t distance = c > at->position ? c - at->position : at->position - c;
            mask[c] = c <= last && (!reach || distance <= reach)
                          ? ggml_fp32_to_fp16(has_bias ? -(float)distance : 0.0f)
                          : hidden;
        }
    }
}

/* Going back from position p, its window lies in as many cells of the ring; a batch's later rows
 * are written where none of them is. */
static void set_mask_window(struct ggml_tensor *tensor, const struct batch *batch, uint32_t window,
                            uint32_t ring)
{
    ggml_fp16_t *mask = host_data(tensor);
    if (!mask)
        return;
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY), visible = ggml_fp32_to_fp16(0.0f);
    const uint32_t n_cells = (uint32_t)tensor->ne[0];
    for (uint32_t row = 0; row < batch->n_rows; row++, mask += n_cells) {
        const uint32_t position = batch->rows[row].position;
        for (uint32_t c = 0; c < n_cells; c++)
            mask[c] = hidden;
        for (uint32_t back = 0; back < window && back <= position; back++)
            mask[(position - back) % ring] = visible;
        for (uint32_t c = position + 1; c <= last_seen(batch, row); c++)
            mask[c % ring] = visible;
    }
}

static void set_masks(const struct graph *graph, const struct batch *batch,
                      const struct hyperparameters *h, const struct kv_cache *kv)
{
    if (h->reads_whole) {
        set_mask_whole(graph->mask, batch, h->alibi_max != 0, 0);
        set_mask_whole(graph->mask_window, batch, false, h->window_reach);
    } else {
        set_mask(graph->mask, batch);
        set_mask_window(graph->mask_window, batch, h->window_seen, kv->window_cells);
    }
}

/* Llama 4's temperature of attention: it grows with the logarithm of the position. */
static float temperature(const struct hyperparameters *h, uint32_t position)
{
    const float steps =
        floorf(((float)position + h->temperature_offset) / (float)h->temperature_length);
    return 1.0f + h->temperature_scale * logf(1.0f + steps);
}

/* The blocks that a row sees in any case: its own and those before it. */
static void set_local_blocks(struct ggml_tensor *tensor, const struct batch *batch,
                             const struct indexer_form *form)
{
    static const float certain = 1e30f;
    float *scores = host_data(tensor);
    for (uint32_t row = 0; scores && row < batch->n_rows; row++, scores += tensor->ne[0]) {
        const uint32_t own = batch->rows[row].position / form->block;
        for (uint32_t i = 0; i < tensor->ne[0]; i++)
            scores[i] = i <= own && own - i < form->n_local ? certain : 0;
    }
}

/* ---- summaries (graph_summaries.c) ---- */

/* A row sees those whose tokens are all there. */
static void set_mask_summaries(struct ggml_tensor *tensor, const struct batch *batch,
                               uint32_t summary)
{
    ggml_fp16_t *mask = host_data(tensor);
    if (!mask)
        return;
    const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY), visible = ggml_fp32_to_fp16(0.0f);
    const uint32_t n = (uint32_t)tensor->ne[0];
    for (uint32_t row = 0; row < batch->n_rows; row++, mask += n) {
        const uint32_t n_seen = (batch->rows[row].position + 1) / summary;
        for (uint32_t i = 0; i < n; i++)
            mask[i] = i < n_seen ? visible : hidden;
    }
}

/* Where drafts of this position are: in a ring, or like whatever is kept of all tokens. */
static int32_t draft_row(const struct kv_cache *kv, uint32_t slot, uint32_t position)
{
    const bool is_ring = kv->window_cells < kv->cells;
    return (int32_t)(is_ring ? slot * kv->window_cells + position % kv->window_cells
                             : kv_cache_cell(kv, slot, position));
}

/* The summary that begins at `start`: what it is made of, and where it goes. */
static void inputs_set_summary(const struct graph_summaries *in, uint32_t index, uint32_t summary,
                               const struct kv_cache *kv, uint32_t slot, uint32_t start)
{
    int32_t *starts = host_data(in->starts), *reads = host_data(in->reads);
    int64_t *rows = host_data(in->rows);
    float *unseen = host_data(in->unseen);
    const uint32_t n_reads = graph_summary_reads(summary), n_before = n_reads - summary;
    if (starts)
        starts[index] = (int32_t)start;
    if (rows)
        rows[index] = kv_cache_cell(kv, slot, start) / summary;
    for (uint32_t i = 0; i < n_reads; i++) {
        const bool is_there = start + i >= n_before;
        const uint32_t position = is_there ? start + i - n_before : start;
        if (reads)
            reads[index * n_reads + i] = draft_row(kv, slot, position);
        if (unseen)
            unseen[index * n_reads + i] = is_there ? 0 : -INFINITY;
    }
}

static void set_summaries(const struct graph_summaries *in, const struct batch_shape *shape,
                          const struct batch *batch, const struct kv_cache *kv, uint32_t summary)
{
    int32_t *phases = host_data(in->phases);
    uint32_t index = 0;
    if (!in->starts)
        return;
    set_mask_summaries(in->mask, batch, summary);
    for (uint32_t i = 0; phases && i < batch->n_rows; i++)
        phases[i] = (int32_t)(batch->rows[i].position % summary);
    for (uint32_t g = 0; g < shape->n_groups; g++) {
        const struct batch_group *group = &shape->groups[g];
        const uint32_t n_each = (group->rows_per_slot + summary - 1) / summary;
        for (uint32_t i = 0; i < group->n_slots * n_each; i++) {
            const struct batch_row *first =
                &batch->rows[group->first_row + i / n_each * group->rows_per_slot];
            const uint32_t start = (first->position / summary + i % n_each) * summary;
            inputs_set_summary(in, index++, summary, kv, first->slot, start);
        }
    }
}

static void set_slots(int32_t *slots)
{
    for (int32_t i = 0; slots && i < LIMIT_SEQUENCES; i++)
        slots[i] = i;
}

/* Press et al. 2021, arXiv:2108.12409: 2^(-8/n), 2^(-16/n), … */
static void set_slopes(float *slopes, uint32_t n_head)
{
    const float ratio = exp2f(-8.0f / (float)n_head);
    for (uint32_t i = 0; slopes && i < n_head; i++)
        slopes[i] = powf(ratio, (float)(i + 1));
}

/* Behind a slot's last extent comes its first again: nobody sees that. */
static void set_extents(struct ggml_tensor *tensor, const struct batch_shape *shape,
                        const struct kv_map *map)
{
    int32_t *extents = host_data(tensor);
    const uint32_t n_each = shape->n_kv / KV_PADDING;
    for (uint32_t g = 0; extents && g < shape->n_groups; g++) {
        const struct batch_group *group = &shape->groups[g];
        for (uint32_t i = 0; i < group->n_gathered; i++) {
            const uint32_t slot = group->first_slot + i / n_each, at = i % n_each;
            *extents++ =
                (int32_t)
                    map->extents[(size_t)slot * map->n_each + (at < map->n_held[slot] ? at : 0)];
        }
    }
}

/* What of pictures the batch has: rows' values, how far they see, and what turns them. */
static void set_pictures(const struct graph *graph, const struct batch *batch)
{
    const size_t n = batch->n_rows;
    int64_t *given_rows = host_data(graph->given_rows);
    int32_t *given_picks = host_data(graph->given_picks);
    int32_t *ahead = host_data(graph->ahead), *turns = host_data(graph->turns);
    if (graph->given)
        ggml_backend_tensor_set(graph->given, batch->given, 0, ggml_nbytes(graph->given));
    for (uint32_t i = 0; i < n; i++) {
        const struct row_place *place = batch->places ? &batch->places[i] : NULL;
        const bool is_given = batch->rows[i].token >= PICTURE_TOKEN_FIRST;
        if (given_rows && is_given)
            *given_rows++ = i;
        if (given_picks && is_given)
            *given_picks++ = (int32_t)i;
        if (ahead)
            ahead[i] = place ? (int32_t)place->ahead : 0;
        for (size_t axis = 0; turns && axis < 4; axis++) /* the fourth is of none */
            turns[axis * n + i] =
                axis < 3 ? (int32_t)(batch->rows[i].position - (place ? place->behind[axis] : 0))
                         : 0;
    }
}

void stage_inputs_set(const struct graph *graph, const struct batch *batch,
                      const struct hyperparameters *hyperparameters, const struct kv_cache *kv,
                      const float *hidden)
{
    int32_t *tokens = host_data(graph->tokens), *positions = host_data(graph->positions);
    int32_t *outputs = host_data(graph->outputs), *sequences = host_data(graph->sequences);
    int32_t *types = host_data(graph->types);
    int64_t *cells = host_data(graph->cells), *cells_window = host_data(graph->cells_window);
    set_slots(host_data(graph->slots));
    set_summaries(&graph->summaries[0], &graph->shape, batch, kv, SUMMARY_SHORT);
    set_summaries(&graph->summaries[1], &graph->shape, batch, kv, SUMMARY_LONG);
    set_local_blocks(graph->local_blocks, batch, &hyperparameters->indexer);
    set_extents(graph->extents, &graph->shape, kv_away_map(kv));
    set_slopes(host_data(graph->slopes), hyperparameters->n_head);
    float *temperatures = host_data(graph->temperatures);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        if (tokens)
            tokens[i] = row->token < PICTURE_TOKEN_FIRST ? row->token : 0;
        if (types)
            types[i] = 0;
        if (positions)
            positions[i] = (int32_t)row->position;
        if (temperatures)
            temperatures[i] = temperature(hyperparameters, row->position);
        if (cells)
            cells[i] = kv_cache_cell(kv, row->slot, row->position);
        if (cells_window)
            cells_window[i] =
                (int64_t)row->slot * kv->window_cells + row->position % kv->window_cells;
        if (sequences)
            sequences[i] = (int32_t)row->slot;
        if (outputs && row->output)
            *outputs++ = (int32_t)i;
    }
    set_pictures(graph, batch);
    if (graph->hidden)
        ggml_backend_tensor_set(graph->hidden, hidden, 0, ggml_nbytes(graph->hidden));
    set_masks(graph, batch, hyperparameters, kv);
}
