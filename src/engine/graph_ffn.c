#include "engine/graph.h"

#include <math.h>

/* gpt-oss's SwiGLU: x * sigmoid(alpha x) with both halves clamped (openai/gpt-oss, model.py). */
static const float swiglu_oai_alpha = 1.702f, swiglu_oai_limit = 7.0f;

/* beta tanh(gate / beta) sigmoid(gate), times up or l tanh(up / l): Kimi K3. */
static struct ggml_tensor *situ(struct graph_build *b, struct ggml_tensor *gate,
                                struct ggml_tensor *up)
{
    const float beta = b->h->situ_beta, linear = b->h->situ_linear_beta;
    struct ggml_tensor *y =
        ggml_scale(b->ctx, ggml_tanh(b->ctx, ggml_scale(b->ctx, gate, 1.0f / beta)), beta);
    y = ggml_mul(b->ctx, y, ggml_sigmoid(b->ctx, gate));
    if (linear > 0)
        up = ggml_scale(b->ctx, ggml_tanh(b->ctx, ggml_scale(b->ctx, up, 1.0f / linear)), linear);
    return ggml_mul(b->ctx, y, up);
}

/* act(gate) * up; `clamp`: of step35's and DeepSeek V4's SwiGLU, 0: none */
static struct ggml_tensor *activate(struct graph_build *b, struct ggml_tensor *gate,
                                    struct ggml_tensor *up, float clamp)
{
    if (clamp != 0 && b->architecture->clamps_before)
        return ggml_swiglu_clamp(b->ctx, gate, up, clamp);
    if (clamp != 0) {
        gate = ggml_clamp(b->ctx, ggml_silu(b->ctx, gate), -INFINITY, clamp);
        return ggml_mul(b->ctx, gate, ggml_clamp(b->ctx, up, -clamp, clamp));
    }
    switch (b->architecture->activation) {
    case ACT_SILU:
        return ggml_swiglu_split(b->ctx, gate, up);
    case ACT_GELU:
        return ggml_geglu_split(b->ctx, gate, up);
    case ACT_GELU_ERF:
        return ggml_geglu_erf_split(b->ctx, gate, up);
    case ACT_RELU_SQUARED:
        return ggml_mul(b->ctx, ggml_sqr(b->ctx, ggml_relu(b->ctx, gate)), up);
    case ACT_SITU:
        return situ(b, gate, up);
    case ACT_SWIGLU_OAI:
        return ggml_swiglu_oai(b->ctx, gate, up, swiglu_oai_alpha, swiglu_oai_limit);
    }
    return NULL;
}

/* [2 n, …]: gate, then up */
static struct ggml_tensor *activate_fused(struct graph_build *b, struct ggml_tensor *both)
{
    const enum activation activation = b->architecture->activation;
    return activation == ACT_GELU       ? ggml_geglu(b->ctx, both)
           : activation == ACT_GELU_ERF ? ggml_geglu_erf(b->ctx, both)
                                        : ggml_swiglu(b->ctx, both);
}

static struct ggml_tensor *activate_ungated(struct graph_build *b, struct ggml_tensor *up)
{
    return b->architecture->activation == ACT_RELU_SQUARED ? ggml_sqr(b->ctx, ggml_relu(b->ctx, up))
                                                           : ggml_gelu(b->ctx, up);
}

static struct ggml_tensor *dense(struct graph_build *b, struct ggml_tensor **w,
                                 struct ggml_tensor *x)
{
    struct ggml_tensor *up = graph_linear(b, w[TENSOR_FFN_UP], w[TENSOR_FFN_UP_BIAS], x);
    struct ggml_tensor *y;
    if (b->architecture->has_no_gate)
        y = activate_ungated(b, up);
    else if (b->h->has_fused_gate)
        y = activate_fused(b, up);
    else
        y = activate(b, graph_linear(b, w[TENSOR_FFN_GATE], w[TENSOR_FFN_GATE_BIAS], x), up, 0);
    return graph_linear(b, w[TENSOR_FFN_DOWN], w[TENSOR_FFN_DOWN_BIAS], y);
}

/* The expert that every row uses. */
static struct ggml_tensor *shared_expert(struct graph_build *b, struct ggml_tensor **w,
                                         struct ggml_tensor *x, float clamp)
{
    struct ggml_tensor *up = graph_linear(b, w[TENSOR_SHARED_UP], NULL, x);
    struct ggml_tensor *y =
        b->architecture->has_no_gate
            ? activate_ungated(b, up)
            : activate(b, graph_linear(b, w[TENSOR_SHARED_GATE], NULL, x), up, clamp);
    y = graph_linear(b, w[TENSOR_SHARED_DOWN], NULL, y);
    if (w[TENSOR_SHARED_ROUTER]) /* one weight a row */
        y = ggml_mul(b->ctx, y,
                     ggml_sigmoid(b->ctx, graph_linear(b, w[TENSOR_SHARED_ROUTER], NULL, x)));
    return y;
}

struct routing {
    struct ggml_tensor *chosen;  /* I32 [n_used, t] */
    struct ggml_tensor *weights; /* F32 [1, n_used, t] */
};

/* The logits as scores of all experts: F32 [n_experts, t] */
static struct ggml_tensor *score(struct graph_build *b, struct ggml_tensor *logits)
{
    switch (b->h->gating) {
    case GATE_SOFTMAX:
        return ggml_soft_max(b->ctx, logits);
    case GATE_SOFTMAX_OF_CHOSEN:
        return logits;
    case GATE_SIGMOID:
        return ggml_sigmoid(b->ctx, logits);
    case GATE_SQRT_SOFTPLUS:
        return ggml_sqrt(b->ctx, ggml_softplus(b->ctx, logits));
    }
    return NULL;
}

/* Scores of experts outside the best groups become -inf; a group scores the sum of its two best
 * (DeepSeek V3, arXiv:2412.19437, 2.1.2). */
static struct ggml_tensor *keep_best_groups(struct graph_build *b, struct ggml_tensor *scores)
{
    const int64_t n_groups = b->h->n_expert_groups, t = scores->ne[1];
    const int64_t per_group = b->h->n_experts / n_groups;
    struct ggml_tensor *groups = ggml_reshape_3d(b->ctx, scores, per_group, n_groups, t);
    struct ggml_tensor *best = ggml_argsort_top_k(b->ctx, groups, 2); /* [2, n_groups, t] */
    struct ggml_tensor *values =
        ggml_get_rows(b->ctx, ggml_reshape_4d(b->ctx, groups, 1, per_group, n_groups, t), best);
    values = ggml_sum_rows(b->ctx, ggml_reshape_3d(b->ctx, values, 2, n_groups, t));
    struct ggml_tensor *kept =
        ggml_argsort_top_k(b->ctx, ggml_reshape_2d(b->ctx, values, n_groups, t),
                           (int)b->h->n_expert_groups_used); /* [n_groups_used, t] */
    struct ggml_tensor *rows = ggml_get_rows(b->ctx, groups, kept);
    struct ggml_tensor *all =
        ggml_set_rows(b->ctx, ggml_fill(b->ctx, groups, -INFINITY), rows, kept);
    return ggml_reshape_2d(b->ctx, all, b->h->n_experts, t);
}

/* I32 [n_used, t] */
static struct ggml_tensor *choose_experts(struct graph_build *b, struct ggml_tensor **w,
                                          struct ggml_tensor *scores)
{
    if (w[TENSOR_EXPERTS_OF_TOKEN])
        return ggml_get_rows(b->ctx, w[TENSOR_EXPERTS_OF_TOKEN],
                             ggml_reshape_1d(b->ctx, b->tokens, scores->ne[1]));
    if (w[TENSOR_CHOICE_BIAS]) /* counts for the choice, not for the weight */
        scores = ggml_add(b->ctx, scores, w[TENSOR_CHOICE_BIAS]);
    if (b->h->n_expert_groups > 1)
        scores = keep_best_groups(b, scores);
    return ggml_argsort_top_k(b->ctx, scores, (int)b->h->n_experts_used);
}

static struct routing route(struct graph_build *b, struct ggml_tensor **w, struct ggml_tensor *x)
{
    int64_t n_experts = b->h->n_experts, n_used = b->h->n_experts_used, t = x->ne[1];
    struct ggml_tensor *logits =
        graph_linear(b, w[TENSOR_ROUTER], w[TENSOR_ROUTER_BIAS], x); /* [n_experts, t] */
    struct ggml_tensor *scores = score(b, logits);
    struct ggml_tensor *chosen = choose_experts(b, w, scores);
    struct ggml_tensor *weights =
        ggml_get_rows(b->ctx, ggml_reshape_3d(b->ctx, scores, 1, n_experts, t), chosen);
    weights = ggml_reshape_2d(b->ctx, weights, n_used, t);
    if (b->h->gating == GATE_SOFTMAX_OF_CHOSEN) {
        weights = ggml_soft_max(b->ctx, weights);
    } else if (b->h->expert_sum == EXPERT_SUM_ONE) {
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

/* [n_ff, n_used, t] */
static struct ggml_tensor *experts_activated(struct graph_build *b, struct ggml_tensor **w,
                                             struct ggml_tensor *rows, struct ggml_tensor *chosen,
                                             float clamp)
{
    if (w[TENSOR_EXPERTS_GATE_UP]) { /* [2 n_ff, n_used, t]: gate, then up */
        struct ggml_tensor *both = experts_linear(b, w[TENSOR_EXPERTS_GATE_UP], NULL, rows, chosen);
        return activate_fused(b, both);
    }
    struct ggml_tensor *up =
        experts_linear(b, w[TENSOR_EXPERTS_UP], w[TENSOR_EXPERTS_UP_BIAS], rows, chosen);
    return b->architecture->has_no_gate
               ? activate_ungated(b, up)
               : activate(b,
                          experts_linear(b, w[TENSOR_EXPERTS_GATE], w[TENSOR_EXPERTS_GATE_BIAS],
                                         rows, chosen),
                          up, clamp);
}

/* Of the chosen experts one number each: [1, n_used, t] */
static struct ggml_tensor *scales_of(struct graph_build *b, struct ggml_tensor *scales,
                                     struct ggml_tensor *chosen)
{
    const int64_t n_experts = b->h->n_experts;
    struct ggml_tensor *all = ggml_reshape_3d(b->ctx, scales, 1, n_experts, 1);
    all = ggml_repeat_4d(b->ctx, all, 1, n_experts, chosen->ne[1], 1);
    return ggml_get_rows(b->ctx, all, chosen);
}

static struct ggml_tensor *mixture(struct graph_build *b, struct ggml_tensor **w,
                                   struct ggml_tensor *x, struct routing r, float clamp)
{
    const bool weighs_input = b->architecture->weighs_input;
    int64_t n_used = b->h->n_experts_used, t = x->ne[1];
    if (w[TENSOR_EXPERTS_LATENT_DOWN])
        x = graph_linear(b, w[TENSOR_EXPERTS_LATENT_DOWN], NULL, x);
    const int64_t n_embd = x->ne[0];
    ggml_build_forward_expand(b->cgraph, r.weights); /* early, so that GPUs overlap it */
    struct ggml_tensor *rows = ggml_reshape_3d(b->ctx, x, n_embd, 1, t);
    if (weighs_input)
        rows = ggml_mul(b->ctx, ggml_repeat_4d(b->ctx, rows, n_embd, n_used, t, 1), r.weights);
    struct ggml_tensor *y = experts_activated(b, w, rows, r.chosen, clamp);
    y = experts_linear(b, w[TENSOR_EXPERTS_DOWN], w[TENSOR_EXPERTS_DOWN_BIAS], y, r.chosen);
    if (w[TENSOR_EXPERTS_DOWN_SCALE])
        y = ggml_mul(b->ctx, y, scales_of(b, w[TENSOR_EXPERTS_DOWN_SCALE], r.chosen));
    if (!weighs_input)
        y = ggml_mul(b->ctx, y, r.weights); /* [n_embd, n_used, t] */

    struct ggml_tensor *sum = NULL;
    for (uint32_t i = 0; i < b->h->n_experts_used; i++) {
        struct ggml_tensor *one = ggml_view_2d(b->ctx, y, n_embd, t, y->nb[2], i * y->nb[1]);
        sum = sum ? ggml_add(b->ctx, sum, one) : one;
    }
    if (b->h->n_experts_used == 1)
        sum = ggml_cont(b->ctx, sum);
    if (w[TENSOR_EXPERTS_LATENT_NORM])
        sum = graph_norm(b, sum, w[TENSOR_EXPERTS_LATENT_NORM]);
    return w[TENSOR_EXPERTS_LATENT_UP] ? graph_linear(b, w[TENSOR_EXPERTS_LATENT_UP], NULL, sum)
                                       : sum;
}

struct ggml_tensor *graph_ffn(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct layer_form *form = graph_layer_form(b, index);
    if (!form->is_mixture)
        return dense(b, w, x);
    struct ggml_tensor *y = mixture(b, w, x, route(b, w, x), form->experts_clamp);
    if (w[TENSOR_SHARED_UP])
        y = ggml_add(b->ctx, y, shared_expert(b, w, x, form->shared_clamp));
    if (b->architecture->has_dense_beside && w[TENSOR_FFN_UP])
        y = ggml_scale(b->ctx, ggml_add(b->ctx, dense(b, w, x), y), (float)M_SQRT1_2);
    return y;
}

struct ggml_tensor *graph_ffn_beside(struct graph_build *b, uint32_t index, struct ggml_tensor *x,
                                     struct ggml_tensor *y)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    struct ggml_tensor *routed = ggml_rms_norm(b->ctx, x, b->h->norm_epsilon);
    routed = ggml_scale(b->ctx, routed, 1.0f / sqrtf((float)b->h->n_embd));
    routed = ggml_mul(b->ctx, routed, w[TENSOR_ROUTER_SCALE]);
    y = graph_norm(b, dense(b, w, y), w[TENSOR_DENSE_POST_NORM]);
    struct ggml_tensor *experts =
        mixture(b, w, graph_norm(b, x, w[TENSOR_EXPERTS_NORM]), route(b, w, routed), 0);
    return ggml_add(b->ctx, y, graph_norm(b, experts, w[TENSOR_EXPERTS_POST_NORM]));
}
