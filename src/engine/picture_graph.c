#include "engine/picture_graph.h"

#include <math.h>

struct picture_build {
    struct ggml_context *ctx;
    const struct picture_graph_source *source;
    const struct projector_form *form;
    struct picture_graph *graph;
    int64_t n; /* patches */
    struct picture_windows windows[PICTURE_WINDOW_SIZES];
    struct ggml_tensor *deep; /* [n_out x parts, rows]; NULL: none so far */
};

static struct ggml_tensor *picture_outside(const struct picture_build *b, enum projector_role role)
{
    return b->source->outside[role];
}

/* y = matrix . x (+ bias) */
static struct ggml_tensor *picture_linear(struct picture_build *b, struct ggml_tensor *matrix,
                                          struct ggml_tensor *bias, struct ggml_tensor *x)
{
    x = ggml_mul_mat(b->ctx, matrix, x);
    return bias ? ggml_add(b->ctx, x, bias) : x;
}

static struct ggml_tensor *picture_norm(struct picture_build *b, struct ggml_tensor *weight,
                                        struct ggml_tensor *bias, struct ggml_tensor *x)
{
    const float epsilon = b->form->epsilon;
    x = b->form->is_rms ? ggml_rms_norm(b->ctx, x, epsilon) : ggml_norm(b->ctx, x, epsilon);
    x = ggml_mul(b->ctx, x, weight);
    return bias ? ggml_add(b->ctx, x, bias) : x;
}

/* ---- what comes in -------------------------------------------------------------------------- */

/* A convolution whose steps are as long as its kernel: a product with each patch. */
static struct ggml_tensor *picture_embed(struct picture_build *b, enum projector_role role)
{
    struct ggml_tensor *kernel = picture_outside(b, role);
    struct ggml_tensor *matrix = ggml_reshape_2d(
        b->ctx, kernel, kernel->ne[0] * kernel->ne[1] * kernel->ne[2], kernel->ne[3]);
    return ggml_mul_mat(b->ctx, matrix, b->graph->patches);
}

/* A learned position for each patch, in the order of patches: [n_embd, n] */
static struct ggml_tensor *picture_positions(struct picture_build *b)
{
    struct ggml_tensor *table = picture_outside(b, PROJECTOR_POSITIONS);
    const struct picture_grid *grid = &b->graph->grid;
    const int64_t side = b->form->table_side;
    if (side && (grid->columns != side || grid->rows != side)) { /* stretched to the picture */
        if (table->type != GGML_TYPE_F32)
            table = ggml_cast(b->ctx, table, GGML_TYPE_F32);
        table = ggml_reshape_3d(b->ctx, table, b->form->n_embd, side, side);
        table = ggml_cont(b->ctx, ggml_permute(b->ctx, table, 2, 0, 1, 3));
        table =
            ggml_interpolate(b->ctx, table, grid->columns, grid->rows, b->form->n_embd, 1,
                             GGML_SCALE_MODE_BILINEAR | (uint32_t)GGML_SCALE_FLAG_ALIGN_CORNERS);
        table = ggml_permute(b->ctx, table, 1, 2, 0, 3);
        table = ggml_cont_2d(b->ctx, table, b->form->n_embd, b->n);
    }
    return ggml_get_rows(b->ctx, table, b->graph->places);
}

/* [n_embd, n] */
static struct ggml_tensor *picture_inputs(struct picture_build *b)
{
    struct ggml_tensor *x = picture_embed(b, PROJECTOR_PATCHES);
    if (picture_outside(b, PROJECTOR_PATCHES_SECOND))
        x = ggml_add(b->ctx, x, picture_embed(b, PROJECTOR_PATCHES_SECOND));
    if (picture_outside(b, PROJECTOR_PATCHES_B))
        x = ggml_add(b->ctx, x, picture_outside(b, PROJECTOR_PATCHES_B));
    return picture_outside(b, PROJECTOR_POSITIONS) ? ggml_add(b->ctx, x, picture_positions(b)) : x;
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* q, k, v: [d, n_head, m, windows]; all m patches of a window see one another. [n_embd, m windows]
 */
static struct ggml_tensor *picture_attend(struct picture_build *b, struct ggml_tensor *q,
                                          struct ggml_tensor *k, struct ggml_tensor *v)
{
    const float scale = 1.0f / sqrtf((float)q->ne[0]);
    const int64_t width = q->ne[0] * q->ne[1], n = q->ne[2] * q->ne[3];
    struct ggml_tensor *o;
    q = ggml_permute(b->ctx, q, 0, 2, 1, 3);
    k = ggml_permute(b->ctx, k, 0, 2, 1, 3);
    if (b->source->flash) {
        v = ggml_permute(b->ctx, v, 0, 2, 1, 3);
        k = ggml_cast(b->ctx, k, b->source->flash_type);
        v = ggml_cast(b->ctx, v, b->source->flash_type);
        o = ggml_flash_attn_ext(b->ctx, q, k, v, NULL, scale, 0.0f, 0.0f);
        ggml_prec_set_acc(o, GGML_PREC_F32);
        return ggml_reshape_2d(b->ctx, o, width, n);
    }
    v = ggml_cont(b->ctx, ggml_permute(b->ctx, v, 1, 2, 0, 3));
    o = ggml_soft_max_ext(b->ctx, ggml_mul_mat(b->ctx, k, q), NULL, scale, 0.0f);
    o = ggml_permute(b->ctx, ggml_mul_mat(b->ctx, v, o), 0, 2, 1, 3);
    return ggml_cont_2d(b->ctx, o, width, n);
}

/* The windows of one size, from the patch `first` on; x [d, n_head, n]. */
static struct ggml_tensor *picture_window(struct picture_build *b, struct ggml_tensor *x,
                                          int64_t first, const struct picture_windows *windows)
{
    return ggml_view_4d(b->ctx, x, x->ne[0], x->ne[1], windows->patches, windows->count, x->nb[1],
                        x->nb[2], x->nb[2] * windows->patches, x->nb[2] * (size_t)first);
}

/* Windows of one size stand together, so that each size is one operation without a mask. */
static struct ggml_tensor *picture_attend_windows(struct picture_build *b, struct ggml_tensor *q,
                                                  struct ggml_tensor *k, struct ggml_tensor *v)
{
    struct ggml_tensor *all = NULL;
    int64_t first = 0;
    for (int i = 0; i < PICTURE_WINDOW_SIZES; i++) {
        const struct picture_windows *w = &b->windows[i];
        if (!w->count)
            continue;
        struct ggml_tensor *o =
            picture_attend(b, picture_window(b, q, first, w), picture_window(b, k, first, w),
                           picture_window(b, v, first, w));
        all = all ? ggml_concat(b->ctx, all, o, 1) : o;
        first += (int64_t)w->count * w->patches;
    }
    return all;
}

/* By line and column (Qwen2-VL, arXiv:2409.12191, 2.1). */
static struct ggml_tensor *picture_rotate(struct picture_build *b, struct ggml_tensor *x)
{
    const int quarter = (int)x->ne[0] / 4;
    int sections[4] = {quarter, quarter, quarter, quarter};
    if (!b->form->is_rotated)
        return x;
    return ggml_rope_multi(b->ctx, x, b->graph->turns, NULL, 2 * quarter, sections,
                           GGML_ROPE_TYPE_VISION, 32768, 10000, 1, 0, 1, 32, 1);
}

/* The `index`-th [n_embd, n] of x as heads: [d, n_head, n] */
static struct ggml_tensor *picture_heads(struct picture_build *b, struct ggml_tensor *x, int index)
{
    const int64_t n_head = b->form->n_head, dim = b->form->n_embd / n_head;
    const size_t head = (size_t)dim * sizeof(float);
    return ggml_view_3d(b->ctx, x, dim, n_head, b->n, head, x->nb[1],
                        (size_t)index * head * (size_t)n_head);
}

static struct ggml_tensor *picture_attention(struct picture_build *b, uint32_t block,
                                             struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->blocks[block], *heads[3];
    if (w[PROJECTOR_QKV_W]) {
        x = picture_linear(b, w[PROJECTOR_QKV_W], w[PROJECTOR_QKV_B], x);
        for (int i = 0; i < 3; i++)
            heads[i] = picture_heads(b, x, i);
    } else {
        for (int i = 0; i < 3; i++) {
            const int role = PROJECTOR_Q_W + 2 * i;
            heads[i] = picture_heads(b, picture_linear(b, w[role], w[role + 1], x), 0);
        }
    }
    heads[0] = picture_rotate(b, heads[0]);
    heads[1] = picture_rotate(b, heads[1]);
    const bool is_full = !b->form->full_every || (block + 1) % b->form->full_every == 0;
    x = is_full ? picture_attend(b, heads[0], heads[1], heads[2])
                : picture_attend_windows(b, heads[0], heads[1], heads[2]);
    return picture_linear(b, w[PROJECTOR_OUT_W], w[PROJECTOR_OUT_B], x);
}

static struct ggml_tensor *picture_activate(struct picture_build *b, struct ggml_tensor *x)
{
    switch (b->form->activation) {
    case PROJECTOR_GELU:
        return ggml_gelu(b->ctx, x);
    case PROJECTOR_GELU_QUICK:
        return ggml_gelu_quick(b->ctx, x);
    case PROJECTOR_SILU:
        return ggml_silu(b->ctx, x);
    }
    return x;
}

static struct ggml_tensor *picture_ffn(struct picture_build *b, struct ggml_tensor **w,
                                       struct ggml_tensor *x)
{
    struct ggml_tensor *y = picture_linear(b, w[PROJECTOR_UP_W], w[PROJECTOR_UP_B], x);
    if (w[PROJECTOR_GATE_W])
        y = ggml_mul(
            b->ctx,
            picture_activate(b, picture_linear(b, w[PROJECTOR_GATE_W], w[PROJECTOR_GATE_B], x)), y);
    else
        y = picture_activate(b, y);
    return picture_linear(b, w[PROJECTOR_DOWN_W], w[PROJECTOR_DOWN_B], y);
}

/* Two matrices with a GELU between them; x [n_embd x merge x merge, rows]. */
static struct ggml_tensor *picture_merge(struct picture_build *b,
                                         struct ggml_tensor *const first[2],
                                         struct ggml_tensor *const second[2], struct ggml_tensor *x)
{
    x = ggml_gelu(b->ctx, picture_linear(b, first[0], first[1], x));
    return picture_linear(b, second[0], second[1], x);
}

/* The patches of a row one behind the other. */
static struct ggml_tensor *picture_gather(struct picture_build *b, struct ggml_tensor *x)
{
    const int64_t merge = (int64_t)b->form->merge * b->form->merge;
    return ggml_reshape_2d(b->ctx, x, b->form->n_embd * merge, b->n / merge);
}

/* A part of the rows that some blocks give: "deepstack" (arXiv:2406.04334), as Qwen3-VL has it. */
static void picture_keep_deep(struct picture_build *b, struct ggml_tensor **w,
                              struct ggml_tensor *x)
{
    if (!w[PROJECTOR_DEEP_NORM_W])
        return;
    x = picture_norm(b, w[PROJECTOR_DEEP_NORM_W], w[PROJECTOR_DEEP_NORM_B], picture_gather(b, x));
    x = picture_merge(b, &w[PROJECTOR_DEEP_1_W], &w[PROJECTOR_DEEP_2_W], x);
    b->deep = b->deep ? ggml_concat(b->ctx, b->deep, x, 0) : x;
}

static struct ggml_tensor *picture_block(struct picture_build *b, uint32_t block,
                                         struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->blocks[block];
    struct ggml_tensor *y = picture_norm(b, w[PROJECTOR_NORM_1_W], w[PROJECTOR_NORM_1_B], x);
    x = ggml_add(b->ctx, picture_attention(b, block, y), x);
    y = picture_norm(b, w[PROJECTOR_NORM_2_W], w[PROJECTOR_NORM_2_B], x);
    x = ggml_add(b->ctx, x, picture_ffn(b, w, y));
    picture_keep_deep(b, w, x);
    return x;
}

/* ---- what comes out ------------------------------------------------------------------------- */

/* The mean of merge x merge patches: [n_embd, rows] */
static struct ggml_tensor *picture_pool(struct picture_build *b, struct ggml_tensor *x)
{
    const int merge = (int)b->form->merge;
    x = ggml_cont_4d(b->ctx, ggml_transpose(b->ctx, x), b->graph->grid.columns, b->graph->grid.rows,
                     b->form->n_embd, 1);
    x = ggml_pool_2d(b->ctx, x, GGML_OP_POOL_AVG, merge, merge, merge, merge, 0, 0);
    x = ggml_reshape_2d(b->ctx, x, x->ne[0] * x->ne[1], b->form->n_embd);
    return ggml_cont(b->ctx, ggml_transpose(b->ctx, x));
}

/* Gemma 3: the mean, normed, times a matrix that the file has turned. */
static struct ggml_tensor *picture_pooled(struct picture_build *b, struct ggml_tensor *x)
{
    x = ggml_rms_norm(b->ctx, picture_pool(b, x), b->form->epsilon);
    x = ggml_mul(b->ctx, x, picture_outside(b, PROJECTOR_SOFT_NORM_W));
    struct ggml_tensor *turned = picture_outside(b, PROJECTOR_INPUT_W);
    return ggml_mul_mat(b->ctx, ggml_cont(b->ctx, ggml_transpose(b->ctx, turned)), x);
}

static struct ggml_tensor *picture_outputs(struct picture_build *b, struct ggml_tensor *x)
{
    if (!picture_outside(b, PROJECTOR_MERGE_1_W))
        return picture_pooled(b, x);
    x = picture_merge(b, &b->source->outside[PROJECTOR_MERGE_1_W],
                      &b->source->outside[PROJECTOR_MERGE_2_W], picture_gather(b, x));
    return b->deep ? ggml_concat(b->ctx, x, b->deep, 0) : x;
}

/* ---- the whole ------------------------------------------------------------------------------ */

enum { PICTURE_NODES = 64, PICTURE_BLOCK_NODES = 128 };

size_t picture_graph_nodes(const struct projector_form *form)
{
    return PICTURE_NODES + (size_t)PICTURE_BLOCK_NODES * form->n_blocks;
}

static struct ggml_tensor *picture_input(struct picture_build *b, enum ggml_type type, int64_t ne0,
                                         int64_t ne1, const char *name)
{
    struct ggml_tensor *input = ggml_new_tensor_2d(b->ctx, type, ne0, ne1);
    ggml_set_input(input);
    ggml_set_name(input, name);
    return input;
}

static void picture_build_all(struct picture_build *b)
{
    const int64_t side = b->form->patch_size;
    struct picture_graph *graph = b->graph;
    graph->patches = picture_input(b, GGML_TYPE_F32, 3 * side * side, b->n, "patches");
    if (picture_outside(b, PROJECTOR_POSITIONS))
        graph->places = picture_input(b, GGML_TYPE_I32, b->n, 1, "places");
    if (b->form->is_rotated)
        graph->turns = picture_input(b, GGML_TYPE_I32, 4 * b->n, 1, "turns");
    picture_grid_windows(b->form, &graph->grid, b->windows);
    struct ggml_tensor *x = picture_inputs(b);
    for (uint32_t i = 0; i < b->form->n_blocks; i++)
        x = picture_block(b, i, x);
    if (picture_outside(b, PROJECTOR_POST_NORM_W))
        x = picture_norm(b, picture_outside(b, PROJECTOR_POST_NORM_W),
                         picture_outside(b, PROJECTOR_POST_NORM_B), x);
    graph->result = picture_outputs(b, x);
    ggml_set_output(graph->result);
    ggml_set_name(graph->result, "rows");
    ggml_build_forward_expand(graph->cgraph, graph->result);
}

enum error_code picture_graph_build(struct picture_graph *graph,
                                    const struct picture_graph_source *source,
                                    const struct picture_grid *grid, struct error *err)
{
    const size_t n_nodes = picture_graph_nodes(source->form);
    struct ggml_init_params params = {
        .mem_size = n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false),
        .no_alloc = true,
    };
    *graph = (struct picture_graph){.context = ggml_init(params), .grid = *grid};
    if (!graph->context)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the graph of a picture");
    graph->cgraph = ggml_new_graph_custom(graph->context, n_nodes, false);
    struct picture_build build = {.ctx = graph->context,
                                  .source = source,
                                  .form = source->form,
                                  .graph = graph,
                                  .n = picture_grid_patches(grid)};
    picture_build_all(&build);
    return ERROR_NONE;
}

void picture_graph_deinit(struct picture_graph *graph)
{
    ggml_free(graph->context);
    *graph = (struct picture_graph){0};
}
