#include "engine/graph.h"

#include <math.h>

/* gpt-oss's SwiGLU: x * sigmoid(alpha x) with both halves clamped (openai/gpt-oss, model.py). */
static const float swiglu_oai_alpha = 1.702f, swiglu_oai_limit = 7.0f;

/* act(gate) * up */
static struct ggml_tensor *activate(struct graph_build *b, struct ggml_tensor *gate,
                                    struct ggml_tensor *up)
{
    switch (b->architecture->activation) {
    case ACT_SILU:
        return ggml_swiglu_split(b->ctx, gate, up);
    case ACT_GELU:
        return ggml_geglu_split(b->ctx, gate, up);
    case ACT_SWIGLU_OAI:
        return ggml_swiglu_oai(b->ctx, gate, up, swiglu_oai_alpha, swiglu_oai_limit);
    }
    return NULL;
}

static struct ggml_tensor *dense(struct graph_build *b, struct ggml_tensor **w,
                                 struct ggml_tensor *x)
{
    struct ggml_tensor *up = graph_linear(b, w[TENSOR_FFN_UP], w[TENSOR_FFN_UP_BIAS], x);
    struct ggml_tensor *y;
    if (b->architecture->fused_gate_up) /* [2 n_ff, t]: gate, then up */
        y = b->architecture->activation == ACT_GELU ? ggml_geglu(b->ctx, up)
                                                    : ggml_swiglu(b->ctx, up);
    else
        y = activate(b, graph_linear(b, w[TENSOR_FFN_GATE], w[TENSOR_FFN_GATE_BIAS], x), up);
    return graph_linear(b, w[TENSOR_FFN_DOWN], w[TENSOR_FFN_DOWN_BIAS], y);
}

struct routing {
    struct ggml_tensor *chosen;  /* I32 [n_used, t] */
    struct ggml_tensor *weights; /* F32 [1, n_used, t] */
};

static struct routing route(struct graph_build *b, struct ggml_tensor **w, struct ggml_tensor *x)
{
    int64_t n_experts = b->h->n_experts, n_used = b->h->n_experts_used, t = x->ne[1];
    bool late = b->architecture->gating == GATE_SOFTMAX_OF_CHOSEN;
    struct ggml_tensor *logits =
        graph_linear(b, w[TENSOR_ROUTER], w[TENSOR_ROUTER_BIAS], x); /* [n_experts, t] */
    struct ggml_tensor *scores = late ? logits : ggml_soft_max(b->ctx, logits);
    struct ggml_tensor *chosen = ggml_argsort_top_k(b->ctx, scores, (int)n_used);
    struct ggml_tensor *weights =
        ggml_get_rows(b->ctx, ggml_reshape_3d(b->ctx, scores, 1, n_experts, t), chosen);
    weights = ggml_reshape_2d(b->ctx, weights, n_used, t);
    if (late) {
        weights = ggml_soft_max(b->ctx, weights);
    } else if (!b->architecture->keep_expert_sum) {
        /* the sum cannot be 0 in exact arithmetic; in F16 on a GPU it can: clamp to F16's smallest
         * normal */
        struct ggml_tensor *sum =
            ggml_clamp(b->ctx, ggml_sum_rows(b->ctx, weights), 0x1p-14f, INFINITY);
        weights = ggml_div(b->ctx, weights, sum);
    }
    if (b->h->expert_weight_scale != 1.0f)
        weights = ggml_scale(b->ctx, weights, b->h->expert_weight_scale);
    return (struct routing){.chosen = chosen,
                            .weights = ggml_reshape_3d(b->ctx, weights, 1, n_used, t)};
}

/* One matrix of each chosen expert: [n_out, n_used, t] */
static struct ggml_tensor *experts_linear(struct graph_build *b, struct ggml_tensor *matrices,
                                          struct ggml_tensor *biases, struct ggml_tensor *x,
                                          struct ggml_tensor *chosen)
{
    struct ggml_tensor *y = graph_linear_of(b, matrices, x, chosen);
    return biases ? ggml_add_id(b->ctx, y, biases, chosen) : y;
}

static struct ggml_tensor *mixture(struct graph_build *b, struct ggml_tensor **w,
                                   struct ggml_tensor *x)
{
    int64_t n_embd = x->ne[0], t = x->ne[1];
    struct routing r = route(b, w, x);
    ggml_build_forward_expand(b->cgraph, r.weights); /* early, so that GPUs overlap it */
    struct ggml_tensor *rows = ggml_reshape_3d(b->ctx, x, n_embd, 1, t);
    struct ggml_tensor *up =
        experts_linear(b, w[TENSOR_EXPERTS_UP], w[TENSOR_EXPERTS_UP_BIAS], rows, r.chosen);
    struct ggml_tensor *gate =
        experts_linear(b, w[TENSOR_EXPERTS_GATE], w[TENSOR_EXPERTS_GATE_BIAS], rows, r.chosen);
    struct ggml_tensor *y = activate(b, gate, up);
    y = experts_linear(b, w[TENSOR_EXPERTS_DOWN], w[TENSOR_EXPERTS_DOWN_BIAS], y, r.chosen);
    y = ggml_mul(b->ctx, y, r.weights); /* [n_embd, n_used, t] */

    struct ggml_tensor *sum = NULL;
    for (uint32_t i = 0; i < b->h->n_experts_used; i++) {
        struct ggml_tensor *one = ggml_view_2d(b->ctx, y, n_embd, t, y->nb[2], i * y->nb[1]);
        sum = sum ? ggml_add(b->ctx, sum, one) : one;
    }
    return b->h->n_experts_used == 1 ? ggml_cont(b->ctx, sum) : sum;
}

struct ggml_tensor *graph_ffn(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    return b->h->n_experts ? mixture(b, w, x) : dense(b, w, x);
}
