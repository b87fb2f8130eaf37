/* Hyper-connections (arXiv:2409.19606, and with Sinkhorn's normalisation arXiv:2512.24880): n
 * residual streams in place of one. A branch takes a mixture of them, and each becomes a mixture of
 * all, and a share of what the branch gives. The weights follow from the streams themselves:
 *
 *     m = W norm(streams)              n to take, n to give, n x n to mix
 *     take = sigmoid(m scale + base) + epsilon
 *     give = 2 sigmoid(m scale + base)
 *     mix  = Sinkhorn(m scale + base)  rows and columns that sum to 1
 *
 * Streams are [n_embd, n, t]. */
#include "engine/graph.h"

struct stream_weights {
    struct ggml_tensor *mixes; /* [n (2 + n), t] */
    struct ggml_tensor *give;  /* [n, t] */
    struct ggml_tensor *mix;   /* [n, n, t] */
};

struct ggml_tensor *graph_streams_begin(struct graph_build *b, struct ggml_tensor *x)
{
    const int64_t n_embd = x->ne[0], t = x->ne[1];
    return ggml_repeat_4d(b->ctx, ggml_reshape_3d(b->ctx, x, n_embd, 1, t), n_embd, b->h->streams.n,
                          t, 1);
}

struct ggml_tensor *graph_streams_flat(struct graph_build *b, struct ggml_tensor *x)
{
    return ggml_reshape_2d(b->ctx, x, x->ne[0] * x->ne[1], x->ne[2]);
}

static struct ggml_tensor *streams_mixes(struct graph_build *b, struct ggml_tensor *matrix,
                                         struct ggml_tensor *x)
{
    struct ggml_tensor *flat = ggml_rms_norm(b->ctx, graph_streams_flat(b, x), b->h->norm_epsilon);
    return graph_linear(b, matrix, NULL, flat);
}

/* Weights number `kind` of the mixes, n of them: sigmoid(m scale + base) */
static struct ggml_tensor *streams_shares(struct graph_build *b, struct ggml_tensor *mixes,
                                          struct ggml_tensor *scale, struct ggml_tensor *base,
                                          size_t kind)
{
    const int64_t n = b->h->streams.n;
    const size_t at = kind * (size_t)n * sizeof(float);
    struct ggml_tensor *m = ggml_view_2d(b->ctx, mixes, n, mixes->ne[1], mixes->nb[1], at);
    m = ggml_mul(b->ctx, m, ggml_view_1d(b->ctx, scale, 1, kind * sizeof(float)));
    m = ggml_add(b->ctx, m, ggml_view_1d(b->ctx, base, n, at));
    return ggml_sigmoid(b->ctx, m);
}

static struct ggml_tensor *streams_take(struct graph_build *b, struct ggml_tensor *x,
                                        struct ggml_tensor *shares)
{
    return ggml_dsv4_hc_pre(b->ctx, x,
                            ggml_scale_bias(b->ctx, shares, 1.0f, b->h->streams.epsilon));
}

/* What a branch takes: [n_embd, t]. `roles`: of the matrix, which base and scale follow. */
static struct ggml_tensor *streams_enter(struct graph_build *b, struct ggml_tensor *x,
                                         struct ggml_tensor *const *roles,
                                         struct stream_weights *out)
{
    const struct streams_form *form = &b->h->streams;
    struct ggml_tensor *base = roles[1], *scale = roles[2];
    struct ggml_tensor *mixes = out->mixes = streams_mixes(b, roles[0], x);
    out->give = ggml_scale(b->ctx, streams_shares(b, mixes, scale, base, 1), 2.0f);
    out->mix =
        ggml_dsv4_hc_comb(b->ctx, mixes, scale, base, form->epsilon, (int32_t)form->n_iterations);
    return streams_take(b, x, streams_shares(b, mixes, scale, base, 0));
}

static struct ggml_tensor *streams_leave(struct graph_build *b, struct ggml_tensor *x,
                                         struct ggml_tensor *y,
                                         const struct stream_weights *weights)
{
    return ggml_dsv4_hc_post(b->ctx, y, x, weights->give, weights->mix);
}

/* The rows that are wanted, also of the tokens, from which experts may follow. */
static struct ggml_tensor *streams_pick_rows(struct graph_build *b, struct ggml_tensor *x)
{
    const int64_t n_embd = x->ne[0], n = x->ne[1];
    if (!b->graph->outputs)
        return x;
    if (b->tokens)
        b->tokens = graph_pick_rows(b, ggml_reshape_2d(b->ctx, b->tokens, 1, x->ne[2]));
    x = graph_pick_rows(b, graph_streams_flat(b, x));
    return ggml_reshape_3d(b->ctx, x, n_embd, n, x->ne[1]);
}

struct ggml_tensor *graph_streams_layer(struct graph_build *b, uint32_t index,
                                        struct ggml_tensor *x, bool very_last)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    struct stream_weights weights;
    struct ggml_tensor *y = streams_enter(b, x, &w[TENSOR_STREAMS_ATTENTION], &weights);
    y = graph_summaries_attention(b, index, graph_norm(b, y, w[TENSOR_ATTENTION_NORM]));
    x = streams_leave(b, x, y, &weights);
    if (very_last)
        x = streams_pick_rows(b, x);
    y = streams_enter(b, x, &w[TENSOR_STREAMS_FFN], &weights);
    y = graph_ffn(b, index, graph_norm(b, y, w[TENSOR_FFN_NORM]));
    return streams_leave(b, x, y, &weights);
}

struct ggml_tensor *graph_streams_end(struct graph_build *b, struct ggml_tensor *x)
{
    struct ggml_tensor *const *outside = b->source->weights->outside;
    struct ggml_tensor *mixes = streams_mixes(b, outside[TENSOR_STREAMS_OUTPUT], x);
    return streams_take(b, x,
                        streams_shares(b, mixes, outside[TENSOR_STREAMS_OUTPUT_SCALE],
                                       outside[TENSOR_STREAMS_OUTPUT_BASE], 0));
}
