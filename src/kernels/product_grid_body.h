/* The arithmetic of product.h for grid types, by the bodies of product_kernel_body.h, which is
 * included before. Weights have no sign there: a bias is added, and offsets take it off. */
#pragma once

#include "kernels/product_grid.h"

/* ---- d, such that scales and weights are integers ---- */

ALWAYS_INLINE float grid_d_whole(const uint8_t *block)
{
    return half(block);
}

ALWAYS_INLINE float grid_d_quarter(const uint8_t *block)
{
    return half(block) / 4;
}

ALWAYS_INLINE float grid_d_eighth(const uint8_t *block)
{
    return half(block) / 8;
}

/* Four bits of it above each four scales. */
ALWAYS_INLINE float grid_d_iq1m(const uint8_t *block)
{
    const uint32_t bits = (uint32_t)block[49] >> 4 | (block[51] & 0xf0u) |
                          (block[53] & 0xf0u) << 4 | (block[55] & 0xf0u) << 8;
    const uint8_t d[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
    return half(d) / 8;
}

/* ---- blocks ---- */

ALWAYS_INLINE uint64_t grid_signed(uint64_t entry, uint8_t signs, uint32_t bias)
{
    return entry + bias * GRID_ONES - (entry << 1 & product_grids.signs[signs]);
}

ALWAYS_INLINE void grid_spread_scales(struct grid_scales scales, uint32_t bias,
                                      struct unpacked *out)
{
    UNROLL for (uint32_t g = 0; g < PRODUCT_GROUPS; g++)
    {
        const uint64_t scale = scales.of[g / 8] >> 8 * (g % 8) & 255;
        const uint64_t each = scale * UINT64_C(0x0001000100010001);
        memcpy(out->scales + 8 * g, &each, sizeof each);
        memcpy(out->scales + 8 * g + 4, &each, sizeof each);
        out->offsets[g] = (int16_t)(bias * scale);
    }
}

/* weights: PRODUCT_BLOCK of them, and the bias. */
#define GRID_WEIGHTS_SIGNED(name, bias)                                                            \
    ALWAYS_INLINE void grid_weights_##name(const uint8_t *block, uint8_t *weights)                 \
    {                                                                                              \
        for (uint32_t i = 0; i < PRODUCT_BLOCK / 8; i++)                                           \
            grid_write64(weights + 8 * i, grid_signed(grid_entry_##name(block, i),                 \
                                                      grid_signs_##name(block, i), bias));         \
    }
#define GRID_WEIGHTS(name)                                                                         \
    ALWAYS_INLINE void grid_weights_##name(const uint8_t *block, uint8_t *weights)                 \
    {                                                                                              \
        for (uint32_t i = 0; i < PRODUCT_BLOCK / 8; i++)                                           \
            grid_write64(weights + 8 * i, grid_entry_##name(block, i));                            \
    }
GRID_WEIGHTS(iq1s)
GRID_WEIGHTS(iq1m)
GRID_WEIGHTS_SIGNED(iq2xxs, GRID_IQ2_BIAS)
GRID_WEIGHTS_SIGNED(iq2xs, GRID_IQ2_BIAS)
GRID_WEIGHTS_SIGNED(iq2s, GRID_IQ2_BIAS)
GRID_WEIGHTS_SIGNED(iq3xxs, GRID_IQ3XXS_BIAS)
GRID_WEIGHTS_SIGNED(iq3s, GRID_IQ3S_BIAS)

/* ---- for each type ---- */

/* CASE(type, name, bytes of a block, bias, d) for each. */
#define GRID_TYPES(CASE)                                                                           \
    CASE(IQ1_S, iq1s, 50, GRID_IQ1_BIAS, grid_d_eighth)                                            \
    CASE(IQ1_M, iq1m, 56, GRID_IQ1_BIAS, grid_d_iq1m)                                              \
    CASE(IQ2_XXS, iq2xxs, 66, GRID_IQ2_BIAS, grid_d_eighth)                                        \
    CASE(IQ2_XS, iq2xs, 74, GRID_IQ2_BIAS, grid_d_eighth)                                          \
    CASE(IQ2_S, iq2s, 82, GRID_IQ2_BIAS, grid_d_eighth)                                            \
    CASE(IQ3_XXS, iq3xxs, 98, GRID_IQ3XXS_BIAS, grid_d_quarter)                                    \
    CASE(IQ3_S, iq3s, 110, GRID_IQ3S_BIAS, grid_d_whole)

#if !defined(PRODUCT_OWN_BODIES)
#define GRID_FORM(type, name, n_bytes, bias, d)                                                    \
    ALWAYS_INLINE void grid_unpack_##name(const uint8_t *block, struct unpacked *out)              \
    {                                                                                              \
        grid_weights_##name(block, out->weights);                                                  \
        grid_spread_scales(grid_scales_##name(block), bias, out);                                  \
    }                                                                                              \
    static const struct form grid_##name = {n_bytes,    0, 0, false, false, grid_unpack_##name, d, \
                                            (bias) > 16};
GRID_TYPES(GRID_FORM)

static void grid_kernel_row(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                            uint32_t n_blocks, const struct product_block *x, float *y)
{
#define GRID_CASE(type_name, name, n_bytes, bias, d)                                               \
    for (uint32_t c = 0; type == PRODUCT_##type_name && c < n_rows; c++)                           \
        y[c] = multiply_row(&grid_##name, rows[c], n_blocks, x);
    GRID_TYPES(GRID_CASE)
#undef GRID_CASE
}

static void grid_kernel_sheaf(enum product_type type, const uint8_t *const *rows, uint32_t n_blocks,
                              const struct product_block *const *x, uint32_t n,
                              float (*y)[PRODUCT_SHEAF_MAX])
{
#define GRID_CASE(type_name, name, n_bytes, bias, d)                                               \
    if (type == PRODUCT_##type_name)                                                               \
        multiply_rows(&grid_##name, rows, n_blocks, x, n, y);
    GRID_TYPES(GRID_CASE)
#undef GRID_CASE
}
#endif
