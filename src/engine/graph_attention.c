#include "engine/graph.h"

#include "engine/kv_gather.h"
#include "gpu/custom_op.h"
#include "gpu/thread_choice.h"

struct qkv {
    struct ggml_tensor *q;    /* [d, n_head, t] */
    struct ggml_tensor *k;    /* [d, n_head_kv, t] */
    struct ggml_tensor *v;    /* [d_v, n_head_kv, t] */
    struct ggml_tensor *gate; /* [d n_head, t] of the result; NULL: none */
};

/* `part` values of each row of the fused projection, from `offset` on, as heads. */
static struct ggml_tensor *slice(struct graph_build *b, struct ggml_tensor *fused, int64_t head_dim,
                                 int64_t n_head, int64_t offset)
{
    size_t element = ggml_element_size(fused);
    return ggml_view_3d(b->ctx, fused, head_dim, n_head, fused->ne[1], (size_t)head_dim * element,
                        fused->nb[1], (size_t)offset * element);
}

/* Of each head the query, then the gate (arXiv:2505.06708): the queries, [d n_head, t] */
static struct ggml_tensor *split_gate(struct graph_build *b, struct ggml_tensor *both, int64_t d,
                                      int64_t n_head, struct ggml_tensor **gate)
{
    const size_t part = (size_t)d * sizeof(float);
    const int64_t t = both->ne[1];
    struct ggml_tensor *q = ggml_view_3d(b->ctx, both, d, n_head, t, 2 * part, both->nb[1], 0);
    *gate = ggml_view_3d(b->ctx, both, d, n_head, t, 2 * part, both->nb[1], part);
    *gate = ggml_cont_2d(b->ctx, *gate, d * n_head, t);
    return ggml_cont_2d(b->ctx, q, d * n_head, t);
}

static struct qkv project(struct graph_build *b, struct ggml_tensor **w,
                          const struct layer_form *form, struct ggml_tensor *x)
{
    const int64_t dk = form->dim_k, dv = form->dim_v, n_head = form->n_head, n_kv = form->n_head_kv,
                  t = x->ne[1];
    if (w[TENSOR_QKV]) {
        struct ggml_tensor *fused = graph_linear(b, w[TENSOR_QKV], w[TENSOR_QKV_BIAS], x);
        return (struct qkv){.q = slice(b, fused, dk, n_head, 0),
                            .k = slice(b, fused, dk, n_kv, dk * n_head),
                            .v = slice(b, fused, dv, n_kv, dk * (n_head + n_kv))};
    }
    struct ggml_tensor *q = graph_linear(b, w[TENSOR_Q], w[TENSOR_Q_BIAS], x);
    struct ggml_tensor *k = graph_linear(b, w[TENSOR_K], w[TENSOR_K_BIAS], x);
    struct ggml_tensor *v = w[TENSOR_V] ? graph_linear(b, w[TENSOR_V], w[TENSOR_V_BIAS], x) : k;
    if (b->source->products && t <= THREAD_FEW_ROWS) { /* behind each other: a run of products */
        ggml_build_forward_expand(b->cgraph, q);
        ggml_build_forward_expand(b->cgraph, k);
        ggml_build_forward_expand(b->cgraph, v);
    }
    if (b->architecture->qk_norm_whole) {
        q = w[TENSOR_Q_NORM] ? graph_norm(b, q, w[TENSOR_Q_NORM]) : q;
        k = w[TENSOR_K_NORM] ? graph_norm(b, k, w[TENSOR_K_NORM]) : k;
    }
    struct ggml_tensor *gate = NULL;
    if (b->architecture->has_query_gate)
        q = split_gate(b, q, dk, n_head, &gate);
    return (struct qkv){.q = ggml_reshape_3d(b->ctx, q, dk, n_head, t),
                        .gate = gate,
                        .k = ggml_reshape_3d(b->ctx, k, dk, n_kv, t),
                        .v = ggml_reshape_3d(b->ctx, v, dv, n_kv, t)};
}

struct ggml_tensor *graph_rotate(struct graph_build *b, const struct layer_form *form,
                                 enum rope_kind kind, struct ggml_tensor *x)
{
    const struct hyperparameters *h = b->h;
    if (!form->n_rot)
        return x;
    /* a family whose windowed layers have a base of their own does not scale them */
    bool own_base = form->is_windowed && b->architecture->window_rope_base != 0;
    bool no_factors = form->is_windowed && (b->architecture->full_layers_rotate_half ||
                                            b->architecture->has_window_heads);
    float base = form->is_windowed ? h->rope_base_window : h->rope_base;
    int mode = kind == ROPE_NEOX ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
    if (b->graph->turns) {
        int sections[GGML_MROPE_SECTIONS];
        for (int i = 0; i < GGML_MROPE_SECTIONS; i++)
            sections[i] = (int)h->rope_sections[i];
        return ggml_rope_multi(
            b->ctx, x, b->graph->turns, b->source->rope_factors, (int)form->n_rot, sections,
            h->rope_axes == AXES_INTERLEAVED ? GGML_ROPE_TYPE_IMROPE : GGML_ROPE_TYPE_MROPE,
            (int)h->n_context_original, base, h->rope_frequency_scale, h->yarn_ext_factor,
            h->yarn_attn_factor, h->yarn_beta_fast, h->yarn_beta_slow);
    }
    return ggml_rope_ext(
        b->ctx, x, b->graph->positions, no_factors ? NULL : b->source->rope_factors,
        (int)form->n_rot, mode, (int)h->n_context_original, base,
        own_base ? 1.0f : h->rope_frequency_scale, own_base ? 0.0f : h->yarn_ext_factor,
        h->yarn_attn_factor, h->yarn_beta_fast, h->yarn_beta_slow);
}

static struct ggml_tensor *rotate(struct graph_build *b, const struct layer_form *form,
                                  struct ggml_tensor *x)
{
    return graph_rotate(b, form, b->architecture->rope, x);
}

static struct qkv norm_heads(struct graph_build *b, struct ggml_tensor **w, struct qkv p)
{
    if (b->architecture->qk_norm_whole)
        return p;
    p.q = w[TENSOR_Q_NORM] ? graph_norm(b, p.q, w[TENSOR_Q_NORM]) : p.q;
    p.k = w[TENSOR_K_NORM] ? graph_norm(b, p.k, w[TENSOR_K_NORM]) : p.k;
    return p;
}

/* Norms of heads and positions, in the family's order. */
static struct qkv norm_and_rotate(struct graph_build *b, struct ggml_tensor **w,
                                  const struct layer_form *form, struct qkv p)
{
    if (!b->architecture->qk_norm_after_rope)
        p = norm_heads(b, w, p);
    if (b->architecture->value_norm_unweighted)
        p.v = ggml_rms_norm(b->ctx, p.v, b->h->norm_epsilon);
    p.q = rotate(b, form, p.q);
    p.k = rotate(b, form, p.k);
    if (b->architecture->qk_norm_after_rope)
        p = norm_heads(b, w, p);
    if (b->architecture->qk_norm_unweighted && form->n_rot) {
        p.q = ggml_rms_norm(b->ctx, p.q, b->h->norm_epsilon);
        p.k = ggml_rms_norm(b->ctx, p.k, b->h->norm_epsilon);
    }
    return p;
}

/* ---- latent attention (DeepSeek V2, arXiv:2405.04434, 2.1) ----------------------------------- */

struct latent {
    struct ggml_tensor *q_plain;   /* [d - n_rot, n_head, t] a view */
    struct ggml_tensor *q_rotated; /* [n_rot, n_head, t] */
    struct ggml_tensor *kv;        /* [n_latent_kv, t] normed */
    struct ggml_tensor *k_rotated; /* [n_rot, 1, t] */
};

static struct latent latent_project(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct layer_form *form = graph_layer_form(b, index);
    const int64_t d = b->h->n_latent_dim_k, n_rot = b->h->n_rot, plain = d - n_rot,
                  rank = b->h->n_latent_kv, n_head = form->n_head, t = x->ne[1];
    struct ggml_tensor *q_latent =
        w[TENSOR_LATENT_Q_DOWN] ? graph_norm(b, graph_linear(b, w[TENSOR_LATENT_Q_DOWN], NULL, x),
                                             w[TENSOR_LATENT_Q_NORM])
                                : NULL;
    struct ggml_tensor *q = q_latent ? graph_linear(b, w[TENSOR_LATENT_Q_UP], NULL, q_latent)
                                     : graph_linear(b, w[TENSOR_Q], NULL, x);
    graph_index(b, index, x, q_latent);
    struct ggml_tensor *down = graph_linear(b, w[TENSOR_LATENT_KV_DOWN], NULL, x);
    const size_t size = sizeof(float), head = (size_t)d * size;
    struct ggml_tensor *q_rotated =
        ggml_view_3d(b->ctx, q, n_rot, n_head, t, head, q->nb[1], (size_t)plain * size);
    struct ggml_tensor *k_rotated =
        ggml_view_3d(b->ctx, down, n_rot, 1, t, down->nb[1], down->nb[1], (size_t)rank * size);
    struct ggml_tensor *kv = ggml_view_2d(b->ctx, down, rank, t, down->nb[1], 0);
    return (struct latent){
        .q_plain = ggml_view_3d(b->ctx, q, plain, n_head, t, head, q->nb[1], 0),
        .q_rotated = rotate(b, form, q_rotated),
        .kv = graph_norm(b, kv, w[TENSOR_LATENT_KV_NORM]),
        .k_rotated = rotate(b, form, k_rotated),
    };
}

/* The up-projection of keys is taken to the query's side, so that what is cached and attended to
 * is the latent itself: one head for all, whose value is the beginning of its key. */
static struct qkv latent_absorbed(struct graph_build *b, struct ggml_tensor **w,
                                  const struct latent *l)
{
    struct ggml_tensor *q = ggml_permute(b->ctx, l->q_plain, 0, 2, 1, 3); /* [plain, t, n_head] */
    q = graph_linear_by_head(b, w[TENSOR_LATENT_K_UP], q);                /* [rank, t, n_head] */
    q = ggml_permute(b->ctx, q, 0, 2, 1, 3);
    struct ggml_tensor *kv = ggml_reshape_3d(b->ctx, l->kv, l->kv->ne[0], 1, l->kv->ne[1]);
    return (struct qkv){.q = ggml_concat(b->ctx, q, l->q_rotated, 0),
                        .k = ggml_concat(b->ctx, kv, l->k_rotated, 0)};
}

/* Keys and values of every head, as older files must have it. */
static struct qkv latent_unpacked(struct graph_build *b, struct ggml_tensor **w,
                                  const struct latent *l)
{
    const int64_t plain = l->q_plain->ne[0], n_head = l->q_plain->ne[1], t = l->q_plain->ne[2],
                  dv = b->h->n_latent_dim_v;
    struct ggml_tensor *kv = graph_linear(b, w[TENSOR_LATENT_KV_UP], NULL, l->kv);
    const size_t size = sizeof(float), head = (size_t)(plain + dv) * size;
    struct ggml_tensor *k_plain = ggml_view_3d(b->ctx, kv, plain, n_head, t, head, kv->nb[1], 0);
    struct ggml_tensor *k_rotated =
        ggml_repeat_4d(b->ctx, l->k_rotated, l->k_rotated->ne[0], n_head, t, 1);
    return (struct qkv){
        .q = ggml_concat(b->ctx, l->q_plain, l->q_rotated, 0),
        .k = ggml_concat(b->ctx, k_plain, k_rotated, 0),
        .v = ggml_view_3d(b->ctx, kv, dv, n_head, t, head, kv->nb[1], (size_t)plain * size)};
}

/* Latents attended to, to values of heads: [dv * n_head, t] */
static struct ggml_tensor *latent_values(struct graph_build *b, struct ggml_tensor **w,
                                         const struct layer_form *form, struct ggml_tensor *all)
{
    const int64_t t = all->ne[1], dv = b->h->n_latent_dim_v;
    all = ggml_reshape_3d(b->ctx, all, b->h->n_latent_kv, form->n_head, t);
    all = ggml_permute(b->ctx, all, 0, 2, 1, 3);                    /* [rank, t, n_head] */
    all = graph_linear_by_head(b, w[TENSOR_LATENT_V_UP], all);      /* [dv, t, n_head] */
    all = ggml_cont(b->ctx, ggml_permute(b->ctx, all, 0, 2, 1, 3)); /* [dv, n_head, t] */
    return ggml_reshape_2d(b->ctx, all, dv * form->n_head, t);
}

/* ---- the cache ------------------------------------------------------------------------------- */

struct ggml_tensor *graph_store(struct graph_build *b, struct ggml_tensor *cache,
                                struct ggml_tensor *rows, struct ggml_tensor *cells)
{
    if (!ggml_is_contiguous(rows))
        rows = ggml_cont(b->ctx, rows);
    rows = ggml_reshape_2d(b->ctx, rows, cache->ne[0], rows->ne[2]);
    struct ggml_tensor *stored = ggml_set_rows(b->ctx, cache, rows, cells);
    ggml_build_forward_expand(b->cgraph, stored);
    return stored;
}

static struct ggml_tensor *gather_group(struct graph_build *b, struct ggml_tensor *cache,
                                        const struct batch_group *group)
{
    struct ggml_tensor *extents = b->graph->extents;
    return kv_gather(b->ctx, cache,
                     ggml_view_1d(b->ctx, extents, group->n_gathered,
                                  group->first_gathered * ggml_element_size(extents)));
}

struct cells_view graph_group_cells(struct graph_build *b, struct ggml_tensor *cache, bool is_ring,
                                    const struct batch_group *group)
{
    const struct kv_cache *kv = b->source->kv;
    if (is_ring || !kv_cache_is_pool(kv)) {
        const size_t each = (size_t)(cache->ne[1] / kv->n_slots);
        return (struct cells_view){cache, each * group->first_slot, each};
    }
    if (group->n_gathered)
        return (struct cells_view){gather_group(b, cache, group), 0, b->graph->shape.n_kv};
    return (struct cells_view){cache, (size_t)group->first_extent * KV_PADDING,
                               (size_t)group->extent_step * KV_PADDING};
}

/* The first cells of the group's slots, d values of each head: [d, c, n_head, s] */
static struct ggml_tensor *cached(struct graph_build *b, const struct ggml_tensor *cache, int64_t d,
                                  const struct layer_form *form, const struct batch_group *group,
                                  const struct cells_view *cells)
{
    const size_t row = cache->nb[1];
    const int64_t ne[] = {d, graph_seen_cells(b, form->is_windowed), form->n_head_kv,
                          group->n_slots};
    const size_t nb[] = {ggml_type_size(cache->type), row, ggml_row_size(cache->type, d),
                         row * cells->step};
    return kv_view(b->ctx, cells->rows, cache->type, ne, nb, row * cells->first);
}

/* The group's rows of Q: [d, r, n_head, s] */
struct ggml_tensor *graph_group_query(struct graph_build *b, struct ggml_tensor *q,
                                      const struct batch_group *group)
{
    struct ggml_tensor *view =
        ggml_view_4d(b->ctx, q, q->ne[0], q->ne[1], group->rows_per_slot, group->n_slots, q->nb[1],
                     q->nb[2], q->nb[2] * group->rows_per_slot, q->nb[2] * group->first_row);
    return ggml_permute(b->ctx, view, 0, 2, 1, 3);
}

/* The group's rows of the mask: [c, r, 1, s] */
struct ggml_tensor *graph_group_mask(struct graph_build *b, struct ggml_tensor *mask,
                                     const struct batch_group *group)
{
    size_t slot = mask->nb[1] * group->rows_per_slot;
    return ggml_view_4d(b->ctx, mask, mask->ne[0], group->rows_per_slot, 1, group->n_slots,
                        mask->nb[1], slot, slot, mask->nb[1] * group->first_row);
}

static struct ggml_tensor *attend_flash(struct graph_build *b, struct ggml_tensor *q,
                                        struct ggml_tensor *k, struct ggml_tensor *v,
                                        struct ggml_tensor *mask, struct ggml_tensor *sinks)
{
    struct ggml_tensor *o = ggml_flash_attn_ext(b->ctx, q, k, v, mask, b->h->attention_scale,
                                                b->h->alibi_max, b->h->attention_softcap);
    if (sinks)
        ggml_flash_attn_ext_add_sinks(o, sinks);
    ggml_prec_set_acc(o, GGML_PREC_F32);
    return o; /* [d_v, n_head, r, s] */
}

static struct ggml_tensor *attend_plain(struct graph_build *b, struct ggml_tensor *q,
                                        struct ggml_tensor *k, struct ggml_tensor *v,
                                        struct ggml_tensor *mask, struct ggml_tensor *sinks)
{
    float scale = b->h->attention_scale, cap = b->h->attention_softcap;
    struct ggml_tensor *scores = ggml_mul_mat(b->ctx, k, q); /* [c, r, n_head, s] */
    ggml_prec_set_acc(scores, GGML_PREC_F32);
    if (cap != 0) { /* cap * tanh(scale * x / cap) */
        scores = ggml_tanh(b->ctx, ggml_scale(b->ctx, scores, scale / cap));
        scores = ggml_scale(b->ctx, scores, cap);
        scale = 1.0f;
    }
    scores = ggml_soft_max_ext(b->ctx, scores, mask, scale, b->h->alibi_max);
    if (sinks)
        ggml_soft_max_add_sinks(scores, sinks);
    if (ggml_is_quantized(v->type)) /* cannot be transposed as blocks */
        v = ggml_cast(b->ctx, v, GGML_TYPE_F32);
    const int64_t ne[] = {v->ne[1], v->ne[0], v->ne[2], v->ne[3]};
    const size_t nb[] = {v->nb[1], v->nb[0], v->nb[2], v->nb[3]};
    struct ggml_tensor *columns = /* [c, d_v, n_head_kv, s] */
        ggml_cont(b->ctx, kv_view(b->ctx, v, v->type, ne, nb, 0));
    struct ggml_tensor *o = ggml_mul_mat(b->ctx, columns, scores); /* [d_v, r, n_head, s] */
    return ggml_cont(b->ctx, ggml_permute(b->ctx, o, 0, 2, 1, 3));
}

/* [d_v * n_head, r * s] */
struct ggml_tensor *graph_attend(struct graph_build *b, struct ggml_tensor *q,
                                 struct ggml_tensor *k, struct ggml_tensor *v,
                                 struct ggml_tensor *mask, struct ggml_tensor *sinks)
{
    struct ggml_tensor *o = b->source->flash ? attend_flash(b, q, k, v, mask, sinks)
                                             : attend_plain(b, q, k, v, mask, sinks);
    return ggml_reshape_2d(b->ctx, o, o->ne[0] * o->ne[1], o->ne[2] * o->ne[3]);
}

/* So many heads of x from `first` on. */
static struct ggml_tensor *some_heads(struct graph_build *b, struct ggml_tensor *x, int64_t n,
                                      int64_t first)
{
    return ggml_view_4d(b->ctx, x, x->ne[0], x->ne[1], n, x->ne[3], x->nb[1], x->nb[2], x->nb[3],
                        x->nb[2] * (size_t)first);
}

/* Each KV head with a mask of its own: F16 [c, r, n_head_kv, s] */
static struct ggml_tensor *attend_heads(struct graph_build *b, struct ggml_tensor *q,
                                        struct ggml_tensor *k, struct ggml_tensor *v,
                                        struct ggml_tensor *masks)
{
    const int64_t n_head_kv = k->ne[2], each = q->ne[2] / n_head_kv;
    struct ggml_tensor *all = NULL;
    for (int64_t i = 0; i < n_head_kv; i++) {
        struct ggml_tensor *mask = ggml_cont(b->ctx, some_heads(b, masks, 1, i));
        struct ggml_tensor *o =
            graph_attend(b, some_heads(b, q, each, i * each), some_heads(b, k, 1, i),
                         some_heads(b, v, 1, i), mask, NULL);
        all = all ? ggml_concat(b->ctx, all, o, 0) : o;
    }
    return all;
}

/* Groups of slots, each one operation of ggml's: [d_v * n_head, t] */
static struct ggml_tensor *attend_groups(struct graph_build *b, struct ggml_tensor *q,
                                         uint32_t index)
{
    const struct kv_cache *kv = b->source->kv;
    const struct batch_shape *shape = &b->graph->shape;
    const struct layer_form *form = graph_layer_form(b, index);
    const bool is_ring = kv_cache_is_ring(kv, index);
    const uint32_t source = kv->sources[index];
    struct ggml_tensor *v_cache = kv->v[source] ? kv->v[source] : kv->k[source];
    struct ggml_tensor *sinks = b->source->weights->layers[index][TENSOR_ATTENTION_SINKS],
                       *all = NULL;
    for (uint32_t i = 0; i < shape->n_groups; i++) {
        const struct batch_group *group = &shape->groups[i];
        struct ggml_tensor *mask =
            graph_group_mask(b, form->is_windowed ? b->graph->mask_window : b->graph->mask, group);
        struct ggml_tensor *of_heads = NULL;
        if (b->h->indexer.block && form->has_indexer)
            of_heads = graph_index_block_masks(b, index, group, mask);
        else if (b->h->indexer.n_head && !b->h->indexer.block)
            mask = graph_index_mask(b, index, i, mask);
        struct ggml_tensor *rows = graph_group_query(b, q, group);
        const struct cells_view k_cells = graph_group_cells(b, kv->k[source], is_ring, group),
                                v_cells = kv->v[source]
                                              ? graph_group_cells(b, kv->v[source], is_ring, group)
                                              : k_cells; /* a value is the beginning of its key */
        struct ggml_tensor *k = cached(b, kv->k[source], form->dim_k, form, group, &k_cells);
        struct ggml_tensor *v = cached(b, v_cache, form->dim_v, form, group, &v_cells);
        /* the reference's flash attention rounds caches so where it sees all, but not where an
         * indexer picks */
        if (b->source->flash && b->h->indexer.block && !form->has_indexer) {
            k = ggml_cast(b->ctx, k, GGML_TYPE_F16);
            v = ggml_cast(b->ctx, v, GGML_TYPE_F16);
        }
        struct ggml_tensor *o = of_heads ? attend_heads(b, rows, k, v, of_heads)
                                         : graph_attend(b, rows, k, v, mask, sinks);
        all = all ? ggml_concat(b->ctx, all, o, 1) : o;
    }
    return all;
}

enum {
    SOURCE_Q,
    SOURCE_K,
    SOURCE_V,
    SOURCE_POSITIONS,
    SOURCE_CELLS, /* of a pool: the rows' sequences */
    SOURCE_SCRATCH,
    SOURCE_SINKS,
    SOURCE_AHEAD,
    SOURCES
};

/* One thread's share of attend_all(), on ggml's threads. */
static void attend_share(struct ggml_tensor *out, int ith, int nth, void *attention)
{
    const struct graph_attention *a = attention;
    struct ggml_tensor *const *src = out->src;
    const uint32_t n_threads = (uint32_t)nth < a->n_threads ? (uint32_t)nth : a->n_threads;
    const struct attention_extents extents = {
        .extents = a->map ? a->map->extents : NULL,
        .n_each = a->map ? a->map->n_each : 0,
        .sequences = a->map ? src[SOURCE_CELLS]->data : NULL,
    };
    const struct attention_batch batch = {
        .q = src[SOURCE_Q]->data,
        .q_row = src[SOURCE_Q]->nb[2] / sizeof(float),
        .q_head = src[SOURCE_Q]->nb[1] / sizeof(float),
        .k = src[SOURCE_K]->data,
        .v = src[SOURCE_V]->data,
        .k_cell = src[SOURCE_K]->nb[1],
        .v_cell = src[SOURCE_V]->nb[1],
        .positions = src[SOURCE_POSITIONS]->data,
        .cells = a->map ? NULL : src[SOURCE_CELLS]->data,
        .extents = a->map ? &extents : NULL,
        .ahead = src[SOURCE_AHEAD] ? src[SOURCE_AHEAD]->data : NULL,
        .sinks = src[SOURCE_SINKS] ? src[SOURCE_SINKS]->data : NULL,
        .out = out->data,
        .n_rows = (uint32_t)out->ne[1],
    };
    if ((uint32_t)ith < n_threads)
        attention_compute(a->kernel, &a->form, &batch,
                          (char *)src[SOURCE_SCRATCH]->data +
                              src[SOURCE_SCRATCH]->nb[1] * (size_t)ith,
                          (uint32_t)ith, n_threads);
}

struct ggml_tensor *graph_row_cells(const struct graph_build *b, uint32_t index)
{
    return kv_cache_is_ring(b->source->kv, index) ? b->graph->cells_window : b->graph->cells;
}

/* All rows, by our own attention: [d_v * n_head, t]. `k` and `v` are the whole caches. */
static struct ggml_tensor *attend_all(struct graph_build *b, struct ggml_tensor *q,
                                      struct ggml_tensor *k, struct ggml_tensor *v,
                                      struct ggml_tensor *sinks, uint32_t index)
{
    const struct graph_attention *attention = &b->source->attention[index];
    struct ggml_tensor *sources[SOURCES] = {
        [SOURCE_Q] = q,
        [SOURCE_K] = k,
        [SOURCE_V] = v,
        [SOURCE_POSITIONS] = b->graph->positions,
        [SOURCE_CELLS] = attention->map ? b->graph->sequences : graph_row_cells(b, index),
        [SOURCE_SCRATCH] = b->graph->scratch,
        [SOURCE_SINKS] = sinks,
        [SOURCE_AHEAD] = b->graph->ahead,
    };
    const int64_t ne[] = {(int64_t)attention->form.dim_v * attention->form.n_head, q->ne[2], 1};
    struct ggml_tensor *out =
        custom_op_new(b->ctx, GGML_TYPE_F32, ne, sources, SOURCES, attend_share, attention);
    custom_op_of(out)->scratch = SOURCE_SCRATCH + 1;
    return out;
}

static struct qkv make_qkv(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct layer_form *form = graph_layer_form(b, index);
    struct qkv p;
    if (b->h->n_latent_kv) {
        const struct latent latent = latent_project(b, index, x);
        p = b->h->is_latent_absorbed ? latent_absorbed(b, w, &latent)
                                     : latent_unpacked(b, w, &latent);
    } else if (form->kv_layer != b->source->weights->first_layer + index) {
        struct ggml_tensor *q = graph_linear(b, w[TENSOR_Q], w[TENSOR_Q_BIAS], x);
        q = ggml_reshape_3d(b->ctx, q, form->dim_k, form->n_head, x->ne[1]);
        q = w[TENSOR_Q_NORM] ? graph_norm(b, q, w[TENSOR_Q_NORM]) : q;
        p = (struct qkv){.q = rotate(b, form, q)};
    } else {
        p = norm_and_rotate(b, w, form, project(b, w, form, x));
        if (form->has_indexer)
            graph_index_blocks(b, index, x);
    }
    if (b->graph->temperatures && !(b->h->temperature_is_unrotated && form->n_rot))
        p.q = ggml_mul(b->ctx, p.q, b->graph->temperatures);
    return p;
}

/* What attention gives, times a sigmoid of the block's input: one for each value, or each head. */
static struct ggml_tensor *gate_heads(struct graph_build *b, struct ggml_tensor **w,
                                      const struct layer_form *form, struct ggml_tensor *x,
                                      struct ggml_tensor *all)
{
    if (w[TENSOR_ATTENTION_GATE])
        return ggml_mul(b->ctx, all,
                        ggml_sigmoid(b->ctx, graph_linear(b, w[TENSOR_ATTENTION_GATE], NULL, x)));
    if (!w[TENSOR_ATTENTION_HEAD_GATE])
        return all;
    const int64_t t = all->ne[1], width = all->ne[0];
    struct ggml_tensor *gate =
        ggml_sigmoid(b->ctx, graph_linear(b, w[TENSOR_ATTENTION_HEAD_GATE], NULL, x));
    all = ggml_reshape_3d(b->ctx, all, width / form->n_head, form->n_head, t);
    all = ggml_mul(b->ctx, all, ggml_reshape_3d(b->ctx, gate, 1, form->n_head, t));
    return ggml_reshape_2d(b->ctx, all, width, t);
}

/* Writes keys and values into the layer's cache, where it has one; what it sees. */
static struct graph_shared attention_keep(struct graph_build *b, uint32_t index, struct qkv *p)
{
    const struct kv_cache *kv = b->source->kv;
    const struct layer_form *form = graph_layer_form(b, index);
    const uint32_t layer = b->source->weights->first_layer + index;
    struct graph_shared *shared = &b->shared[form->is_windowed];
    struct ggml_tensor *cells = graph_row_cells(b, index);
    const bool is_own = form->kv_layer == layer;
    if (!is_own && kv->sources[index] != index)
        return *shared;
    struct graph_shared seen = {.k = is_own ? p->k : shared->k, .v = is_own ? p->v : shared->v};
    seen.k_cache = graph_store(b, kv->k[index], seen.k, cells);
    seen.v_cache = seen.v ? graph_store(b, kv->v[index], seen.v, cells) : seen.k_cache;
    if (!is_own || layer == hyperparameters_shared_layer(b->h, form->is_windowed))
        *shared = seen;
    return seen;
}

struct ggml_tensor *graph_attention(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct layer_form *form = graph_layer_form(b, index);
    struct qkv p = make_qkv(b, index, x);
    ggml_build_forward_expand(b->cgraph, p.q);
    const struct graph_shared seen = attention_keep(b, index, &p);
    struct ggml_tensor *all = b->source->attention ? attend_all(b, p.q, seen.k_cache, seen.v_cache,
                                                                w[TENSOR_ATTENTION_SINKS], index)
                                                   : attend_groups(b, p.q, index);
    if (b->h->is_latent_absorbed)
        all = latent_values(b, w, form, all);
    all = gate_heads(b, w, form, x, all);
    if (p.gate)
        all = ggml_mul(b->ctx, all, ggml_sigmoid(b->ctx, p.gate));
    all = graph_linear(b, w[TENSOR_ATTENTION_OUT], w[TENSOR_ATTENTION_OUT_BIAS], all);
    return b->h->value_scale != 1.0f ? ggml_scale(b->ctx, all, b->h->value_scale) : all;
}
