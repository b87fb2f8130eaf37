#include "engine/picture_graph.h"

#include <math.h>

struct picture_build {
    struct ggml_context *ctx;
    const struct picture_graph_source *source;
    const struct projector_form *form;
    struct picture_graph *graph;
    int64_t n; /* patches */
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
    x = ggml_mul(b->ctx, ggml_norm(b->ctx, x, b->form->epsilon), weight);
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

/* [n_embd, n] */
static struct ggml_tensor *picture_inputs(struct picture_build *b)
{
    struct ggml_tensor *x = picture_embed(b, PROJECTOR_PATCHES);
    if (picture_outside(b, PROJECTOR_PATCHES_B))
        x = ggml_add(b->ctx, x, picture_outside(b, PROJECTOR_PATCHES_B));
    return ggml_add(
        b->ctx, x,
        ggml_get_rows(b->ctx, picture_outside(b, PROJECTOR_POSITIONS), b->graph->places));
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* q, k, v: [d, n_head, n]; all patches see one another. [n_embd, n] */
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

static struct ggml_tensor *picture_heads(struct picture_build *b, struct ggml_tensor *x)
{
    return ggml_reshape_3d(b->ctx, x, b->form->n_embd / b->form->n_head, b->form->n_head, b->n);
}

static struct ggml_tensor *picture_attention(struct picture_build *b, struct ggml_tensor **w,
                                             struct ggml_tensor *x)
{
    struct ggml_tensor *q = picture_linear(b, w[PROJECTOR_Q_W], w[PROJECTOR_Q_B], x);
    struct ggml_tensor *k = picture_linear(b, w[PROJECTOR_K_W], w[PROJECTOR_K_B], x);
    struct ggml_tensor *v = picture_linear(b, w[PROJECTOR_V_W], w[PROJECTOR_V_B], x);
    x = picture_attend(b, picture_heads(b, q), picture_heads(b, k), picture_heads(b, v));
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
    x = picture_activate(b, picture_linear(b, w[PROJECTOR_UP_W], w[PROJECTOR_UP_B], x));
    return picture_linear(b, w[PROJECTOR_DOWN_W], w[PROJECTOR_DOWN_B], x);
}

static struct ggml_tensor *picture_block(struct picture_build *b, uint32_t block,
                                         struct ggml_tensor *x)
{
    struct ggml_tensor **w = b->source->blocks[block];
    struct ggml_tensor *y = picture_norm(b, w[PROJECTOR_NORM_1_W], w[PROJECTOR_NORM_1_B], x);
    x = ggml_add(b->ctx, picture_attention(b, w, y), x);
    y = picture_norm(b, w[PROJECTOR_NORM_2_W], w[PROJECTOR_NORM_2_B], x);
    return ggml_add(b->ctx, x, picture_ffn(b, w, y));
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
static struct ggml_tensor *picture_outputs(struct picture_build *b, struct ggml_tensor *x)
{
    x = ggml_rms_norm(b->ctx, picture_pool(b, x), b->form->epsilon);
    x = ggml_mul(b->ctx, x, picture_outside(b, PROJECTOR_SOFT_NORM_W));
    struct ggml_tensor *turned = picture_outside(b, PROJECTOR_INPUT_W);
    return ggml_mul_mat(b->ctx, ggml_cont(b->ctx, ggml_transpose(b->ctx, turned)), x);
}

/* ---- the whole ------------------------------------------------------------------------------ */

enum { PICTURE_NODES = 64, PICTURE_BLOCK_NODES = 64 };

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
    graph->places = picture_input(b, GGML_TYPE_I32, b->n, 1, "places");
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
    struct picture_build build = {graph->context, source, source->form, graph,
                                  picture_grid_patches(grid)};
    picture_build_all(&build);
    return ERROR_NONE;
}

void picture_graph_deinit(struct picture_graph *graph)
{
    ggml_free(graph->context);
    *graph = (struct picture_graph){0};
}
