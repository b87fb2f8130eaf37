/* Attention over a window, and over summaries of all tokens (DeepSeek V4). All heads share a key,
 * which is the value, too; the positions that it carries are taken back from the result.
 *
 * A summary of n tokens is a mixture of what each gives for it, value by value:
 *
 *     summary = norm(sum over tokens of softmax(gate + gate of its place) . value)
 *
 * Long ones (128 tokens) stand for their own. Short ones (4) overlap: each token gives something
 * to its own summary and something else to the next, and an indexer picks those that a row sees.
 * A row sees a summary when all of its tokens are there.
 *
 * What tokens give ("drafts") is kept as long as the window. With each batch all summaries are made
 * in which one of its rows may be the last; one that is not complete is nobody's to see, and is
 * made again. So a graph's shape does not depend on positions, and what is made has the same bits
 * however the rows came. A draft is, one behind the other, the values and gates of keys, then those
 * of the indexer's keys. */
#include "engine/graph.h"

#include "engine/kv_gather.h"

#include <math.h>

uint32_t graph_summaries_made(const struct batch_shape *shape, uint32_t summary)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < shape->n_groups; i++)
        n += shape->groups[i].n_slots * ((shape->groups[i].rows_per_slot + summary - 1) / summary);
    return n;
}

uint32_t graph_summary_reads(uint32_t summary)
{
    return summary == SUMMARY_SHORT ? 2 * summary : summary;
}

static struct graph_summaries *summary_inputs(struct graph_build *b, const struct layer_form *form)
{
    return &b->graph->summaries[form->summary == SUMMARY_LONG];
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Turns the last values of each head by `positions`, or back. Layers without summaries turn as the
 * model was trained, unscaled. */
static struct ggml_tensor *rotate_tail(struct graph_build *b, const struct layer_form *form,
                                       struct ggml_tensor *x, struct ggml_tensor *positions,
                                       bool back)
{
    const struct hyperparameters *h = b->h;
    const bool is_scaled = form->summary;
    const int64_t n_rot = form->n_rot, plain = x->ne[0] - n_rot;
    const float base = is_scaled ? h->summaries.rope_base : h->rope_base;
    struct ggml_tensor *head =
        ggml_view_3d(b->ctx, x, plain, x->ne[1], x->ne[2], x->nb[1], x->nb[2], 0);
    struct ggml_tensor *tail = ggml_view_3d(b->ctx, x, n_rot, x->ne[1], x->ne[2], x->nb[1],
                                            x->nb[2], (size_t)plain * sizeof(float));
    tail = (back ? ggml_rope_ext_back : ggml_rope_ext)(
        b->ctx, tail, positions, NULL, (int)n_rot, GGML_ROPE_TYPE_NORMAL,
        (int)h->n_context_original, base, is_scaled ? h->rope_frequency_scale : 1.0f,
        is_scaled ? h->yarn_ext_factor : 0.0f, is_scaled ? h->yarn_attn_factor : 1.0f,
        h->yarn_beta_fast, h->yarn_beta_slow);
    return plain ? ggml_concat(b->ctx, head, tail, 0) : tail;
}

/* ---- summaries are made --------------------------------------------------------------------- */

/* What the batch's rows give, [their values and gates, t] */
static struct ggml_tensor *draft(struct graph_build *b, struct ggml_tensor *const *roles,
                                 struct ggml_tensor *phases, struct ggml_tensor *x)
{
    struct ggml_tensor *gates = graph_linear(b, roles[1], NULL, x);
    gates = ggml_add(b->ctx, gates, ggml_get_rows(b->ctx, roles[2], phases));
    return ggml_concat(b->ctx, graph_linear(b, roles[0], NULL, x), gates, 0);
}

/* The drafts of all summaries that are made: [a draft, reads, n] */
static struct ggml_tensor *drafts(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct layer_form *form = graph_layer_form(b, index);
    const struct graph_summaries *inputs = summary_inputs(b, form);
    struct ggml_tensor *all = draft(b, &w[TENSOR_SUMMARIES_K], inputs->phases, x);
    if (form->has_indexer)
        all =
            ggml_concat(b->ctx, all, draft(b, &w[TENSOR_INDEX_SUMMARIES_K], inputs->phases, x), 0);
    const int64_t width = all->ne[0], reads = graph_summary_reads(form->summary);
    struct ggml_tensor *kept =
        graph_store(b, b->source->kv->drafts[index],
                    ggml_reshape_3d(b->ctx, all, width, 1, x->ne[1]), graph_row_cells(b, index));
    kept = ggml_get_rows(b->ctx, kept, inputs->reads);
    return ggml_reshape_3d(b->ctx, kept, width, reads, kept->ne[1] / reads);
}

/* So many values of so many tokens of each summary. */
static struct ggml_tensor *drafts_part(struct graph_build *b, struct ggml_tensor *drafts, int64_t d,
                                       int64_t value, int64_t n_tokens, int64_t token)
{
    return ggml_view_3d(b->ctx, drafts, d, n_tokens, drafts->ne[2], drafts->nb[1], drafts->nb[2],
                        (size_t)value * drafts->nb[0] + (size_t)token * drafts->nb[1]);
}

/* d values from `value` on of every token of each summary: [d, tokens, n]. Where they overlap, the
 * tokens before it give the first half and its own the second. */
static struct ggml_tensor *drafts_of(struct graph_build *b, const struct layer_form *form,
                                     struct ggml_tensor *drafts, int64_t d, int64_t value)
{
    const int64_t n = form->summary;
    if (!form->has_indexer)
        return drafts_part(b, drafts, d, value, n, 0);
    return ggml_concat(b->ctx, drafts_part(b, drafts, d, value, n, 0),
                       drafts_part(b, drafts, d, value + d, n, n), 1);
}

/* Tokens fastest: [tokens, d, n] */
static struct ggml_tensor *by_token(struct graph_build *b, struct ggml_tensor *x)
{
    return ggml_cont(b->ctx, ggml_permute(b->ctx, x, 1, 0, 2, 3));
}

/* Of drafts from `value` on into the cache. */
static void summarise(struct graph_build *b, const struct layer_form *form,
                      struct ggml_tensor *drafts, int64_t value, struct ggml_tensor *norm,
                      struct ggml_tensor *cache)
{
    const struct graph_summaries *inputs = summary_inputs(b, form);
    const int64_t d = norm->ne[0], n = drafts->ne[2], ways = form->has_indexer ? 2 : 1;
    const int64_t room = cache->ne[0] * form->summary;
    struct ggml_tensor *gates = drafts_of(b, form, drafts, d, value + ways * d);
    if (inputs->unseen)
        gates = ggml_add(b->ctx, gates, inputs->unseen);
    struct ggml_tensor *shares = ggml_soft_max(b->ctx, by_token(b, gates));
    struct ggml_tensor *y =
        ggml_mul(b->ctx, by_token(b, drafts_of(b, form, drafts, d, value)), shares);
    y = ggml_reshape_2d(b->ctx, ggml_sum_rows(b->ctx, y), d, n);
    y = ggml_reshape_3d(b->ctx, graph_norm(b, y, norm), d, 1, n);
    y = ggml_reshape_2d(b->ctx, rotate_tail(b, form, y, inputs->starts, false), d, n);
    if (room > d)
        y = ggml_pad(b->ctx, y, (int)(room - d), 0, 0, 0);
    struct ggml_tensor *places = ggml_reshape_2d(b->ctx, cache, room, cache->ne[1] / form->summary);
    ggml_build_forward_expand(b->cgraph, ggml_set_rows(b->ctx, places, y, inputs->rows));
}

static void make_summaries(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct kv_cache *kv = b->source->kv;
    const struct layer_form *form = graph_layer_form(b, index);
    struct ggml_tensor *all = drafts(b, index, x);
    summarise(b, form, all, 0, w[TENSOR_SUMMARIES_NORM], kv->summaries[index]);
    if (form->has_indexer)
        summarise(b, form, all, 4 * (int64_t)form->dim_k, w[TENSOR_INDEX_SUMMARIES_NORM],
                  kv->index[index]);
}

/* ---- summaries are seen --------------------------------------------------------------------- */

/* The first summaries of the group's slots, d values of each: [d, c, 1, s] */
static struct ggml_tensor *seen_summaries(struct graph_build *b, struct ggml_tensor *cache,
                                          int64_t d, uint32_t summary,
                                          const struct batch_group *group)
{
    const struct cells_view cells = graph_group_cells(b, cache, false, group);
    const size_t row = cache->nb[1], each = row * summary;
    const int64_t ne[] = {d, b->graph->shape.n_kv / summary, 1, group->n_slots};
    const size_t nb[] = {ggml_type_size(cache->type), each, each, row * cells.step};
    return kv_view(b->ctx, cells.rows, cache->type, ne, nb, row * cells.first);
}

static struct ggml_tensor *seen_window(struct graph_build *b, uint32_t index,
                                       const struct batch_group *group)
{
    const struct kv_cache *kv = b->source->kv;
    const struct ggml_tensor *cache = kv->k[index];
    const struct cells_view cells =
        graph_group_cells(b, kv->k[index], kv_cache_is_ring(kv, index), group);
    const size_t row = cache->nb[1];
    const int64_t ne[] = {cache->ne[0], graph_seen_cells(b, true), 1, group->n_slots};
    const size_t nb[] = {ggml_type_size(cache->type), row, row, row * cells.step};
    return kv_view(b->ctx, cells.rows, cache->type, ne, nb, row * cells.first);
}

static struct ggml_tensor *attend_group(struct graph_build *b, uint32_t index,
                                        struct ggml_tensor *q, const struct batch_group *group)
{
    const struct kv_cache *kv = b->source->kv;
    const struct layer_form *form = graph_layer_form(b, index);
    struct ggml_tensor *k = seen_window(b, index, group);
    struct ggml_tensor *mask = graph_group_mask(b, b->graph->mask_window, group);
    if (form->summary) {
        struct ggml_tensor *of_summaries =
            graph_group_mask(b, summary_inputs(b, form)->mask, group);
        if (form->has_indexer)
            of_summaries = graph_index_summaries_mask(
                b, group,
                seen_summaries(b, kv->index[index], b->h->indexer.dim, form->summary, group),
                of_summaries);
        k = ggml_concat(b->ctx, k,
                        seen_summaries(b, kv->summaries[index], form->dim_k, form->summary, group),
                        1);
        mask = ggml_concat(b->ctx, mask, of_summaries, 0);
    }
    /* ggml's flash attention on the CPU adds up F16 values in F16, which is too coarse for what is
     * chosen in later layers */
    if (b->source->flash && k->type != GGML_TYPE_F32 && ggml_backend_buft_is_host(kv->type))
        k = ggml_cast(b->ctx, k, GGML_TYPE_F32);
    return graph_attend(b, graph_group_query(b, q, group), k, k, mask,
                        b->source->weights->layers[index][TENSOR_ATTENTION_SINKS]);
}

/* Values of heads, [d n_head, t], to the hidden state, by way of so many values for each group of
 * heads. */
static struct ggml_tensor *project_groups(struct graph_build *b, struct ggml_tensor **w,
                                          struct ggml_tensor *all)
{
    const int64_t n_groups = b->h->summaries.out_groups, t = all->ne[1];
    all = ggml_reshape_3d(b->ctx, all, all->ne[0] / n_groups, n_groups, t);
    all = graph_linear_by_head(b, w[TENSOR_OUT_GROUPS], ggml_permute(b->ctx, all, 0, 2, 1, 3));
    all = ggml_cont(b->ctx, ggml_permute(b->ctx, all, 0, 2, 1, 3));
    return graph_linear(b, w[TENSOR_OUT_OF_GROUPS], NULL,
                        ggml_reshape_2d(b->ctx, all, all->ne[0] * n_groups, t));
}

/* What the indexer asks, into `b`. */
static void ask_index(struct graph_build *b, uint32_t index, struct ggml_tensor *x,
                      struct ggml_tensor *q_latent)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct indexer_form *form = &b->h->indexer;
    struct ggml_tensor *q =
        ggml_reshape_3d(b->ctx, graph_linear(b, w[TENSOR_INDEX_Q], NULL, q_latent), form->dim,
                        form->n_head, x->ne[1]);
    b->index_q = rotate_tail(b, graph_layer_form(b, index), q, b->graph->positions, false);
    b->index_weights = ggml_scale(b->ctx, graph_linear(b, w[TENSOR_INDEX_WEIGHTS], NULL, x),
                                  1.0f / sqrtf((float)(form->n_head * form->dim)));
}

struct ggml_tensor *graph_summaries_attention(struct graph_build *b, uint32_t index,
                                              struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    const struct layer_form *form = graph_layer_form(b, index);
    const int64_t d = form->dim_k, n_head = form->n_head, t = x->ne[1];
    struct ggml_tensor *positions = b->graph->positions, *all = NULL;
    struct ggml_tensor *q_latent =
        graph_norm(b, graph_linear(b, w[TENSOR_LATENT_Q_DOWN], NULL, x), w[TENSOR_LATENT_Q_NORM]);
    struct ggml_tensor *q = graph_linear(b, w[TENSOR_LATENT_Q_UP], NULL, q_latent);
    q = ggml_rms_norm(b->ctx, ggml_reshape_3d(b->ctx, q, d, n_head, t), b->h->norm_epsilon);
    q = rotate_tail(b, form, q, positions, false);
    struct ggml_tensor *kv =
        graph_norm(b, graph_linear(b, w[TENSOR_SINGLE_KV], NULL, x), w[TENSOR_SINGLE_KV_NORM]);
    kv = rotate_tail(b, form, ggml_reshape_3d(b->ctx, kv, d, 1, t), positions, false);
    graph_store(b, b->source->kv->k[index], kv, graph_row_cells(b, index));
    if (form->summary)
        make_summaries(b, index, x);
    if (form->has_indexer)
        ask_index(b, index, x, q_latent);
    for (uint32_t i = 0; i < b->graph->shape.n_groups; i++) {
        struct ggml_tensor *o = attend_group(b, index, q, &b->graph->shape.groups[i]);
        all = all ? ggml_concat(b->ctx, all, o, 1) : o;
    }
    all = rotate_tail(b, form, ggml_reshape_3d(b->ctx, all, d, n_head, t), positions, true);
    return project_groups(b, w, ggml_reshape_2d(b->ctx, all, d * n_head, t));
}
