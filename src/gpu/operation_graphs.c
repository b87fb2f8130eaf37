#include "gpu/operation_graphs.h"

#include <math.h>
#include <stddef.h>

enum { WIDTH = 256, ROWS = 48, COLUMNS = 7, HEAD = 64, HEADS = 4, CELLS = 32, EXPERTS = 4 };

static struct ggml_tensor *graph_f32(struct ggml_context *ctx)
{
    return ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, COLUMNS); /* [width, columns] */
}

/* ---- matrices in every type ---------------------------------------------------------------- */

static struct ggml_tensor *graph_product(struct ggml_context *ctx, enum ggml_type type)
{
    return ggml_mul_mat(ctx, ggml_new_tensor_2d(ctx, type, WIDTH, ROWS), graph_f32(ctx));
}

static struct ggml_tensor *graph_product_of_one(struct ggml_context *ctx, enum ggml_type type)
{
    return ggml_mul_mat(ctx, ggml_new_tensor_2d(ctx, type, WIDTH, ROWS),
                        ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, 1));
}

static struct ggml_tensor *graph_product_of_experts(struct ggml_context *ctx, enum ggml_type type)
{
    return ggml_mul_mat_id(ctx, ggml_new_tensor_3d(ctx, type, WIDTH, ROWS, EXPERTS),
                           ggml_new_tensor_3d(ctx, GGML_TYPE_F32, WIDTH, 1, COLUMNS),
                           ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, COLUMNS));
}

static struct ggml_tensor *graph_rows(struct ggml_context *ctx, enum ggml_type type)
{
    return ggml_get_rows(ctx, ggml_new_tensor_2d(ctx, type, WIDTH, ROWS),
                         ggml_new_tensor_1d(ctx, GGML_TYPE_I32, COLUMNS));
}

/* ---- all others ---------------------------------------------------------------------------- */

#define GRAPH_OF_ONE(name)                                                                         \
    static struct ggml_tensor *graph_##name(struct ggml_context *ctx, enum ggml_type type)         \
    {                                                                                              \
        (void)type;                                                                                \
        return ggml_##name(ctx, graph_f32(ctx));                                                   \
    }
#define GRAPH_OF_TWO(name)                                                                         \
    static struct ggml_tensor *graph_##name(struct ggml_context *ctx, enum ggml_type type)         \
    {                                                                                              \
        (void)type;                                                                                \
        return ggml_##name(ctx, graph_f32(ctx), graph_f32(ctx));                                   \
    }
GRAPH_OF_ONE(sigmoid)
GRAPH_OF_ONE(silu)
GRAPH_OF_ONE(relu)
GRAPH_OF_ONE(tanh)
GRAPH_OF_ONE(gelu)
GRAPH_OF_ONE(softplus)
GRAPH_OF_ONE(sqr)
GRAPH_OF_ONE(swiglu)
GRAPH_OF_TWO(add)
GRAPH_OF_TWO(mul)
GRAPH_OF_TWO(swiglu_split)
GRAPH_OF_TWO(geglu_split)
GRAPH_OF_TWO(geglu_erf_split)

static struct ggml_tensor *graph_sqrt(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_sqrt(ctx, ggml_sqr(ctx, graph_f32(ctx)));
}

static struct ggml_tensor *graph_scale(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_scale(ctx, graph_f32(ctx), 0.37f);
}

static struct ggml_tensor *graph_clamp(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_clamp(ctx, graph_f32(ctx), -0.5f, 0.5f);
}

static struct ggml_tensor *graph_rms_norm(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_rms_norm(ctx, graph_f32(ctx), 1e-5f);
}

static struct ggml_tensor *graph_norm(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_norm(ctx, graph_f32(ctx), 1e-5f);
}

static struct ggml_tensor *graph_l2_norm(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_l2_norm(ctx, graph_f32(ctx), 1e-5f);
}

static struct ggml_tensor *graph_soft_max(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_soft_max_ext(ctx, graph_f32(ctx), graph_f32(ctx), 0.5f, 0.0f);
}

static struct ggml_tensor *graph_argsort(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_argsort(ctx, graph_f32(ctx), GGML_SORT_ORDER_DESC);
}

static struct ggml_tensor *graph_rope_as(struct ggml_context *ctx, int mode)
{
    return ggml_rope_ext(ctx, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, HEAD, HEADS, COLUMNS),
                         ggml_new_tensor_1d(ctx, GGML_TYPE_I32, COLUMNS), NULL, HEAD, mode, 4096,
                         10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
}

static struct ggml_tensor *graph_rope(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return graph_rope_as(ctx, GGML_ROPE_TYPE_NORMAL);
}

static struct ggml_tensor *graph_rope_neox(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return graph_rope_as(ctx, GGML_ROPE_TYPE_NEOX);
}

static struct ggml_tensor *graph_attention(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_flash_attn_ext(
        ctx, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, HEAD, COLUMNS, HEADS), /* queries */
        ggml_new_tensor_3d(ctx, GGML_TYPE_F16, HEAD, CELLS, HEADS),        /* keys */
        ggml_new_tensor_3d(ctx, GGML_TYPE_F16, HEAD, CELLS, HEADS),        /* values */
        ggml_new_tensor_2d(ctx, GGML_TYPE_F16, CELLS, COLUMNS), 1.0f / sqrtf(HEAD), 0.0f, 0.0f);
}

static struct ggml_tensor *graph_concat(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_concat(ctx, graph_f32(ctx), graph_f32(ctx), 0);
}

static struct ggml_tensor *graph_repeat(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_repeat_4d(ctx, graph_f32(ctx), WIDTH, COLUMNS, 3, 2);
}

static struct ggml_tensor *graph_cont(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_cont(ctx, ggml_transpose(ctx, graph_f32(ctx)));
}

static struct ggml_tensor *graph_cpy(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    struct ggml_tensor *halves = ggml_cast(ctx, graph_f32(ctx), GGML_TYPE_F16);
    return ggml_cast(ctx, halves, GGML_TYPE_F32);
}

static struct ggml_tensor *graph_pad(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_pad(ctx, graph_f32(ctx), 0, 3, 0, 0);
}

static struct ggml_tensor *graph_ssm_conv(struct ggml_context *ctx, enum ggml_type type)
{
    (void)type;
    return ggml_ssm_conv(ctx, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 4 - 1 + COLUMNS, WIDTH, 1),
                         ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, WIDTH));
}

#define PRODUCT_ERROR 1e-3
#define OTHER_ERROR 1e-5

static const struct operation_graph graphs[] = {
    {graph_product, PRODUCT_ERROR, true, true},
    {graph_product_of_one, PRODUCT_ERROR, true, false},
    {graph_product_of_experts, PRODUCT_ERROR, true, true},
    {graph_rows, OTHER_ERROR, true, false},
    {graph_attention, PRODUCT_ERROR, false, true},
    {graph_soft_max, OTHER_ERROR, false, false},
    {graph_rope, OTHER_ERROR, false, false},
    {graph_rope_neox, OTHER_ERROR, false, false},
    {graph_rms_norm, OTHER_ERROR, false, false},
    {graph_norm, OTHER_ERROR, false, false},
    {graph_l2_norm, OTHER_ERROR, false, false},
    {graph_add, OTHER_ERROR, false, false},
    {graph_mul, OTHER_ERROR, false, false},
    {graph_scale, OTHER_ERROR, false, false},
    {graph_clamp, OTHER_ERROR, false, false},
    {graph_sqr, OTHER_ERROR, false, false},
    {graph_sqrt, OTHER_ERROR, false, false},
    {graph_sigmoid, OTHER_ERROR, false, false},
    {graph_silu, OTHER_ERROR, false, false},
    {graph_relu, OTHER_ERROR, false, false},
    {graph_tanh, OTHER_ERROR, false, false},
    {graph_gelu, OTHER_ERROR, false, false},
    {graph_softplus, OTHER_ERROR, false, false},
    {graph_swiglu, OTHER_ERROR, false, false},
    {graph_swiglu_split, OTHER_ERROR, false, false},
    {graph_geglu_split, OTHER_ERROR, false, false},
    {graph_geglu_erf_split, OTHER_ERROR, false, false},
    {graph_argsort, 0, false, false},
    {graph_concat, OTHER_ERROR, false, false},
    {graph_repeat, OTHER_ERROR, false, false},
    {graph_cont, OTHER_ERROR, false, false},
    {graph_cpy, OTHER_ERROR, false, false},
    {graph_pad, OTHER_ERROR, false, false},
    {graph_ssm_conv, OTHER_ERROR, false, false},
};

uint32_t operation_graph_count(void)
{
    return sizeof graphs / sizeof *graphs;
}

const struct operation_graph *operation_graph_at(uint32_t index)
{
    return &graphs[index];
}
