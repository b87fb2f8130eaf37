/* Layers that keep a state of fixed size: short convolution, selective state space (Mamba-2), gated
 * delta rule, lightning attention. Products with weights are over all rows of the batch; what goes
 * from token to token is one operation for each group of slots, on views of the state in place
 * (recurrent_state.h).
 *
 * In shapes: w = channels, h = heads, g = groups that share a key, n and p = a head's dim_k and
 * dim_v; t = rows, r = rows of one slot of a group, s = its slots. ggml's recurrences go token by
 * token, so a row's bits do not depend on the rows beside it. */
#include "engine/graph.h"

struct recurrent_build {
    struct graph_build *b;
    const struct recurrent_form *form;
    struct ggml_tensor **w;
    struct ggml_tensor *convolution, *matrices; /* the layer's state */
    uint32_t layer;                             /* of the model */
};

/* Values `offset` on of a group's rows: [n0, n1, r, s] of x [.., t] */
static struct ggml_tensor *group_rows(struct graph_build *b, struct ggml_tensor *x,
                                      const struct batch_group *group, int64_t n0, int64_t n1,
                                      int64_t offset)
{
    const size_t size = sizeof(float);
    return ggml_view_4d(b->ctx, x, n0, n1, group->rows_per_slot, group->n_slots, (size_t)n0 * size,
                        x->nb[1], x->nb[1] * group->rows_per_slot,
                        x->nb[1] * group->first_row + (size_t)offset * size);
}

/* Rows of groups one behind the other: [n, t] */
static struct ggml_tensor *append_rows(struct graph_build *b, struct ggml_tensor *all,
                                       struct ggml_tensor *more, int64_t n)
{
    if (!ggml_is_contiguous(more))
        more = ggml_cont(b->ctx, more);
    more = ggml_reshape_2d(b->ctx, more, n, ggml_nelements(more) / n);
    return all ? ggml_concat(b->ctx, all, more, 1) : more;
}

/* The causal convolution of channels `first` on, with what the state has of before: [w, r, s] of
 * rows [w, r, s]. The state then has the last kernel - 1 inputs. */
static struct ggml_tensor *convolve(struct recurrent_build *l, struct ggml_tensor *kernel,
                                    int64_t first, struct ggml_tensor *rows,
                                    const struct batch_group *group)
{
    struct graph_build *b = l->b;
    const int64_t past = l->form->kernel - 1, w = rows->ne[0];
    const size_t size = sizeof(float), slot = l->convolution->nb[1];
    struct ggml_tensor *before =
        ggml_view_3d(b->ctx, l->convolution, past, w, group->n_slots, (size_t)past * size, slot,
                     slot * group->first_slot + (size_t)(first * past) * size);
    struct ggml_tensor *inputs = /* [past + r, w, s] */
        ggml_concat(b->ctx, before, ggml_transpose(b->ctx, rows), 0);
    struct ggml_tensor *last = ggml_view_3d(b->ctx, inputs, past, w, group->n_slots, inputs->nb[1],
                                            inputs->nb[2], (size_t)group->rows_per_slot * size);
    ggml_build_forward_expand(b->cgraph, ggml_cpy(b->ctx, last, before));
    kernel = ggml_reshape_2d(b->ctx, kernel, l->form->kernel, w);
    return ggml_ssm_conv(b->ctx, inputs, kernel);
}

static struct ggml_tensor *group_rows_3d(struct graph_build *b, struct ggml_tensor *x,
                                         const struct batch_group *group, int64_t n, int64_t offset)
{
    return ggml_view_3d(b->ctx, x, n, group->rows_per_slot, group->n_slots, x->nb[1],
                        x->nb[1] * group->rows_per_slot,
                        x->nb[1] * group->first_row + (size_t)offset * sizeof(float));
}

/* The matrices of a group's slots: [n, p, h, s] */
static struct ggml_tensor *group_matrices(struct recurrent_build *l,
                                          const struct batch_group *group)
{
    const struct recurrent_form *form = l->form;
    const size_t column = (size_t)form->dim_k * sizeof(float), slot = l->matrices->nb[1];
    return ggml_view_4d(l->b->ctx, l->matrices, form->dim_k, form->dim_v, form->n_head,
                        group->n_slots, column, column * form->dim_v, slot,
                        slot * group->first_slot);
}

/* ggml's recurrences give their rows' results and the new states behind them. Keeps the states;
 * gives the results as [p h, rows] */
static struct ggml_tensor *keep_matrices(struct recurrent_build *l, struct ggml_tensor *result,
                                         const struct batch_group *group)
{
    struct graph_build *b = l->b;
    const struct recurrent_form *form = l->form;
    const int64_t width = (int64_t)form->n_head * form->dim_v,
                  rows = (int64_t)group->rows_per_slot * group->n_slots;
    const size_t size = sizeof(float), column = (size_t)form->dim_k * size;
    struct ggml_tensor *after =
        ggml_view_3d(b->ctx, result, form->dim_k, width, group->n_slots, column,
                     column * (size_t)width, (size_t)(width * rows) * size);
    struct ggml_tensor *kept =
        ggml_view_3d(b->ctx, l->matrices, form->dim_k, width, group->n_slots, column,
                     column * (size_t)width, l->matrices->nb[1] * group->first_slot);
    ggml_build_forward_expand(b->cgraph, ggml_cpy(b->ctx, after, kept));
    return ggml_view_2d(b->ctx, result, width, rows, (size_t)width * size, 0);
}

/* ---- short convolution: C . convolution(B . x) ----------------------------------------------- */

static struct ggml_tensor *short_convolution(struct recurrent_build *l, struct ggml_tensor *x)
{
    struct graph_build *b = l->b;
    const struct batch_shape *shape = &b->graph->shape;
    const int64_t w = l->form->channels, t = x->ne[1];
    struct ggml_tensor *in = graph_linear(b, l->w[TENSOR_CONVOLUTION_IN], NULL, x), *all = NULL;
    const size_t part = (size_t)w * sizeof(float);
    struct ggml_tensor *gate_in = ggml_view_2d(b->ctx, in, w, t, in->nb[1], 0);
    struct ggml_tensor *gate_out = ggml_view_2d(b->ctx, in, w, t, in->nb[1], part);
    struct ggml_tensor *value = ggml_view_2d(b->ctx, in, w, t, in->nb[1], 2 * part);
    struct ggml_tensor *rows = ggml_mul(b->ctx, gate_in, value);
    for (uint32_t i = 0; i < shape->n_groups; i++) {
        const struct batch_group *group = &shape->groups[i];
        all = append_rows(
            b, all,
            convolve(l, l->w[TENSOR_CONVOLUTION], 0, group_rows_3d(b, rows, group, w, 0), group),
            w);
    }
    return graph_linear(b, l->w[TENSOR_CONVOLUTION_OUT], NULL, ggml_mul(b->ctx, all, gate_out));
}

/* ---- Mamba-2 (Dao and Gu 2024, arXiv:2405.21060) --------------------------------------------- */

/* Convolution and state of a group: [p h, rows]. `in`: gate, channels (x, B, C) and step. */
static struct ggml_tensor *mamba_group(struct recurrent_build *l, struct ggml_tensor *in,
                                       const struct batch_group *group)
{
    struct graph_build *b = l->b;
    const struct recurrent_form *form = l->form;
    const int64_t n = form->dim_k, p = form->dim_v, h = form->n_head, g = form->n_group,
                  r = group->rows_per_slot, s = group->n_slots, inner = p * h;
    struct ggml_tensor *mixed = convolve(l, l->w[TENSOR_STATE_CONVOLUTION], 0,
                                         group_rows_3d(b, in, group, form->channels, inner), group);
    mixed = ggml_add(b->ctx, mixed, l->w[TENSOR_STATE_CONVOLUTION_BIAS]);
    mixed = ggml_silu(b->ctx, mixed); /* [w, r, s] */
    const size_t size = sizeof(float), one = mixed->nb[1], slot = mixed->nb[2];
    struct ggml_tensor *x = ggml_view_4d(b->ctx, mixed, p, h, r, s, (size_t)p * size, one, slot, 0);
    struct ggml_tensor *keys =
        ggml_view_4d(b->ctx, mixed, n, g, r, s, (size_t)n * size, one, slot, (size_t)inner * size);
    struct ggml_tensor *queries = ggml_view_4d(b->ctx, mixed, n, g, r, s, (size_t)n * size, one,
                                               slot, (size_t)(inner + g * n) * size);
    struct ggml_tensor *step =
        ggml_cont(b->ctx, group_rows_3d(b, in, group, h, inner + form->channels)); /* [h, r, s] */
    step = ggml_add(b->ctx, step, l->w[TENSOR_STATE_STEP_BIAS]);
    struct ggml_tensor *decay = ggml_reshape_2d(b->ctx, l->w[TENSOR_STATE_DECAY], 1, h);
    struct ggml_tensor *slots = ggml_view_1d(b->ctx, b->graph->slots, s, 0);
    struct ggml_tensor *y =
        ggml_ssm_scan(b->ctx, group_matrices(l, group), x, step, decay, keys, queries, slots, 1);
    y = keep_matrices(l, y, group);
    y = ggml_reshape_4d(b->ctx, y, p, h, r, s);
    struct ggml_tensor *skip = ggml_reshape_2d(b->ctx, l->w[TENSOR_STATE_SKIP], 1, h);
    return ggml_add(b->ctx, y, ggml_mul(b->ctx, x, skip));
}

static struct ggml_tensor *mamba2(struct recurrent_build *l, struct ggml_tensor *x)
{
    struct graph_build *b = l->b;
    const struct batch_shape *shape = &b->graph->shape;
    const int64_t inner = (int64_t)l->form->n_head * l->form->dim_v, g = l->form->n_group,
                  t = x->ne[1];
    struct ggml_tensor *in = graph_linear(b, l->w[TENSOR_STATE_IN], NULL, x), *all = NULL;
    for (uint32_t i = 0; i < shape->n_groups; i++)
        all = append_rows(b, all, mamba_group(l, in, &shape->groups[i]), inner);
    struct ggml_tensor *gate = ggml_cont(b->ctx, ggml_view_2d(b->ctx, in, inner, t, in->nb[1], 0));
    all = ggml_swiglu_split(b->ctx, gate, all);
    all = ggml_reshape_3d(b->ctx, all, inner / g, g, t);
    all = graph_norm(b, all, ggml_reshape_2d(b->ctx, l->w[TENSOR_STATE_NORM], inner / g, g));
    return graph_linear(b, l->w[TENSOR_STATE_OUT], NULL, ggml_reshape_2d(b->ctx, all, inner, t));
}

/* ---- gated delta rule (Yang et al. 2024, arXiv:2412.06464) ----------------------------------- */

struct delta_inputs {
    struct ggml_tensor *q, *k; /* [n, g or h, r, s] */
    struct ggml_tensor *v;     /* [p, h, r, s] */
    struct ggml_tensor *decay; /* [1 or n, h, r, s] its logarithm */
    struct ggml_tensor *beta;  /* [1, h, r, s] */
};

/* A key head for each value head, in runs. */
static struct ggml_tensor *repeat_heads(struct graph_build *b, struct ggml_tensor *x, int64_t h)
{
    const int64_t n = x->ne[0], g = x->ne[1], r = x->ne[2], s = x->ne[3];
    x = ggml_reshape_4d(b->ctx, x, n, 1, g, r * s);
    x = ggml_repeat_4d(b->ctx, x, n, h / g, g, r * s);
    return ggml_reshape_4d(b->ctx, x, n, h, r, s);
}

static struct ggml_tensor *delta_rule(struct recurrent_build *l, struct delta_inputs in,
                                      const struct batch_group *group)
{
    struct graph_build *b = l->b;
    in.q = ggml_l2_norm(b->ctx, in.q, b->h->norm_epsilon);
    in.k = ggml_l2_norm(b->ctx, in.k, b->h->norm_epsilon);
    if (in.k->ne[1] != in.v->ne[1] && !b->architecture->delta_heads_tile) {
        in.q = repeat_heads(b, in.q, in.v->ne[1]);
        in.k = repeat_heads(b, in.k, in.v->ne[1]);
    }
    struct ggml_tensor *y = ggml_gated_delta_net(b->ctx, in.q, in.k, in.v, in.decay, in.beta,
                                                 group_matrices(l, group), 1);
    return keep_matrices(l, y, group);
}

/* Write strength and decay of all rows: [h, t] each */
static void delta_beta_alpha(struct recurrent_build *l, struct ggml_tensor *x,
                             struct ggml_tensor **beta, struct ggml_tensor **alpha)
{
    struct graph_build *b = l->b;
    const int64_t h = l->form->n_head, g = l->form->n_group, t = x->ne[1];
    if (!l->w[TENSOR_DELTA_BETA_ALPHA]) {
        *beta = graph_linear(b, l->w[TENSOR_DELTA_BETA], NULL, x);
        *alpha = graph_linear(b, l->w[TENSOR_DELTA_ALPHA], NULL, x);
        return;
    }
    /* for each key head: beta of its value heads, then alpha */
    struct ggml_tensor *both = graph_linear(b, l->w[TENSOR_DELTA_BETA_ALPHA], NULL, x);
    const size_t part = (size_t)(h / g) * sizeof(float);
    *beta = ggml_view_3d(b->ctx, both, h / g, g, t, 2 * part, both->nb[1], 0);
    *alpha = ggml_view_3d(b->ctx, both, h / g, g, t, 2 * part, both->nb[1], part);
    *beta = ggml_reshape_2d(b->ctx, ggml_cont(b->ctx, *beta), h, t);
    *alpha = ggml_reshape_2d(b->ctx, ggml_cont(b->ctx, *alpha), h, t);
}

/* norm(y) times the gate, a head at a time: [p h, t] */
static struct ggml_tensor *gated_norm(struct recurrent_build *l, struct ggml_tensor *y,
                                      struct ggml_tensor *gate)
{
    struct graph_build *b = l->b;
    const int64_t p = l->form->dim_v, width = y->ne[0], t = y->ne[1];
    y = ggml_reshape_3d(b->ctx, y, p, width / p, t);
    y = graph_norm(b, y, l->w[TENSOR_STATE_NORM]);
    return ggml_mul(b->ctx, ggml_reshape_2d(b->ctx, y, width, t), gate);
}

static struct ggml_tensor *delta(struct recurrent_build *l, struct ggml_tensor *x)
{
    struct graph_build *b = l->b;
    const struct recurrent_form *form = l->form;
    const int64_t n = form->dim_k, p = form->dim_v, h = form->n_head, g = form->n_group;
    const size_t size = sizeof(float);
    struct ggml_tensor *mixed = graph_linear(b, l->w[TENSOR_DELTA_QKV], NULL, x), *all = NULL;
    struct ggml_tensor *gate = graph_linear(b, l->w[TENSOR_DELTA_GATE], NULL, x), *beta, *alpha;
    delta_beta_alpha(l, x, &beta, &alpha);
    beta = ggml_sigmoid(b->ctx, beta);
    alpha = ggml_softplus(b->ctx, ggml_add(b->ctx, alpha, l->w[TENSOR_STATE_STEP_BIAS]));
    alpha = ggml_mul(b->ctx, alpha, ggml_reshape_1d(b->ctx, l->w[TENSOR_STATE_DECAY], h));
    for (uint32_t i = 0; i < b->graph->shape.n_groups; i++) {
        const struct batch_group *group = &b->graph->shape.groups[i];
        const int64_t r = group->rows_per_slot, s = group->n_slots;
        struct ggml_tensor *c =
            ggml_silu(b->ctx, convolve(l, l->w[TENSOR_STATE_CONVOLUTION], 0,
                                       group_rows_3d(b, mixed, group, form->channels, 0), group));
        const struct delta_inputs in = {
            .q = ggml_view_4d(b->ctx, c, n, g, r, s, (size_t)n * size, c->nb[1], c->nb[2], 0),
            .k = ggml_view_4d(b->ctx, c, n, g, r, s, (size_t)n * size, c->nb[1], c->nb[2],
                              (size_t)(n * g) * size),
            .v = ggml_view_4d(b->ctx, c, p, h, r, s, (size_t)p * size, c->nb[1], c->nb[2],
                              (size_t)(2 * n * g) * size),
            .decay = group_rows(b, alpha, group, 1, h, 0),
            .beta = group_rows(b, beta, group, 1, h, 0),
        };
        all = append_rows(b, all, delta_rule(l, in, group), p * h);
    }
    return graph_linear(b, l->w[TENSOR_STATE_OUT], NULL,
                        gated_norm(l, all, ggml_silu(b->ctx, gate)));
}

/* ---- … with a decay for each channel (Kimi Linear, arXiv:2510.26692) ------------------------- */

/* The decays' logarithms: [p h, t] */
static struct ggml_tensor *channel_decays(struct recurrent_build *l, struct ggml_tensor *x)
{
    struct graph_build *b = l->b;
    const int64_t p = l->form->dim_v, h = l->form->n_head, t = x->ne[1];
    struct ggml_tensor *y = graph_linear(b, l->w[TENSOR_DELTA_DECAY_DOWN], NULL, x);
    if (l->w[TENSOR_DELTA_DECAY_UP])
        y = graph_linear(b, l->w[TENSOR_DELTA_DECAY_UP], NULL, y);
    y = ggml_add(b->ctx, y, l->w[TENSOR_STATE_STEP_BIAS]);
    struct ggml_tensor *rate = ggml_reshape_2d(b->ctx, l->w[TENSOR_STATE_DECAY], 1, h);
    if (b->architecture->delta_decay_is_bounded) {
        y = ggml_mul(b->ctx, ggml_reshape_3d(b->ctx, y, p, h, t), rate);
        if (b->architecture->delta_rate_is_negative)
            y = ggml_neg(b->ctx, y);
        y = ggml_scale(b->ctx, ggml_sigmoid(b->ctx, y), l->form->decay_bound);
    } else {
        y = ggml_reshape_3d(b->ctx, ggml_softplus(b->ctx, y), p, h, t);
        y = ggml_mul(b->ctx, y, rate);
    }
    return ggml_reshape_2d(b->ctx, y, p * h, t);
}

static struct ggml_tensor *delta_channels(struct recurrent_build *l, struct ggml_tensor *x)
{
    static const enum tensor_role products[] = {TENSOR_DELTA_Q, TENSOR_DELTA_K, TENSOR_DELTA_V};
    static const enum tensor_role kernels[] = {
        TENSOR_DELTA_Q_CONVOLUTION, TENSOR_DELTA_K_CONVOLUTION, TENSOR_DELTA_V_CONVOLUTION};
    struct graph_build *b = l->b;
    const int64_t p = l->form->dim_v, h = l->form->n_head, width = p * h;
    struct ggml_tensor *qkv[3], *all = NULL, *decay = channel_decays(l, x);
    for (int i = 0; i < 3; i++)
        qkv[i] = graph_linear(b, l->w[products[i]], NULL, x);
    struct ggml_tensor *beta =
        ggml_sigmoid(b->ctx, graph_linear(b, l->w[TENSOR_DELTA_BETA], NULL, x));
    struct ggml_tensor *gate = graph_linear(b, l->w[TENSOR_DELTA_GATE_DOWN], NULL, x);
    if (l->w[TENSOR_DELTA_GATE_UP])
        gate = graph_linear(b, l->w[TENSOR_DELTA_GATE_UP], NULL, gate);
    for (uint32_t i = 0; i < b->graph->shape.n_groups; i++) {
        const struct batch_group *group = &b->graph->shape.groups[i];
        struct ggml_tensor *mixed[3];
        for (int k = 0; k < 3; k++) {
            mixed[k] = convolve(l, l->w[kernels[k]], k * width,
                                group_rows_3d(b, qkv[k], group, width, 0), group);
            mixed[k] = ggml_reshape_4d(b->ctx, ggml_silu(b->ctx, mixed[k]), p, h,
                                       group->rows_per_slot, group->n_slots);
        }
        const struct delta_inputs in = {.q = mixed[0],
                                        .k = mixed[1],
                                        .v = mixed[2],
                                        .decay = group_rows(b, decay, group, p, h, 0),
                                        .beta = group_rows(b, beta, group, 1, h, 0)};
        all = append_rows(b, all, delta_rule(l, in, group), width);
    }
    return graph_linear(b, l->w[TENSOR_DELTA_OUT], NULL,
                        gated_norm(l, all, ggml_sigmoid(b->ctx, gate)));
}

/* ---- lightning attention (MiniMax-01, arXiv:2501.08313) -------------------------------------- */

/* Every head forgets at a rate of its own, the slower the later the layer. */
static float lightning_slope(const struct recurrent_build *l)
{
    const uint32_t last = l->b->h->n_layers > 1 ? l->b->h->n_layers - 1 : 1;
    return 1.0f - (float)l->layer / (float)last + 1e-5f;
}

static struct ggml_tensor *lightning(struct recurrent_build *l, struct ggml_tensor *x)
{
    struct graph_build *b = l->b;
    const int64_t p = l->form->dim_v, h = l->form->n_head, t = x->ne[1];
    const size_t size = sizeof(float), head = (size_t)p * size;
    struct ggml_tensor *qkv = /* [3 p h, t]: q, k and v of a head beside each other */
        ggml_silu(b->ctx, graph_linear(b, l->w[TENSOR_LIGHTNING_QKV], NULL, x));
    struct ggml_tensor *decay =
        ggml_exp(b->ctx, ggml_scale(b->ctx, b->graph->slopes, -lightning_slope(l))); /* [1, h] */
    struct ggml_tensor *all = NULL;
    for (uint32_t i = 0; i < b->graph->shape.n_groups; i++) {
        const struct batch_group *group = &b->graph->shape.groups[i];
        const int64_t rows = (int64_t)group->rows_per_slot * group->n_slots;
        struct ggml_tensor *part[3];
        for (size_t k = 0; k < 3; k++)
            part[k] = ggml_cont(b->ctx, ggml_view_3d(b->ctx, qkv, p, h, rows, 3 * head, qkv->nb[1],
                                                     qkv->nb[1] * group->first_row + k * head));
        struct ggml_tensor *state =
            ggml_view_2d(b->ctx, l->matrices, p * p * h, group->n_slots, l->matrices->nb[1],
                         l->matrices->nb[1] * group->first_slot);
        struct ggml_tensor *y =
            ggml_gated_linear_attn(b->ctx, part[1], part[2], part[0],
                                   ggml_repeat_4d(b->ctx, decay, p, h, rows, 1), state, 1.0f);
        all = append_rows(b, all, keep_matrices(l, y, group), p * h);
    }
    all = graph_norm(b, all, l->w[TENSOR_LIGHTNING_NORM]);
    struct ggml_tensor *gate =
        ggml_sigmoid(b->ctx, graph_linear(b, l->w[TENSOR_DELTA_GATE], NULL, x));
    return graph_linear(b, l->w[TENSOR_DELTA_OUT], NULL,
                        ggml_reshape_2d(b->ctx, ggml_mul(b->ctx, all, gate), p * h, t));
}

struct ggml_tensor *graph_recurrence(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct recurrent_build l = {.b = b,
                                .form = &b->h->recurrent,
                                .w = b->source->weights->layers[index],
                                .convolution = b->source->state->convolutions[index],
                                .matrices = b->source->state->matrices[index],
                                .layer = b->source->weights->first_layer + index};
    switch (b->architecture->recurrence) {
    case RECURRENCE_NONE:
        break;
    case RECURRENCE_SHORT_CONVOLUTION:
        return short_convolution(&l, x);
    case RECURRENCE_MAMBA2:
        return mamba2(&l, x);
    case RECURRENCE_DELTA:
        return delta(&l, x);
    case RECURRENCE_DELTA_CHANNELS:
        return delta_channels(&l, x);
    case RECURRENCE_LIGHTNING:
        return lightning(&l, x);
    }
    return NULL;
}
