/* Products of K-quants with many rows on ARM processors with I8MM: the arithmetic of product.h, a
 * block of eight rows of the matrix by four rows x at a time. Of types without offsets what weights
 * have too much is taken off them when they are unpacked: here they have a sign. */
#pragma once

#include "kernels/product_kernel.h"

enum { MATMUL_SIDE = 2 * MATMUL_PAIRS };

struct matmul_kind { /* of a type; constants where code is made for it */
    uint32_t step;   /* groups that share a scale */
    bool has_dmin;
    int8_t bias; /* of weights without offsets */
};

ALWAYS_INLINE void matmul_take_off(int8_t bias, struct sheaf *sheaf)
{
    int8_t *weights = (int8_t *)sheaf->weights;
    for (uint32_t i = 0; i < sizeof sheaf->weights; i += 16)
        vst1q_s8(weights + i, vsubq_s8(vld1q_s8(weights + i), vdupq_n_s8(bias)));
}

/* scale w q of all groups. */
ALWAYS_INLINE void matmul_add_groups(const struct matmul_kind *kind, const struct sheaf *sheaf,
                                     const struct product_block *const *x, uint32_t b,
                                     ints products[4][MATMUL_PAIRS])
{
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g += kind->step) {
        ints dot[4][MATMUL_PAIRS] = {0};
        UNROLL for (uint32_t i = 0; i < 2 * kind->step; i++) /* eight weights of each row */
        {
            const uint8_t *w = sheaf->weights[4 * g + 2 * i][0];
            int8x16_t q[MATMUL_PAIRS];
            UNROLL for (uint32_t k = 0; k < MATMUL_PAIRS; k++) q[k] =
                matmul_pair(x[2 * k][b].values, x[2 * k + 1][b].values, 16 * g + 8 * i);
            UNROLL for (uint32_t p = 0; p < 4; p++)
            {
                const int8x16_t weights = vreinterpretq_s8_u8(vld1q_u8(w + 16 * p));
                UNROLL for (uint32_t k = 0; k < MATMUL_PAIRS; k++) dot[p][k] =
                    vmmlaq_s32(dot[p][k], weights, q[k]);
            }
        }
        UNROLL for (uint32_t p = 0; p < 4; p++) /* each row's scale is there twice */
        {
            const ints scale = vmovl_s16(vld1_s16(sheaf->scales[g][2 * p]));
            UNROLL for (uint32_t k = 0; k < MATMUL_PAIRS; k++) products[p][k] =
                vmlaq_s32(products[p][k], dot[p][k], scale);
        }
    }
}

/* m sums of all groups. Offsets stand in pairs of rows, four of each. */
ALWAYS_INLINE row_ints matmul_offsets(const struct sheaf *sheaf, const struct product_block *x)
{
    ints all[8] = {0};
    row_ints out;
    UNROLL for (uint32_t g = 0; g < PRODUCT_GROUPS; g += 4)
    {
        const int16_t *pairs = sheaf->offsets[g / 2][0];
        const int16x4_t sums = vld1_s16(x->sums + g);
        UNROLL for (uint32_t p = 0; p < 4; p++)
        {
            const int16x8_t m = vld1q_s16(pairs + 8 * p);
            all[2 * p] = vmlal_s16(all[2 * p], vget_low_s16(m), sums);
            all[2 * p + 1] = vmlal_s16(all[2 * p + 1], vget_high_s16(m), sums);
        }
    }
    ints_add_up(all, &out);
    return out;
}

/* A block times MATMUL_SIDE rows x. */
ALWAYS_INLINE void matmul_multiply(const struct matmul_kind *kind, const struct sheaf *sheaf,
                                   const struct product_block *const *x, uint32_t b,
                                   float (*y)[PRODUCT_SHEAF_MAX])
{
    ints products[4][MATMUL_PAIRS] = {0};
    row_ints sums[MATMUL_SIDE] = {0};
    matmul_add_groups(kind, sheaf, x, b, products);
    UNROLL for (uint32_t k = 0; k < MATMUL_PAIRS; k++) matmul_add(products, k, &sums[2 * k]);
    UNROLL for (uint32_t k = 0; k < MATMUL_SIDE; k++)
    {
        row_floats *to = (row_floats *)y[k];
        *to += *(const row_floats *)sheaf->d * x[k][b].scale *
               __builtin_convertvector(sums[k], row_floats);
        if (kind->has_dmin)
            *to += *(const row_floats *)sheaf->dmin * -x[k][b].scale *
                   __builtin_convertvector(matmul_offsets(sheaf, &x[k][b]), row_floats);
    }
}

/* For each type: all rows x, a multiple of MATMUL_SIDE. */
#define MATMUL_KIND(name, ...)                                                                     \
    static const struct matmul_kind matmul_##name = {__VA_ARGS__};                                 \
    static void matmul_rows_##name(const uint8_t *const *rows, uint32_t n_blocks,                  \
                                   const struct product_block *const *x, uint32_t n,               \
                                   float(*y)[PRODUCT_SHEAF_MAX])                                   \
    {                                                                                              \
        memset(y, 0, n * sizeof *y);                                                               \
        for (uint32_t b = 0; b < n_blocks; b++) {                                                  \
            struct sheaf sheaf;                                                                    \
            unpack_sheaf(&name, rows, b, &sheaf);                                                  \
            if (matmul_##name.bias)                                                                \
                matmul_take_off(matmul_##name.bias, &sheaf);                                       \
            fetch_sheaf(&name, rows, n_blocks, b);                                                 \
            for (uint32_t i = 0; i < n; i += MATMUL_SIDE)                                          \
                matmul_multiply(&matmul_##name, &sheaf, x + i, b, y + i);                          \
        }                                                                                          \
    }
MATMUL_KIND(q2, .step = 1, .has_dmin = true)
MATMUL_KIND(q3, .step = 1, .bias = 4)
MATMUL_KIND(q4, .step = 2, .has_dmin = true)
MATMUL_KIND(q5, .step = 2, .has_dmin = true)
MATMUL_KIND(q6, .step = 1, .bias = 32)

/* The last row x stands for what is missing of four. */
static void product_i8mm_sheaf(enum product_type type, const uint8_t *const *rows,
                               uint32_t n_blocks, const struct product_block *const *x, uint32_t n,
                               float (*y)[PRODUCT_SHEAF_MAX])
{
    const struct product_block *filled[PRODUCT_TILE];
    const uint32_t n_all = (n + MATMUL_SIDE - 1) / MATMUL_SIDE * MATMUL_SIDE;
    for (uint32_t i = 0; i < n_all; i++)
        filled[i] = x[i < n ? i : n - 1];
#define MATMUL_CASE(name, form)                                                                    \
    if (type == PRODUCT_##name)                                                                    \
        matmul_rows_##form(rows, n_blocks, filled, n_all, y);
    BLOCK_TYPES(MATMUL_CASE)
#undef MATMUL_CASE
}
