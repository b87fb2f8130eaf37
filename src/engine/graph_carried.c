/* What layers take beside the hidden state, and rows so carry from stage to stage: Gemma 4's
 * embeddings of each layer, and keys and values of layers that later ones see, too.
 *
 * A row is [n_embd] the hidden state, [n_layer_input, n_layers] embeddings, then K and V of the
 * layer that later full layers see, then those of windowed ones; or the cells that the last indexer
 * chose; or the residuals of earlier blocks; or all streams and, where layers choose experts by it,
 * the token. */
#include "engine/graph.h"

#include <assert.h>
#include <math.h>

/* `n` values of each row from `offset` on: [n, t] */
static struct ggml_tensor *carried_slice(struct graph_build *b, struct ggml_tensor *rows, int64_t n,
                                         int64_t offset)
{
    return ggml_cont(b->ctx, ggml_view_2d(b->ctx, rows, n, rows->ne[1], rows->nb[1],
                                          (size_t)offset * sizeof(float)));
}

/* As heads: [d, n_head_kv, t]; moves `offset` on. */
static struct ggml_tensor *carried_heads(struct graph_build *b, struct ggml_tensor *rows, int64_t d,
                                         int64_t n_head_kv, int64_t *offset)
{
    struct ggml_tensor *slice = carried_slice(b, rows, d * n_head_kv, *offset);
    *offset += d * n_head_kv;
    return ggml_reshape_3d(b->ctx, slice, d, n_head_kv, rows->ne[1]);
}

/* Residuals that the layers before this one keep. */
static int64_t carried_residuals(const struct graph_build *b, uint32_t layer)
{
    return (layer + b->h->residual_period - 1) / b->h->residual_period;
}

/* Numbers below this one: F16 holds them exactly. */
static const float carried_radix = 2048.0f;

struct ggml_tensor *graph_carried_digits(struct graph_build *b, struct ggml_tensor *numbers)
{
    struct ggml_tensor *all = ggml_cast(b->ctx, numbers, GGML_TYPE_F32);
    struct ggml_tensor *high = ggml_floor(b->ctx, ggml_scale(b->ctx, all, 1.0f / carried_radix));
    struct ggml_tensor *low = ggml_sub(b->ctx, all, ggml_scale(b->ctx, high, carried_radix));
    return ggml_concat(b->ctx, low, high, 0);
}

struct ggml_tensor *graph_carried_numbers(struct graph_build *b, struct ggml_tensor *digits,
                                          int64_t n)
{
    struct ggml_tensor *low = ggml_view_2d(b->ctx, digits, n, digits->ne[1], digits->nb[1], 0);
    struct ggml_tensor *high = carried_slice(b, digits, n, n);
    high = ggml_scale(b->ctx, high, carried_radix);
    return ggml_cast(b->ctx, ggml_add(b->ctx, high, low), GGML_TYPE_I32);
}

/* All streams, [n_embd, n, t], and into `b` the tokens. */
static struct ggml_tensor *carried_take_streams(struct graph_build *b, struct ggml_tensor *rows)
{
    const int64_t n_embd = b->h->n_embd, n = b->h->streams.n;
    if (b->h->summaries.n_token_routed)
        b->tokens = graph_carried_numbers(b, carried_slice(b, rows, 2, n_embd * n), 1);
    struct ggml_tensor *x = carried_slice(b, rows, n_embd * n, 0);
    return ggml_reshape_3d(b->ctx, x, n_embd, n, rows->ne[1]);
}

static struct ggml_tensor *carried_give_streams(struct graph_build *b, struct ggml_tensor *x)
{
    const int64_t t = x->ne[2];
    x = graph_streams_flat(b, x);
    if (!b->h->summaries.n_token_routed)
        return x;
    struct ggml_tensor *tokens = ggml_reshape_2d(b->ctx, b->tokens, 1, t);
    return ggml_concat(b->ctx, x, graph_carried_digits(b, tokens), 0);
}

struct ggml_tensor *graph_carried_take(struct graph_build *b)
{
    const struct hyperparameters *h = b->h;
    struct ggml_tensor *rows = b->graph->hidden;
    const int64_t t = rows->ne[1];
    int64_t offset = h->n_embd;
    if (!h->n_carried)
        return rows;
    if (h->streams.n)
        return carried_take_streams(b, rows);
    if (h->n_layer_input) {
        b->layer_inputs = carried_slice(b, rows, (int64_t)h->n_layer_input * h->n_layers, offset);
        b->layer_inputs =
            ggml_reshape_3d(b->ctx, b->layer_inputs, h->n_layer_input, h->n_layers, t);
        offset += (int64_t)h->n_layer_input * h->n_layers;
    }
    for (int windowed = 0; windowed < 2; windowed++) {
        const uint32_t layer = hyperparameters_shared_layer(h, windowed);
        const struct layer_form *form = &h->layers[layer];
        struct graph_shared *shared = &b->shared[windowed];
        if (layer == h->n_layers)
            continue;
        shared->k = carried_heads(b, rows, form->dim_k, form->n_head_kv, &offset);
        shared->v = carried_heads(b, rows, form->dim_v, form->n_head_kv, &offset);
    }
    if (h->indexer.n_head) {
        graph_index_take(b, carried_slice(b, rows, h->n_carried, offset));
        offset += h->n_carried;
    }
    if (h->residual_period) {
        const int64_t n = carried_residuals(b, b->source->weights->first_layer);
        b->kept = carried_slice(b, rows, h->n_embd * n, offset);
        b->kept = ggml_reshape_3d(b->ctx, b->kept, h->n_embd, n, t);
        offset += h->n_carried;
    }
    assert(offset == rows->ne[0]);
    return carried_slice(b, rows, h->n_embd, 0);
}

static struct ggml_tensor *carried_join(struct graph_build *b, struct ggml_tensor *rows,
                                        struct ggml_tensor *more, int64_t n)
{
    const int64_t t = rows->ne[1];
    if (more && !ggml_is_contiguous(more))
        more = ggml_cont(b->ctx, more);
    if (!more) /* no layer so far has it */
        more = ggml_fill(
            b->ctx,
            ggml_repeat_4d(b->ctx, ggml_view_2d(b->ctx, rows, 1, t, rows->nb[1], 0), n, t, 1, 1),
            0.0f);
    return ggml_concat(b->ctx, rows, ggml_reshape_2d(b->ctx, more, n, t), 0);
}

struct ggml_tensor *graph_carried_give(struct graph_build *b, struct ggml_tensor *x)
{
    const struct hyperparameters *h = b->h;
    if (h->streams.n)
        return carried_give_streams(b, x);
    if (h->n_layer_input)
        x = carried_join(b, x, b->layer_inputs, (int64_t)h->n_layer_input * h->n_layers);
    for (int windowed = 0; windowed < 2; windowed++) {
        const uint32_t layer = hyperparameters_shared_layer(h, windowed);
        const struct layer_form *form = &h->layers[layer];
        if (layer == h->n_layers)
            continue;
        x = carried_join(b, x, b->shared[windowed].k, (int64_t)form->dim_k * form->n_head_kv);
        x = carried_join(b, x, b->shared[windowed].v, (int64_t)form->dim_v * form->n_head_kv);
    }
    if (h->indexer.n_head)
        x = carried_join(b, x, graph_index_give(b), h->n_carried);
    if (h->residual_period) {
        const int64_t n = h->n_embd * b->kept->ne[1];
        x = carried_join(b, x, b->kept, n);
        if (n < h->n_carried)
            x = carried_join(b, x, NULL, h->n_carried - n);
    }
    assert(x->ne[0] == h->n_embd + h->n_carried);
    return x;
}

/* ---- embeddings of each layer ---------------------------------------------------------------- */

void graph_layer_inputs(struct graph_build *b, struct ggml_tensor *x)
{
    struct ggml_tensor *const *outside = b->source->weights->outside;
    const int64_t n = b->h->n_layer_input, n_layers = b->h->n_layers, t = x->ne[1];
    if (!n)
        return;
    struct ggml_tensor *own =
        ggml_get_rows(b->ctx, outside[TENSOR_INPUTS_EMBEDDING], b->graph->tokens);
    own = ggml_scale(b->ctx, ggml_reshape_3d(b->ctx, own, n, n_layers, t), sqrtf((float)n));
    struct ggml_tensor *all = graph_linear(b, outside[TENSOR_INPUTS_PROJECTION], NULL, x);
    all = ggml_scale(b->ctx, all, 1.0f / sqrtf((float)b->h->n_embd));
    all = graph_norm(b, ggml_reshape_3d(b->ctx, all, n, n_layers, t), outside[TENSOR_INPUTS_NORM]);
    b->layer_inputs = ggml_scale(b->ctx, ggml_add(b->ctx, all, own), (float)M_SQRT1_2);
}

struct ggml_tensor *graph_layer_input(struct graph_build *b, uint32_t index, struct ggml_tensor *x,
                                      bool very_last)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct ggml_tensor *all = b->layer_inputs;
    const size_t layer = b->source->weights->first_layer + index;
    struct ggml_tensor *own = ggml_view_2d(b->ctx, b->layer_inputs, all->ne[0], all->ne[2],
                                           all->nb[2], layer * all->nb[1]);
    own = ggml_cont(b->ctx, own);
    if (very_last)
        own = graph_pick_rows(b, own);
    struct ggml_tensor *y = graph_linear(b, w[TENSOR_LAYER_INPUT_GATE], NULL, x);
    y = ggml_geglu_split(b->ctx, y, own);
    y = graph_linear(b, w[TENSOR_LAYER_INPUT_OUT], NULL, y);
    return ggml_add(b->ctx, x, graph_norm(b, y, w[TENSOR_LAYER_INPUT_NORM]));
}
