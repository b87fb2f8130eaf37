/* Products of K-quants and grids with many rows on processors with AVX-VNNI: the arithmetic of
 * product.h, a block of eight rows of the matrix at a time, unpacked as with AVX2. Eight rows x are
 * multiplied together, so that a weight is loaded once for all of them and nothing waits for its
 * sum. */
#pragma once

#include "kernels/product_kernel.h"

#include <immintrin.h>

enum { QUAD_SIDE = 8, QUAD_FOUR = 4 };

struct quad_kind { /* of a type; constants where code is made for it */
    uint32_t step; /* groups that share a scale */
    bool has_dmin;
    int32_t bias; /* of weights without offsets */
};

ALWAYS_INLINE __m256i quad_spread(const void *from)
{
    int32_t four;
    memcpy(&four, from, sizeof four);
    return _mm256_set1_epi32(four);
}

/* What products of each group have too much. */
ALWAYS_INLINE void quad_prepare(const struct quad_kind *kind, const struct product_block *x,
                                int32_t excess[PRODUCT_GROUPS])
{
    const __m256i bias = _mm256_set1_epi32(-kind->bias);
    UNROLL for (uint32_t g = 0; g < PRODUCT_GROUPS; g += 8)
    {
        const __m128i sums = _mm_loadu_si128((const void *)(x->sums + g));
        store32(excess + g, _mm256_mullo_epi32(_mm256_cvtepi16_epi32(sums), bias));
    }
}

/* scale w q of all groups, and m sums of theirs where the type has offsets. */
ALWAYS_INLINE void quad_add_groups(const struct quad_kind *kind, uint32_t n,
                                   const struct sheaf *sheaf, const struct product_block *const *x,
                                   uint32_t b, __m256i *products)
{
    int32_t excess[QUAD_SIDE][PRODUCT_GROUPS];
    UNROLL for (uint32_t k = 0; k < n; k++)
    {
        products[k] = _mm256_setzero_si256();
        if (!kind->has_dmin)
            quad_prepare(kind, &x[k][b], excess[k]);
    }
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g += kind->step) {
        __m256i dot[QUAD_SIDE];
        UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
            _mm256_set1_epi32(kind->has_dmin    ? 0
                              : kind->step == 2 ? excess[k][g] + excess[k][g + 1]
                                                : excess[k][g]);
        UNROLL for (uint32_t i = 0; i < 4 * kind->step; i++)
        {
            const __m256i w = load32(sheaf->weights[4 * g + i][0]);
            UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
                _mm256_dpbusd_avx_epi32(dot[k], w, quad_spread(x[k][b].values + 16 * g + 4 * i));
        }
        const __m256i scale = _mm256_srai_epi32(load32((const void *)sheaf->scales[g]), 16);
        UNROLL for (uint32_t k = 0; k < n; k++) products[k] =
            _mm256_add_epi32(products[k], _mm256_mullo_epi32(dot[k], scale));
    }
}

ALWAYS_INLINE void quad_add_offsets(uint32_t n, const struct sheaf *sheaf,
                                    const struct product_block *const *x, uint32_t b,
                                    __m256i *offsets)
{
    UNROLL for (uint32_t k = 0; k < n; k++) offsets[k] = _mm256_setzero_si256();
    UNROLL for (uint32_t p = 0; p < PRODUCT_GROUPS / 2; p++)
    {
        const __m256i m = load32((const void *)sheaf->offsets[p]);
        UNROLL for (uint32_t k = 0; k < n; k++) offsets[k] =
            _mm256_dpwssd_avx_epi32(offsets[k], m, quad_spread(x[k][b].sums + 2 * p));
    }
}

/* A block times n <= QUAD_SIDE rows x, a constant. */
ALWAYS_INLINE void quad_multiply(const struct quad_kind *kind, uint32_t n,
                                 const struct sheaf *sheaf, const struct product_block *const *x,
                                 uint32_t b, float (*y)[PRODUCT_SHEAF_MAX])
{
    __m256i products[QUAD_SIDE], offsets[QUAD_SIDE];
    quad_add_groups(kind, n, sheaf, x, b, products);
    const row_floats d = *(const row_floats *)sheaf->d, dmin = *(const row_floats *)sheaf->dmin;
    UNROLL for (uint32_t k = 0; k < n; k++) * (row_floats *)y[k] +=
        d * x[k][b].scale * (row_floats)_mm256_cvtepi32_ps(products[k]);
    if (!kind->has_dmin)
        return;
    quad_add_offsets(n, sheaf, x, b, offsets);
    UNROLL for (uint32_t k = 0; k < n; k++) * (row_floats *)y[k] +=
        dmin * -x[k][b].scale * (row_floats)_mm256_cvtepi32_ps(offsets[k]);
}

/* For each type: eight rows x, four, and all, a multiple of four. */
#define QUAD_KIND(name, step, has_dmin, bias)                                                      \
    static const struct quad_kind quad_##name = {step, has_dmin, bias};                            \
    static __attribute__((noinline)) void quad_some_##name(                                        \
        const struct sheaf *sheaf, const struct product_block *const *x, uint32_t b,               \
        float(*y)[PRODUCT_SHEAF_MAX])                                                              \
    {                                                                                              \
        quad_multiply(&quad_##name, QUAD_SIDE, sheaf, x, b, y);                                    \
    }                                                                                              \
    static __attribute__((noinline)) void quad_four_##name(                                        \
        const struct sheaf *sheaf, const struct product_block *const *x, uint32_t b,               \
        float(*y)[PRODUCT_SHEAF_MAX])                                                              \
    {                                                                                              \
        quad_multiply(&quad_##name, QUAD_FOUR, sheaf, x, b, y);                                    \
    }                                                                                              \
    static void quad_rows_##name(const uint8_t *const *rows, uint32_t n_blocks,                    \
                                 const struct product_block *const *x, uint32_t n,                 \
                                 float(*y)[PRODUCT_SHEAF_MAX])                                     \
    {                                                                                              \
        memset(y, 0, n * sizeof *y);                                                               \
        for (uint32_t b = 0; b < n_blocks; b++) {                                                  \
            struct sheaf sheaf;                                                                    \
            uint32_t i = 0;                                                                        \
            unpack_sheaf(&name, rows, b, &sheaf);                                                  \
            fetch_sheaf(&name, rows, n_blocks, b);                                                 \
            for (; i + QUAD_SIDE <= n; i += QUAD_SIDE)                                             \
                quad_some_##name(&sheaf, x + i, b, y + i);                                         \
            if (i < n)                                                                             \
                quad_four_##name(&sheaf, x + i, b, y + i);                                         \
        }                                                                                          \
    }
QUAD_KIND(q2, 1, true, 0)
QUAD_KIND(q3, 1, false, 4)
QUAD_KIND(q4, 2, true, 0)
QUAD_KIND(q5, 2, true, 0)
QUAD_KIND(q6, 1, false, 32)
QUAD_KIND(grid_iq1s, 2, false, GRID_IQ1_BIAS)
QUAD_KIND(grid_iq1m, 1, false, GRID_IQ1_BIAS)
QUAD_KIND(grid_iq2xxs, 2, false, GRID_IQ2_BIAS)
QUAD_KIND(grid_iq2xs, 1, false, GRID_IQ2_BIAS)
QUAD_KIND(grid_iq2s, 1, false, GRID_IQ2_BIAS)
QUAD_KIND(grid_iq3xxs, 2, false, GRID_IQ3XXS_BIAS)
QUAD_KIND(grid_iq3s, 2, false, GRID_IQ3S_BIAS)

/* The last row x stands for what is missing of four. How many there are then. */
static uint32_t quad_fill(const struct product_block *const *x, uint32_t n,
                          const struct product_block *filled[PRODUCT_TILE])
{
    const uint32_t n_all = (n + QUAD_FOUR - 1) / QUAD_FOUR * QUAD_FOUR;
    for (uint32_t i = 0; i < n_all; i++)
        filled[i] = x[i < n ? i : n - 1];
    return n_all;
}

static void product_avx_vnni_sheaf(enum product_type type, const uint8_t *const *rows,
                                   uint32_t n_blocks, const struct product_block *const *x,
                                   uint32_t n, float (*y)[PRODUCT_SHEAF_MAX])
{
    const struct product_block *filled[PRODUCT_TILE];
    const uint32_t n_all = quad_fill(x, n, filled);
#define QUAD_CASE(name, form)                                                                      \
    if (type == PRODUCT_##name)                                                                    \
        quad_rows_##form(rows, n_blocks, filled, n_all, y);
    BLOCK_TYPES(QUAD_CASE)
#undef QUAD_CASE
}

static void product_avx_vnni_grid_sheaf(enum product_type type, const uint8_t *const *rows,
                                        uint32_t n_blocks, const struct product_block *const *x,
                                        uint32_t n, float (*y)[PRODUCT_SHEAF_MAX])
{
    const struct product_block *filled[PRODUCT_TILE];
    const uint32_t n_all = quad_fill(x, n, filled);
#define QUAD_CASE(type_name, name, n_bytes, bias, d)                                               \
    if (type == PRODUCT_##type_name)                                                               \
        quad_rows_grid_##name(rows, n_blocks, filled, n_all, y);
    GRID_TYPES(QUAD_CASE)
#undef QUAD_CASE
}
