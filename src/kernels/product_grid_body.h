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

#if defined(__AVX2__)
/* 32 weights at a time: what is stored by eights cannot be loaded by vectors until it is in the
 * cache. */
ALWAYS_INLINE void grid_put(uint8_t *weights, const uint64_t entries[4], const uint8_t signs[4],
                            uint32_t bias)
{
    const uint64_t *const bytes = product_grids.signs;
    __m256i all = _mm256_set_epi64x((long long)entries[3], (long long)entries[2],
                                    (long long)entries[1], (long long)entries[0]);
    if (bias) {
        const __m256i is_less =
            _mm256_set_epi64x((long long)bytes[signs[3]], (long long)bytes[signs[2]],
                              (long long)bytes[signs[1]], (long long)bytes[signs[0]]);
        all = _mm256_sub_epi8(_mm256_add_epi8(all, _mm256_set1_epi8((char)bias)),
                              _mm256_and_si256(_mm256_add_epi8(all, all), is_less));
    }
    store32(weights, all);
}

ALWAYS_INLINE void grid_spread_scales(struct grid_scales scales, uint32_t bias,
                                      struct unpacked *out)
{
    const __m128i bytes = _mm_set_epi64x((long long)scales.of[1], (long long)scales.of[0]);
    spread_scales(_mm256_cvtepu8_epi16(even_then_odd(bytes)), out->scales);
    store32(out->offsets,
            _mm256_mullo_epi16(_mm256_cvtepu8_epi16(bytes), _mm256_set1_epi16((short)bias)));
}
#else
ALWAYS_INLINE void grid_put(uint8_t *weights, const uint64_t entries[4], const uint8_t signs[4],
                            uint32_t bias)
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t less = bias ? entries[i] << 1 & product_grids.signs[signs[i]] : 0;
        const uint64_t all = entries[i] + bias * GRID_ONES - less;
        memcpy(weights + 8 * i, &all, sizeof all);
    }
}

ALWAYS_INLINE void grid_spread_scales(struct grid_scales scales, uint32_t bias,
                                      struct unpacked *out)
{
    int16_t of[PRODUCT_GROUPS];
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) {
        of[g] = (int16_t)(scales.of[g / 8] >> 8 * (g % 8) & 255);
        out->offsets[g] = (int16_t)((int32_t)bias * of[g]);
    }
    spread_scales(of, out);
}
#endif

/* weights: PRODUCT_BLOCK of them, and the bias. */
#define GRID_WEIGHTS_SIGNED(name, bias)                                                            \
    ALWAYS_INLINE void grid_weights_##name(const uint8_t *block, uint8_t *weights)                 \
    {                                                                                              \
        UNROLL for (uint32_t i = 0; i < PRODUCT_BLOCK / 8; i += 4)                                 \
        {                                                                                          \
            uint64_t entries[4];                                                                   \
            uint8_t signs[4];                                                                      \
            UNROLL for (uint32_t k = 0; k < 4; k++)                                                \
            {                                                                                      \
                entries[k] = grid_entry_##name(block, i + k);                                      \
                signs[k] = grid_signs_##name(block, i + k);                                        \
            }                                                                                      \
            grid_put(weights + 8 * i, entries, signs, bias);                                       \
        }                                                                                          \
    }
#define GRID_WEIGHTS(name)                                                                         \
    ALWAYS_INLINE void grid_weights_##name(const uint8_t *block, uint8_t *weights)                 \
    {                                                                                              \
        UNROLL for (uint32_t i = 0; i < PRODUCT_BLOCK / 8; i += 4)                                 \
        {                                                                                          \
            uint64_t entries[4];                                                                   \
            UNROLL for (uint32_t k = 0; k < 4; k++) entries[k] = grid_entry_##name(block, i + k);  \
            grid_put(weights + 8 * i, entries, NULL, 0);                                           \
        }                                                                                          \
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

#if !defined(__AVX2__)
static void grid_kernel_row(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                            uint32_t n_blocks, const struct product_block *x, float *y)
{
#define GRID_CASE(type_name, name, n_bytes, bias, d)                                               \
    for (uint32_t c = 0; type == PRODUCT_##type_name && c < n_rows; c++)                           \
        y[c] = multiply_row(&grid_##name, rows[c], n_blocks, x);
    GRID_TYPES(GRID_CASE)
#undef GRID_CASE
}
#endif

#if !defined(PRODUCT_OWN_SHEAF)
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
#endif
