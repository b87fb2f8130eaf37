/* What only encoders have: embeddings of positions and types, blocks whose sums are normed (BERT,
 * arXiv:1810.04805), and a head that ranks. */
#include "engine/graph.h"

static struct ggml_tensor *encoder_add_rows(struct graph_build *b, struct ggml_tensor *x,
                                            struct ggml_tensor *table, struct ggml_tensor *ids)
{
    return table ? ggml_add(b->ctx, x, ggml_get_rows(b->ctx, table, ids)) : x;
}

struct ggml_tensor *graph_encoder_inputs(struct graph_build *b, struct ggml_tensor *x)
{
    struct ggml_tensor *const *outside = b->source->weights->outside;
    x = encoder_add_rows(b, x, outside[TENSOR_TYPE_EMBEDDING], b->graph->types);
    x = encoder_add_rows(b, x, outside[TENSOR_POSITION_EMBEDDING], b->graph->positions);
    return graph_block_norm(b, x, outside[TENSOR_EMBEDDING_NORM],
                            outside[TENSOR_EMBEDDING_NORM_BIAS]);
}

struct ggml_tensor *graph_encoder_layer(struct graph_build *b, uint32_t index,
                                        struct ggml_tensor *x, bool very_last)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    struct ggml_tensor *y = graph_attention(b, index, x);
    if (very_last) { /* from here on rows are independent */
        x = graph_pick_rows(b, x);
        y = graph_pick_rows(b, y);
    }
    y = graph_block_norm(b, ggml_add(b->ctx, y, x), w[TENSOR_ATTENTION_POST_NORM],
                         w[TENSOR_ATTENTION_POST_NORM_BIAS]);
    if (w[TENSOR_ATTENTION_SECOND_NORM])
        y = graph_block_norm(b, ggml_add(b->ctx, y, x), w[TENSOR_ATTENTION_SECOND_NORM],
                             w[TENSOR_ATTENTION_SECOND_NORM_BIAS]);
    x = ggml_add(b->ctx, graph_ffn(b, index, y), y);
    return graph_block_norm(b, x, w[TENSOR_FFN_POST_NORM], w[TENSOR_FFN_POST_NORM_BIAS]);
}

struct ggml_tensor *graph_rank(struct graph_build *b, struct ggml_tensor *x)
{
    struct ggml_tensor *const *outside = b->source->weights->outside;
    const int64_t width = x->ne[0];
    if (outside[TENSOR_RANK_DENSE])
        x = ggml_tanh(b->ctx, graph_linear(b, outside[TENSOR_RANK_DENSE],
                                           outside[TENSOR_RANK_DENSE_BIAS], x));
    if (outside[TENSOR_RANK_NORM])
        x = graph_block_norm(b, x, outside[TENSOR_RANK_NORM], NULL);
    x = graph_linear(b, outside[TENSOR_RANK_OUT], outside[TENSOR_RANK_OUT_BIAS], x);
    if (!b->h->reads_whole && b->h->n_labels == 2) /* Qwen3's: the chances of "yes" and of "no" */
        x = ggml_soft_max(b->ctx, x);
    return ggml_pad(b->ctx, x, (int)(width - x->ne[0]), 0, 0, 0);
}
