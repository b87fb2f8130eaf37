#include "engine/graph.h"

#include "gpu/custom_runs.h"
#include "gpu/product_ggml.h"

#include <assert.h>
#include <math.h>

static bool is_ours(const struct graph_build *b, const struct ggml_tensor *matrix)
{
    return product_is_of(b->source->products, matrix->type);
}

/* Several matrices in a row are multiplied with the same. */
static struct ggml_tensor *rounded(struct graph_build *b, enum ggml_type type,
                                   struct ggml_tensor *x)
{
    if (b->rounded_of != x || !product_shares_rounding(b->rounded_for, type)) {
        b->rounded = product_rounded(b->ctx, b->source->products, type, x);
        b->rounded_of = x;
        b->rounded_for = type;
    }
    return b->rounded;
}

struct ggml_tensor *graph_linear(struct graph_build *b, struct ggml_tensor *matrix,
                                 struct ggml_tensor *bias, struct ggml_tensor *x)
{
    const bool ours = is_ours(b, matrix);
    struct ggml_tensor *y =
        ours ? product_mul_mat(b->ctx, b->source->products, matrix, rounded(b, matrix->type, x))
             : ggml_mul_mat(b->ctx, matrix, x);
    /* GPUs otherwise add up F16 products in F16, which loses digits and can overflow */
    if (matrix->type == GGML_TYPE_F16 && !ours)
        ggml_prec_set_acc(y, GGML_PREC_F32);
    return bias ? ggml_add(b->ctx, y, bias) : y;
}

struct ggml_tensor *graph_linear_by_head(struct graph_build *b, struct ggml_tensor *matrices,
                                         struct ggml_tensor *x)
{
    assert(matrices->ne[2] == x->ne[2]);
    struct ggml_tensor *y =
        is_ours(b, matrices)
            ? product_mul_mat(b->ctx, b->source->products, matrices, rounded(b, matrices->type, x))
            : ggml_mul_mat(b->ctx, matrices, x);
    if (!is_ours(b, matrices))
        ggml_prec_set_acc(y, GGML_PREC_F32);
    return y;
}

struct ggml_tensor *graph_linear_of(struct graph_build *b, struct ggml_tensor *matrices,
                                    struct ggml_tensor *x, struct ggml_tensor *chosen)
{
    return is_ours(b, matrices) ? product_mul_mat_id(b->ctx, b->source->products, matrices,
                                                     rounded(b, matrices->type, x), chosen)
                                : ggml_mul_mat_id(b->ctx, matrices, x, chosen);
}

struct ggml_tensor *graph_norm(struct graph_build *b, struct ggml_tensor *x,
                               struct ggml_tensor *weight)
{
    return ggml_mul(b->ctx, ggml_rms_norm(b->ctx, x, b->h->norm_epsilon), weight);
}

const struct layer_form *graph_layer_form(const struct graph_build *b, uint32_t index)
{
    return &b->h->layers[b->source->weights->first_layer + index];
}

struct ggml_tensor *graph_block_norm(struct graph_build *b, struct ggml_tensor *x,
                                     struct ggml_tensor *weight, struct ggml_tensor *bias)
{
    struct ggml_tensor *y = b->h->norm == NORM_LAYER
                                ? ggml_mul(b->ctx, ggml_norm(b->ctx, x, b->h->norm_epsilon), weight)
                                : graph_norm(b, x, weight);
    return bias ? ggml_add(b->ctx, y, bias) : y;
}

static struct ggml_tensor *input(struct graph_build *b, enum ggml_type type, int64_t ne0,
                                 int64_t ne1, const char *name)
{
    struct ggml_tensor *tensor = ggml_new_tensor_2d(b->ctx, type, ne0, ne1);
    ggml_set_input(tensor);
    ggml_set_name(tensor, name);
    return tensor;
}

static bool any_layer(const struct graph_build *b, bool windowed)
{
    for (uint32_t i = 0; i < b->source->weights->n_layers; i++) {
        const struct layer_form *form = graph_layer_form(b, i);
        if (form->n_head_kv && form->is_windowed == windowed)
            return true;
    }
    return false;
}

static bool any_cache(const struct graph_build *b, bool ring)
{
    for (uint32_t i = 0; i < b->source->weights->n_layers; i++) {
        if (b->source->kv->k[i] && kv_cache_is_ring(b->source->kv, i) == ring)
            return true;
    }
    return false;
}

static bool any_summary(const struct graph_build *b, uint32_t summary)
{
    for (uint32_t i = 0; i < b->source->weights->n_layers; i++) {
        if (graph_layer_form(b, i)->summary == summary)
            return true;
    }
    return false;
}

int64_t graph_seen_cells(const struct graph_build *b, bool windowed)
{
    const uint32_t all = b->graph->shape.n_kv, most = b->source->kv->window_cells;
    return windowed && most < all ? most : all;
}

/* What one thread needs for the layer that needs most. */
static size_t scratch_bytes(const struct graph_build *b)
{
    size_t most = 0;
    for (uint32_t i = 0; i < b->source->weights->n_layers; i++) {
        if (!graph_layer_form(b, i)->n_head_kv)
            continue;
        const size_t bytes = attention_scratch_bytes(&b->source->attention[i].form);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void make_summary_inputs(struct graph_build *b, uint32_t summary)
{
    struct graph_summaries *in = &b->graph->summaries[summary == SUMMARY_LONG];
    const struct batch_shape *shape = &b->graph->shape;
    const int64_t made = graph_summaries_made(shape, summary), reads = graph_summary_reads(summary);
    if (!any_summary(b, summary))
        return;
    in->phases = input(b, GGML_TYPE_I32, shape->n_rows, 1, "summary_phases");
    in->reads = input(b, GGML_TYPE_I32, reads * made, 1, "summary_reads");
    in->starts = input(b, GGML_TYPE_I32, made, 1, "summary_starts");
    in->rows = input(b, GGML_TYPE_I64, made, 1, "summary_rows");
    in->mask = input(b, GGML_TYPE_F16, shape->n_kv / summary, shape->n_rows, "mask_summaries");
    if (summary != SUMMARY_SHORT)
        return;
    in->unseen = ggml_new_tensor_3d(b->ctx, GGML_TYPE_F32, 1, reads, made);
    ggml_set_input(in->unseen);
    ggml_set_name(in->unseen, "summary_unseen");
}

static void make_inputs(struct graph_build *b)
{
    struct graph *graph = b->graph;
    const struct batch_shape *shape = &graph->shape;
    int64_t t = shape->n_rows;
    if (b->source->first)
        graph->tokens = input(b, GGML_TYPE_I32, t, 1, "tokens");
    else
        graph->hidden =
            input(b, GGML_TYPE_F32, (int64_t)b->h->n_embd + b->h->n_carried, t, "hidden_in");
    graph->positions = input(b, GGML_TYPE_I32, t, 1, "positions");
    graph_given_inputs(b);
    if (b->source->first && b->source->weights->outside[TENSOR_TYPE_EMBEDDING])
        graph->types = input(b, GGML_TYPE_I32, t, 1, "types");
    const bool any_full = any_layer(b, false), any_windowed = any_layer(b, true);
    if (any_cache(b, false))
        graph->cells = input(b, GGML_TYPE_I64, t, 1, "cells");
    if (any_cache(b, true))
        graph->cells_window = input(b, GGML_TYPE_I64, t, 1, "cells_window");
    if (any_cache(b, false) && kv_cache_is_pool(b->source->kv))
        graph->sequences = input(b, GGML_TYPE_I32, t, 1, "sequences");
    const bool any_summaries = any_summary(b, SUMMARY_SHORT) || any_summary(b, SUMMARY_LONG);
    if ((any_cache(b, false) || any_summaries) && shape->n_gathered)
        graph->extents = input(b, GGML_TYPE_I32, shape->n_gathered, 1, "extents");
    if (b->h->temperature_scale != 0) {
        graph->temperatures = ggml_new_tensor_3d(b->ctx, GGML_TYPE_F32, 1, 1, t);
        ggml_set_input(graph->temperatures);
        ggml_set_name(graph->temperatures, "temperatures");
    }
    if (b->h->indexer.block)
        graph->local_blocks =
            input(b, GGML_TYPE_F32, shape->n_kv / b->h->indexer.block, t, "local_blocks");
    make_summary_inputs(b, SUMMARY_SHORT);
    make_summary_inputs(b, SUMMARY_LONG);
    if (b->architecture->recurrence == RECURRENCE_MAMBA2)
        graph->slots = input(b, GGML_TYPE_I32, LIMIT_SEQUENCES, 1, "slots");
    if (b->architecture->recurrence == RECURRENCE_LIGHTNING)
        graph->slopes = input(b, GGML_TYPE_F32, 1, b->h->n_head, "slopes");
    const struct graph_attention *attention = b->source->attention;
    if (attention && scratch_bytes(b))
        graph->scratch = input(b, GGML_TYPE_I8, (int64_t)scratch_bytes(b), attention->n_threads,
                               "attention_scratch");
    if (!attention && any_full)
        graph->mask = input(b, GGML_TYPE_F16, shape->n_kv, t, "mask");
    if (!attention && any_windowed)
        graph->mask_window = input(b, GGML_TYPE_F16, graph_seen_cells(b, true), t, "mask_window");
    if (b->source->last && shape->n_outputs && shape->n_outputs < shape->n_rows)
        graph->outputs = input(b, GGML_TYPE_I32, shape->n_outputs, 1, "outputs");
}

/* [n_embd, t] */
static struct ggml_tensor *embed(struct graph_build *b)
{
    if (!b->source->first)
        return graph_carried_take(b);
    struct ggml_tensor *x = ggml_get_rows(
        b->ctx, b->source->weights->outside[TENSOR_TOKEN_EMBEDDING], b->graph->tokens);
    if (b->architecture->is_encoder)
        return graph_encoder_inputs(b, x);
    x = b->h->embedding_scale != 1.0f ? ggml_scale(b->ctx, x, b->h->embedding_scale) : x;
    x = graph_given_put(b, x); /* those are not scaled */
    graph_layer_inputs(b, x);
    if (b->h->summaries.n_token_routed)
        b->tokens = b->graph->tokens;
    return b->h->streams.n ? graph_streams_begin(b, x) : x;
}

static struct ggml_tensor *add_residual(struct graph_build *b, struct ggml_tensor *x,
                                        struct ggml_tensor *branch)
{
    if (b->architecture->is_residual_normed)
        return ggml_add(b->ctx, branch, ggml_scale(b->ctx, x, b->h->residual_scale));
    if (b->h->residual_scale != 1.0f)
        branch = ggml_scale(b->ctx, branch, b->h->residual_scale);
    return ggml_add(b->ctx, branch, x);
}

struct ggml_tensor *graph_pick_rows(struct graph_build *b, struct ggml_tensor *x)
{
    return b->graph->outputs ? ggml_get_rows(b->ctx, x, b->graph->outputs) : x;
}

/* Attention and feed-forward beside each other, of the same normed input. */
static struct ggml_tensor *parallel_layer(struct graph_build *b, uint32_t index,
                                          struct ggml_tensor *x, bool very_last)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    struct ggml_tensor *normed =
        graph_block_norm(b, x, w[TENSOR_ATTENTION_NORM], w[TENSOR_ATTENTION_NORM_BIAS]);
    struct ggml_tensor *y = graph_attention(b, index, normed);
    if (very_last) {
        x = graph_pick_rows(b, x);
        y = graph_pick_rows(b, y);
        normed = graph_pick_rows(b, normed);
    }
    y = ggml_add(b->ctx, y, graph_ffn(b, index, normed));
    return add_residual(b, x, y);
}

static struct ggml_tensor *serial_layer(struct graph_build *b, uint32_t index,
                                        struct ggml_tensor *x, bool very_last)
{
    struct ggml_tensor **w = b->source->weights->layers[index];
    struct ggml_tensor *y =
        b->architecture->post_norm_only || !w[TENSOR_ATTENTION_NORM]
            ? x
            : graph_block_norm(b, x, w[TENSOR_ATTENTION_NORM], w[TENSOR_ATTENTION_NORM_BIAS]);
    if (b->architecture->is_residual_normed)
        x = y;
    y = graph_layer_form(b, index)->is_recurrent ? graph_recurrence(b, index, y)
                                                 : graph_attention(b, index, y);
    if (very_last) { /* from here on rows are independent: go on with those that are wanted */
        x = graph_pick_rows(b, x);
        y = graph_pick_rows(b, y);
    }
    if (w[TENSOR_ATTENTION_POST_NORM] && !b->architecture->ffn_norm_is_post)
        y = graph_norm(b, y, w[TENSOR_ATTENTION_POST_NORM]);
    x = add_residual(b, x, y);

    enum tensor_role norm =
        b->architecture->ffn_norm_is_post ? TENSOR_ATTENTION_POST_NORM : TENSOR_FFN_NORM;
    y = b->architecture->post_norm_only ? x
                                        : graph_block_norm(b, x, w[norm], w[TENSOR_FFN_NORM_BIAS]);
    if (b->architecture->is_residual_normed)
        x = y;
    y = w[TENSOR_EXPERTS_NORM] ? graph_ffn_beside(b, index, x, y) : graph_ffn(b, index, y);
    if (w[TENSOR_FFN_POST_NORM])
        y = graph_norm(b, y, w[TENSOR_FFN_POST_NORM]);
    x = add_residual(b, x, y);
    if (b->layer_inputs)
        x = graph_layer_input(b, index, x, very_last);
    return w[TENSOR_LAYER_SCALE] ? ggml_mul(b->ctx, x, w[TENSOR_LAYER_SCALE]) : x;
}

/* A layer that is attention, a state or a feed-forward. */
static struct ggml_tensor *one_branch_layer(struct graph_build *b, uint32_t index,
                                            struct ggml_tensor *x, bool very_last)
{
    const struct layer_form *form = graph_layer_form(b, index);
    struct ggml_tensor **w = b->source->weights->layers[index];
    struct ggml_tensor *y =
        graph_block_norm(b, x, w[TENSOR_ATTENTION_NORM], w[TENSOR_ATTENTION_NORM_BIAS]);
    y = form->is_recurrent   ? graph_recurrence(b, index, y)
        : form->has_no_mixer ? graph_ffn(b, index, y)
                             : graph_attention(b, index, y);
    if (very_last) {
        x = graph_pick_rows(b, x);
        y = graph_pick_rows(b, y);
    }
    return add_residual(b, x, y);
}

static struct ggml_tensor *layer(struct graph_build *b, uint32_t index, struct ggml_tensor *x)
{
    bool very_last = b->source->last && index + 1 == b->source->weights->n_layers;
    if (b->h->streams.n)
        return graph_streams_layer(b, index, x, very_last);
    if (b->architecture->is_sum_normed)
        return graph_encoder_layer(b, index, x, very_last);
    if (b->h->residual_period)
        return graph_residual_layer(b, index, x, very_last);
    if (b->architecture->is_one_branch)
        return one_branch_layer(b, index, x, very_last);
    return b->architecture->is_parallel ? parallel_layer(b, index, x, very_last)
                                        : serial_layer(b, index, x, very_last);
}

/* Hidden states to what the last stage gives: [n_vocab or n_embd, n_outputs] */
static struct ggml_tensor *head(struct graph_build *b, struct ggml_tensor *x)
{
    struct ggml_tensor *const *outside = b->source->weights->outside;
    if (b->h->streams.n)
        x = graph_streams_end(b, x);
    if (outside[TENSOR_OUTPUT_RESIDUALS])
        x = graph_residual_mix(b, x, outside[TENSOR_OUTPUT_RESIDUALS]);
    if (outside[TENSOR_OUTPUT_NORM])
        x = graph_block_norm(b, x, outside[TENSOR_OUTPUT_NORM], outside[TENSOR_OUTPUT_NORM_BIAS]);
    if (b->h->pooling == POOLING_RANK)
        return graph_rank(b, x);
    if (b->graph->shape.embeddings || !b->source->weights->head)
        return x;
    x = graph_linear(b, b->source->weights->head, outside[TENSOR_OUTPUT_BIAS], x);
    if (b->h->logit_scale != 1.0f)
        x = ggml_scale(b->ctx, x, b->h->logit_scale);
    if (b->h->final_softcap != 0) { /* cap * tanh(x / cap) */
        x = ggml_scale(b->ctx, x, 1.0f / b->h->final_softcap);
        x = ggml_scale(b->ctx, ggml_tanh(b->ctx, x), b->h->final_softcap);
    }
    return x;
}

size_t graph_nodes_per_group(const struct graph_source *source)
{
    const struct hyperparameters *h = source->hyperparameters;
    size_t n = GRAPH_ATTENTION_NODES;
    if (source->architecture->recurrence)
        n = GRAPH_RECURRENT_NODES;
    if (h->indexer.n_head)
        n += GRAPH_INDEXER_NODES;
    if (h->indexer.block)
        n += (size_t)GRAPH_HEAD_NODES * h->n_head_kv;
    return n;
}

size_t graph_nodes_per_layer(const struct graph_source *source)
{
    return 160 + (source->hyperparameters->streams.n ? GRAPH_SUMMARY_NODES : 0);
}

static size_t nodes_max(const struct graph_source *source, const struct batch_shape *shape)
{
    size_t per_layer = graph_nodes_per_layer(source) +
                       graph_nodes_per_group(source) * shape->n_groups +
                       2 * (size_t)source->hyperparameters->n_experts_used;
    return 64 + per_layer * source->weights->n_layers;
}

enum error_code graph_build(struct graph *graph, const struct graph_source *source,
                            const struct batch_shape *shape, struct error *err)
{
    size_t n_nodes = nodes_max(source, shape);
    struct ggml_init_params params = {.mem_size = n_nodes * ggml_tensor_overhead() +
                                                  ggml_graph_overhead_custom(n_nodes, false),
                                      .no_alloc = true};
    *graph = (struct graph){.context = ggml_init(params), .shape = *shape};
    if (!graph->context)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a graph of %zu nodes",
                         n_nodes);
    graph->cgraph = ggml_new_graph_custom(graph->context, n_nodes, false);

    struct graph_build b = {.ctx = graph->context,
                            .cgraph = graph->cgraph,
                            .source = source,
                            .architecture = source->architecture,
                            .h = source->hyperparameters,
                            .graph = graph};
    make_inputs(&b);
    struct ggml_tensor *x = embed(&b);
    for (uint32_t i = 0; i < source->weights->n_layers; i++) {
        x = graph_given_add(&b, i, layer(&b, i, x));
        ggml_format_name(x, GRAPH_LAYER_END "%u", i);
    }
    if (source->last)
        x = shape->n_outputs ? head(&b, x) : NULL;
    else if (b.h->n_carried)
        x = graph_carried_give(&b, x);
    if (x) {
        ggml_set_output(x);
        ggml_set_name(x, "result");
        ggml_build_forward_expand(graph->cgraph, x);
        graph->result = x;
    }
    return ERROR_NONE;
}

void graph_deinit(struct graph *graph)
{
    if (!graph)
        return;
    custom_runs_free(graph->runs);
    ggml_free(graph->context);
    *graph = (struct graph){0};
}
