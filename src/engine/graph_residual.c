/* Attention over the residuals of earlier blocks (Kimi K3): every so many layers the hidden state
 * is kept, and the stream begins anew with what the layer's attention gives. What a branch takes is
 * a mixture of all that was kept and the stream; each is weighted by a softmax over
 *
 *     s = sum(norm(x) . w)
 */
#include "engine/graph.h"

/* One number for each row of x ([n_embd, n, t]): [n, t] */
static struct ggml_tensor *residual_scores(struct graph_build *b, struct ggml_tensor *x,
                                           struct ggml_tensor *weight)
{
    struct ggml_tensor *y = ggml_sum_rows(b->ctx, graph_norm(b, x, weight)); /* [1, n, t] */
    return ggml_reshape_2d(b->ctx, y, x->ne[1], x->ne[2]);
}

struct ggml_tensor *graph_residual_mix(struct graph_build *b, struct ggml_tensor *x,
                                       struct ggml_tensor *weight)
{
    struct ggml_tensor *kept = b->kept;
    if (!kept)
        return x;
    const int64_t n = kept->ne[1], t = x->ne[1];
    struct ggml_tensor *own =
        residual_scores(b, ggml_reshape_3d(b->ctx, x, x->ne[0], 1, t), weight);
    struct ggml_tensor *shares =
        ggml_soft_max(b->ctx, ggml_concat(b->ctx, residual_scores(b, kept, weight), own, 0));
    struct ggml_tensor *of_kept =
        ggml_cont(b->ctx, ggml_view_2d(b->ctx, shares, n, t, shares->nb[1], 0));
    struct ggml_tensor *of_x = ggml_cont(
        b->ctx, ggml_view_2d(b->ctx, shares, 1, t, shares->nb[1], (size_t)n * sizeof(float)));
    return ggml_add(b->ctx, ggml_dsv4_hc_pre(b->ctx, kept, of_kept), ggml_mul(b->ctx, x, of_x));
}

static void residual_keep(struct graph_build *b, struct ggml_tensor *x)
{
    x = ggml_reshape_3d(b->ctx, x, x->ne[0], 1, x->ne[1]);
    b->kept = b->kept ? ggml_concat(b->ctx, b->kept, x, 1) : x;
}

/* The rows that are wanted of what was kept. */
static void residual_pick_rows(struct graph_build *b)
{
    struct ggml_tensor *kept = b->kept;
    if (!kept || !b->graph->outputs)
        return;
    const int64_t n_embd = kept->ne[0], n = kept->ne[1];
    kept = ggml_reshape_2d(b->ctx, ggml_cont(b->ctx, kept), n_embd * n, kept->ne[2]);
    kept = graph_pick_rows(b, kept);
    b->kept = ggml_reshape_3d(b->ctx, kept, n_embd, n, kept->ne[1]);
}

struct ggml_tensor *graph_residual_layer(struct graph_build *b, uint32_t index,
                                         struct ggml_tensor *x, bool very_last)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const uint32_t layer = b->source->weights->first_layer + index;
    const bool keeps = layer % b->h->residual_period == 0;
    struct ggml_tensor *y = graph_residual_mix(b, x, w[TENSOR_ATTENTION_RESIDUALS]);
    if (keeps)
        residual_keep(b, x);
    y = graph_norm(b, y, w[TENSOR_ATTENTION_NORM]);
    y = graph_layer_form(b, index)->is_recurrent ? graph_recurrence(b, index, y)
                                                 : graph_attention(b, index, y);
    if (very_last) {
        x = graph_pick_rows(b, x);
        y = graph_pick_rows(b, y);
        residual_pick_rows(b);
    }
    x = keeps ? y : ggml_add(b->ctx, x, y);
    y = graph_residual_mix(b, x, w[TENSOR_FFN_RESIDUALS]);
    y = graph_ffn(b, index, graph_norm(b, y, w[TENSOR_FFN_NORM]));
    return ggml_add(b->ctx, x, y);
}
