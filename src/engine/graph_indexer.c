/* Sparse attention: an indexer scores every cell for each row, and attention sees the best (the
 * lightning indexer of DeepSeek V3.2, arXiv:2512.02556, 2.1):
 *
 *     I[row, cell] = sum over heads of w[row, head] ReLU(q[row, head] . k[cell])
 *
 * Its keys have a cache of their own beside the latents'. Layers without an indexer see what the
 * layer before them saw. The choice becomes the mask that ggml's attention takes. */
#include "engine/graph.h"

#include "engine/kv_gather.h"

#include <math.h>

/* As many cells as a row sees, at most; 0: all of them. */
static int64_t index_count(const struct graph_build *b)
{
    const int64_t top_k = b->h->indexer.top_k;
    return top_k < b->graph->shape.n_kv ? top_k : 0;
}

void graph_index(struct graph_build *b, uint32_t index, struct ggml_tensor *x,
                 struct ggml_tensor *q_latent)
{
    const struct indexer_form *form = &b->h->indexer;
    const struct layer_form *layer = graph_layer_form(b, index);
    struct ggml_tensor **w = b->source->weights->layers[index];
    const int64_t d = form->dim, n_head = form->n_head, t = x->ne[1];
    const enum rope_kind rope = b->architecture->indexer_rope;
    if (!layer->has_indexer)
        return;
    struct ggml_tensor *k = graph_linear(b, w[TENSOR_INDEX_K], NULL, x);
    k = ggml_mul(b->ctx, ggml_norm(b->ctx, k, b->h->norm_epsilon), w[TENSOR_INDEX_K_NORM]);
    k = ggml_add(b->ctx, k, w[TENSOR_INDEX_K_NORM_BIAS]);
    k = graph_rotate(b, layer, rope, ggml_reshape_3d(b->ctx, k, d, 1, t));
    graph_store(b, b->source->kv->index[index], k, b->graph->cells);
    b->chosen = NULL;
    for (uint32_t i = 0; i < LIMIT_SEQUENCES; i++)
        b->chosen_masks[i] = NULL;
    if (!index_count(b))
        return;
    struct ggml_tensor *q = graph_linear(b, w[TENSOR_INDEX_Q], NULL, q_latent);
    b->index_q = graph_rotate(b, layer, rope, ggml_reshape_3d(b->ctx, q, d, n_head, t));
    b->index_weights = ggml_scale(b->ctx, graph_linear(b, w[TENSOR_INDEX_WEIGHTS], NULL, x),
                                  1.0f / sqrtf((float)(n_head * d)));
}

/* Of a group's rows, I32: [n, rows], the best first or not, by keys `k`, [d, c, s]. `mask` [c, r,
 * 1, s] */
static struct ggml_tensor *choose_best(struct graph_build *b, const struct batch_group *group,
                                       struct ggml_tensor *k, struct ggml_tensor *mask, int64_t n)
{
    const struct ggml_tensor *q = b->index_q, *w = b->index_weights;
    const int64_t r = group->rows_per_slot, s = group->n_slots;
    const int64_t ne[] = {k->ne[0], 1, k->ne[1], s};
    const size_t nb[] = {k->nb[0], k->nb[1], k->nb[1], k->nb[3]};
    struct ggml_tensor *rows =
        ggml_view_4d(b->ctx, b->index_q, q->ne[0], q->ne[1], r, s, q->nb[1], q->nb[2],
                     q->nb[2] * group->rows_per_slot, q->nb[2] * group->first_row);
    struct ggml_tensor *weights = ggml_view_4d(
        b->ctx, b->index_weights, w->ne[0], r, 1, s, w->nb[1], w->nb[1] * group->rows_per_slot,
        w->nb[1] * group->rows_per_slot, w->nb[1] * group->first_row);
    struct ggml_tensor *scores =
        ggml_lightning_indexer(b->ctx, rows, kv_view(b->ctx, k, k->type, ne, nb, 0), weights, mask);
    return ggml_reshape_2d(b->ctx, ggml_cont(b->ctx, ggml_top_k(b->ctx, scores, (int)n)), n, r * s);
}

static struct ggml_tensor *choose_cells(struct graph_build *b, uint32_t index,
                                        const struct batch_group *group, struct ggml_tensor *mask)
{
    const struct ggml_tensor *cache = b->source->kv->index[index];
    const struct cells_view cells = graph_group_cells(b, b->source->kv->index[index], false, group);
    const size_t row = cache->nb[1];
    const int64_t ne[] = {cache->ne[0], mask->ne[0], 1, group->n_slots};
    const size_t nb[] = {ggml_type_size(cache->type), row, row, row * cells.step};
    struct ggml_tensor *k = kv_view(b->ctx, cells.rows, cache->type, ne, nb, row * cells.first);
    return choose_best(b, group, k, mask, index_count(b));
}

/* The mask where cells were chosen, -inf elsewhere: [c, r, 1, s] */
static struct ggml_tensor *mask_chosen(struct graph_build *b, struct ggml_tensor *mask,
                                       struct ggml_tensor *chosen)
{
    const int64_t c = mask->ne[0], r = mask->ne[1], s = mask->ne[3];
    struct ggml_tensor *columns = ggml_reshape_3d(b->ctx, mask, 1, c, r * s);
    struct ggml_tensor *seen = ggml_get_rows(b->ctx, columns, chosen); /* F32 [1, n, r s] */
    struct ggml_tensor *none =
        ggml_fill(b->ctx, ggml_cast(b->ctx, columns, GGML_TYPE_F32), -INFINITY);
    struct ggml_tensor *all = ggml_set_rows(b->ctx, none, seen, chosen);
    return ggml_cast(b->ctx, ggml_reshape_4d(b->ctx, all, c, r, 1, s), GGML_TYPE_F16);
}

struct ggml_tensor *graph_index_mask(struct graph_build *b, uint32_t index, uint32_t group_index,
                                     struct ggml_tensor *mask)
{
    const struct batch_group *group = &b->graph->shape.groups[group_index];
    const int64_t n = index_count(b), n_rows = (int64_t)group->rows_per_slot * group->n_slots;
    struct ggml_tensor *chosen;
    if (!n)
        return mask;
    if (b->chosen_masks[group_index])
        return b->chosen_masks[group_index];
    if (graph_layer_form(b, index)->has_indexer) {
        chosen = choose_cells(b, index, group, mask);
        b->chosen = b->chosen ? ggml_concat(b->ctx, b->chosen, chosen, 1) : chosen;
    } else { /* in another stage */
        chosen = ggml_view_2d(b->ctx, b->chosen, n, n_rows, b->chosen->nb[1],
                              b->chosen->nb[1] * group->first_row);
    }
    return b->chosen_masks[group_index] = mask_chosen(b, mask, chosen);
}

struct ggml_tensor *graph_index_summaries_mask(struct graph_build *b,
                                               const struct batch_group *group,
                                               struct ggml_tensor *k, struct ggml_tensor *mask)
{
    const int64_t n = b->h->indexer.top_k;
    return n < mask->ne[0] ? mask_chosen(b, mask, choose_best(b, group, k, mask, n)) : mask;
}

/* ---- blocks of cells (MiniMax M3) -------------------------------------------------------------
 *
 * A head for each KV head; a block scores the largest q . k of its cells. The best are seen, and in
 * any case those that `local_blocks` says. */

static int64_t index_block_count(const struct graph_build *b) /* 0: all are seen */
{
    const int64_t n = b->graph->shape.n_kv / b->h->indexer.block, top_k = b->h->indexer.top_k;
    return top_k < n ? top_k : 0;
}

void graph_index_blocks(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    const struct indexer_form *form = &b->h->indexer;
    const struct layer_form *layer = graph_layer_form(b, index);
    struct ggml_tensor **w = b->source->weights->layers[index];
    const enum rope_kind rope = b->architecture->indexer_rope;
    const int64_t d = form->dim, t = x->ne[1];
    struct ggml_tensor *k = graph_linear(b, w[TENSOR_INDEX_K], NULL, x);
    k = graph_norm(b, ggml_reshape_3d(b->ctx, k, d, 1, t), w[TENSOR_INDEX_K_NORM]);
    graph_store(b, b->source->kv->index[index], graph_rotate(b, layer, rope, k), b->graph->cells);
    if (!index_block_count(b))
        return;
    struct ggml_tensor *q = graph_linear(b, w[TENSOR_INDEX_Q], NULL, x);
    q = graph_norm(b, ggml_reshape_3d(b->ctx, q, d, form->n_head, t), w[TENSOR_INDEX_Q_NORM]);
    b->index_q = graph_rotate(b, layer, rope, q);
}

/* The blocks that each head's rows see: I32 [n, n_head r s]. `visible`: the mask, F32 [c, 1, r, s]
 */
static struct ggml_tensor *choose_blocks(struct graph_build *b, uint32_t index,
                                         const struct batch_group *group,
                                         struct ggml_tensor *visible)
{
    const struct ggml_tensor *cache = b->source->kv->index[index], *q = b->index_q;
    const int64_t c = visible->ne[0], r = visible->ne[2], s = visible->ne[3],
                  n = index_block_count(b), n_head = q->ne[1], d = q->ne[0];
    const int block = (int)b->h->indexer.block;
    const struct cells_view cells = graph_group_cells(b, b->source->kv->index[index], false, group);
    const size_t row = cache->nb[1];
    const int64_t ne[] = {d, c, 1, s};
    const size_t nb[] = {ggml_type_size(cache->type), row, row * (size_t)c, row * cells.step};
    struct ggml_tensor *k = kv_view(b->ctx, cells.rows, cache->type, ne, nb, row * cells.first);
    struct ggml_tensor *rows =
        ggml_view_4d(b->ctx, b->index_q, d, n_head * r, 1, s, q->nb[1], q->nb[2] * (size_t)r,
                     q->nb[2] * (size_t)r, q->nb[2] * group->first_row);
    struct ggml_tensor *scores = ggml_mul_mat(b->ctx, k, rows); /* [c, n_head r, 1, s] */
    ggml_prec_set_acc(scores, GGML_PREC_F32);
    scores = ggml_add(b->ctx, ggml_reshape_4d(b->ctx, scores, c, n_head, r, s), visible);
    scores = ggml_pool_2d(b->ctx, scores, GGML_OP_POOL_MAX, block, 1, block, 1, 0, 0);
    const struct ggml_tensor *local = b->graph->local_blocks;
    const size_t local_row = local->nb[1];
    scores = ggml_add(b->ctx, scores,
                      ggml_view_4d(b->ctx, b->graph->local_blocks, local->ne[0], 1, r, s, local_row,
                                   local_row, local_row * (size_t)r, local_row * group->first_row));
    struct ggml_tensor *best = ggml_cont(b->ctx, ggml_top_k(b->ctx, scores, (int)n));
    return ggml_reshape_2d(b->ctx, best, n, n_head * r * s);
}

struct ggml_tensor *graph_index_block_masks(struct graph_build *b, uint32_t index,
                                            const struct batch_group *group,
                                            struct ggml_tensor *mask)
{
    const int64_t c = mask->ne[0], r = mask->ne[1], s = mask->ne[3], block = b->h->indexer.block,
                  n_head = b->h->indexer.n_head, all = n_head * r * s;
    if (!index_block_count(b))
        return NULL;
    struct ggml_tensor *visible =
        ggml_cast(b->ctx, ggml_reshape_4d(b->ctx, mask, c, 1, r, s), GGML_TYPE_F32);
    struct ggml_tensor *chosen = choose_blocks(b, index, group, visible);
    struct ggml_tensor *none = ggml_fill(
        b->ctx, ggml_repeat_4d(b->ctx, ggml_view_1d(b->ctx, visible, 1, 0), 1, c / block, all, 1),
        -INFINITY);
    struct ggml_tensor *seen =
        ggml_fill(b->ctx, ggml_get_rows(b->ctx, none, chosen), 0.0f); /* [1, n, all] */
    struct ggml_tensor *blocks = ggml_set_rows(b->ctx, none, seen, chosen);
    blocks = ggml_repeat_4d(b->ctx, blocks, block, c / block, all, 1);
    blocks = ggml_add(b->ctx, ggml_reshape_4d(b->ctx, blocks, c, n_head, r, s), visible);
    blocks = ggml_permute(b->ctx, ggml_cast(b->ctx, blocks, GGML_TYPE_F16), 0, 2, 1, 3);
    return ggml_cont(b->ctx, blocks);
}

/* ---- from stage to stage --------------------------------------------------------------------- */

void graph_index_take(struct graph_build *b, struct ggml_tensor *carried)
{
    const int64_t n = index_count(b); /* all that the indexer picks, or none */
    if (!n)
        return;
    b->chosen = graph_carried_numbers(b, carried, n);
}

struct ggml_tensor *graph_index_give(struct graph_build *b)
{
    if (!index_count(b) || !b->chosen)
        return NULL;
    struct ggml_tensor *both = graph_carried_digits(b, b->chosen); /* [2 top_k, t] */
    struct ggml_tensor *pad = ggml_view_2d(b->ctx, both, 1, both->ne[1], both->nb[1], 0);
    return ggml_concat(b->ctx, both, ggml_cont(b->ctx, pad), 0); /* hyperparameters_indexer.c */
}
