/* Products of grid types on processors with AVX-512 VNNI: the arithmetic of product.h.
 *
 * One row: 64 weights are a vector of eight (or sixteen) entries of the grid. Their signs are the
 * bits of a mask, by which values of x change theirs. Many rows: sixteen rows' blocks are unpacked
 * one by one, turned, and multiplied as product_sheaf_vnni.h does. */
#pragma once

#include "kernels/product_grid_body.h"
#include "kernels/product_row_vnni.h"
#include "kernels/product_sheaf_vnni.h"

struct grid_row {
    uint32_t bytes;
    float (*d)(const uint8_t *block);
    __m512i (*multiply)(const uint8_t *block, const struct product_block *x); /* sum by sum */
};

/* ---- scales of the groups, 16 bits each ---- */

ALWAYS_INLINE __m256i grid_groups(struct grid_scales scales)
{
    return _mm256_cvtepu8_epi16(_mm_set_epi64x((long long)scales.of[1], (long long)scales.of[0]));
}

/* Of eight numbers, each for two groups. */
ALWAYS_INLINE __m256i grid_groups_twice(__m256i numbers)
{
    const __m256i odd = _mm256_add_epi32(_mm256_add_epi32(numbers, numbers), _mm256_set1_epi32(1));
    return _mm256_or_si256(odd, _mm256_slli_epi32(odd, 16));
}

ALWAYS_INLINE __m256i grid_groups_iq2xxs(const uint8_t *block)
{
    const __m512i all = _mm512_loadu_si512(block + 2);
    return grid_groups_twice(_mm512_cvtepi64_epi32(_mm512_srli_epi64(all, 60)));
}

ALWAYS_INLINE __m256i grid_groups_iq3xxs(const uint8_t *block)
{
    const __m256i all = _mm256_loadu_si256((const void *)(block + 66));
    return grid_groups_twice(_mm256_srli_epi32(all, 28));
}

ALWAYS_INLINE __m256i grid_groups_iq1s(const uint8_t *block)
{
    const __m256i all = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(block + 34)));
    return grid_groups_twice(_mm256_and_si256(_mm256_srli_epi32(all, 12), _mm256_set1_epi32(7)));
}

ALWAYS_INLINE __m256i grid_groups_iq1m(const uint8_t *block)
{
    const __m256i all = _mm256_cvtepu16_epi64(_mm_loadl_epi64((const void *)(block + 48)));
    const __m256i two = _mm256_or_si256(all, _mm256_slli_epi64(all, 32)),
                  four = _mm256_or_si256(two, _mm256_slli_epi32(two, 16));
    const __m256i numbers =
        _mm256_and_si256(_mm256_srlv_epi16(four, _mm256_set1_epi64x(INT64_C(0x0009000600030000))),
                         _mm256_set1_epi16(7));
    return _mm256_add_epi16(_mm256_add_epi16(numbers, numbers), _mm256_set1_epi16(1));
}

#define GRID_GROUPS(name)                                                                          \
    ALWAYS_INLINE __m256i grid_groups_##name(const uint8_t *block)                                 \
    {                                                                                              \
        return grid_groups(grid_scales_##name(block));                                             \
    }
GRID_GROUPS(iq2xs)
GRID_GROUPS(iq2s)
GRID_GROUPS(iq3s)

/* ---- weights 64 j to 64 j + 63: eight entries of eight bytes, or sixteen of four ---- */

ALWAYS_INLINE __m512i grid_gather(const uint64_t *grid, __m256i index)
{
    return _mm512_i32gather_epi64(index, grid, 8);
}

/* Eight bytes, and as many times `mask` of what stands above them from `shift` on. */
ALWAYS_INLINE __m256i grid_index(uint64_t low, __m256i high, __m256i shift, int mask)
{
    const __m256i above = _mm256_and_si256(_mm256_srlv_epi32(high, shift), _mm256_set1_epi32(mask));
    return _mm256_or_si256(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)low)),
                           _mm256_slli_epi32(above, 8));
}

ALWAYS_INLINE __m512i grid_weights64_iq1s(const uint8_t *block, uint32_t j)
{
    const uint32_t a = grid_read16(block + 34 + 4 * j), b = grid_read16(block + 36 + 4 * j);
    const __m256i high = _mm256_setr_m128i(_mm_set1_epi32((int)a), _mm_set1_epi32((int)b));
    const __m256i index = grid_index(grid_read64(block + 2 + 8 * j), high,
                                     _mm256_setr_epi32(0, 3, 6, 9, 0, 3, 6, 9), 7);
    const long long x = (long long)grid_delta(a >> 15), y = (long long)grid_delta(b >> 15);
    return _mm512_add_epi8(grid_gather(product_grids.iq1, index),
                           _mm512_set_epi64(y, y, y, y, x, x, x, x));
}

ALWAYS_INLINE __m512i grid_weights64_iq1m(const uint8_t *block, uint32_t j)
{
    const __m256i high = _mm256_set1_epi32((int)grid_read32(block + 32 + 4 * j)),
                  shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i index = grid_index(grid_read64(block + 8 * j), high, shift, 7);
    const __m256i is_less = _mm256_srlv_epi32(high, shift);
    const __mmask8 is_more = (__mmask8)~_mm256_test_epi32_mask(is_less, _mm256_set1_epi32(8));
    const __m512i entries = grid_gather(product_grids.iq1, index);
    return _mm512_mask_add_epi64(entries, is_more, entries, _mm512_set1_epi8(2));
}

ALWAYS_INLINE __m512i grid_weights64_iq2xxs(const uint8_t *block, uint32_t j)
{
    const uint64_t low =
        grid_read32(block + 2 + 16 * j) | (uint64_t)grid_read32(block + 10 + 16 * j) << 32;
    return grid_gather(product_grids.iq2xxs,
                       _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)low)));
}

ALWAYS_INLINE __m512i grid_weights64_iq2xs(const uint8_t *block, uint32_t j)
{
    const __m128i all = _mm_loadu_si128((const void *)(block + 2 + 16 * j));
    return grid_gather(product_grids.iq2xs,
                       _mm256_cvtepu16_epi32(_mm_and_si128(all, _mm_set1_epi16(511))));
}

ALWAYS_INLINE __m512i grid_weights64_iq2s(const uint8_t *block, uint32_t j)
{
    const __m256i high = _mm256_set1_epi32((int)grid_read16(block + 66 + 2 * j));
    return grid_gather(product_grids.iq2s,
                       grid_index(grid_read64(block + 2 + 8 * j), high,
                                  _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), 3));
}

ALWAYS_INLINE __m512i grid_weights64_iq3xxs(const uint8_t *block, uint32_t j)
{
    const __m128i low = _mm_loadu_si128((const void *)(block + 2 + 16 * j));
    return _mm512_i32gather_epi32(_mm512_cvtepu8_epi32(low), product_grids.iq3xxs, 4);
}

ALWAYS_INLINE __m512i grid_weights64_iq3s(const uint8_t *block, uint32_t j)
{
    const __m512i low = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(block + 2 + 16 * j)));
    const __m512i index = _mm512_mask_add_epi32(low, (__mmask16)grid_read16(block + 66 + 2 * j),
                                                low, _mm512_set1_epi32(256));
    return _mm512_i32gather_epi32(index, product_grids.iq3s, 4);
}

/* ---- a block times x ---- */

/* Their signs, a bit each. Of eight the last makes the number of those that are set even. */
ALWAYS_INLINE uint64_t grid_even_signs(uint64_t sevens)
{
    uint64_t parity = sevens ^ (sevens >> 4 & 15 * GRID_ONES);
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return sevens | (parity & GRID_ONES) << 7;
}

/* Four times seven bits at `first`, and as many at `second`: a byte for each. */
ALWAYS_INLINE uint64_t grid_sevens(const uint8_t *first, const uint8_t *second)
{
    const uint64_t all = grid_read32(first) | (uint64_t)grid_read32(second) << 32;
    const uint64_t twos =
        (all & UINT64_C(0x00003fff00003fff)) | (all & UINT64_C(0x0fffc0000fffc000)) << 2;
    return (twos & UINT64_C(0x007f007f007f007f)) | (twos & UINT64_C(0x3f803f803f803f80)) << 1;
}

ALWAYS_INLINE uint64_t grid_signs64_iq2xxs(const uint8_t *block, uint32_t j)
{
    return grid_even_signs(grid_sevens(block + 6 + 16 * j, block + 14 + 16 * j));
}

ALWAYS_INLINE uint64_t grid_signs64_iq3xxs(const uint8_t *block, uint32_t j)
{
    return grid_even_signs(grid_sevens(block + 66 + 8 * j, block + 70 + 8 * j));
}

ALWAYS_INLINE uint64_t grid_signs64_iq2xs(const uint8_t *block, uint32_t j)
{
    const __m128i all = _mm_loadu_si128((const void *)(block + 2 + 16 * j));
    const __m128i sevens = _mm_srli_epi16(all, 9);
    return grid_even_signs((uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(sevens, sevens)));
}

ALWAYS_INLINE uint64_t grid_signs64_iq2s(const uint8_t *block, uint32_t j)
{
    return grid_read64(block + 34 + 8 * j);
}

ALWAYS_INLINE uint64_t grid_signs64_iq3s(const uint8_t *block, uint32_t j)
{
    return grid_read64(block + 74 + 8 * j);
}

#define GRID_MULTIPLY_SIGNED(name)                                                                 \
    ALWAYS_INLINE __m512i grid_multiply_##name(const uint8_t *block,                               \
                                               const struct product_block *x)                      \
    {                                                                                              \
        __m512i dots[4], scales[2];                                                                \
        UNROLL for (uint32_t j = 0; j < 4; j++)                                                    \
        {                                                                                          \
            const __m512i q = _mm512_loadu_si512(x->values + 64 * j);                              \
            dots[j] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), grid_weights64_##name(block, j), \
                                          _mm512_mask_sub_epi8(q, grid_signs64_##name(block, j),   \
                                                               _mm512_setzero_si512(), q));        \
        }                                                                                          \
        row_scale_sixteens(grid_groups_##name(block), scales);                                     \
        return row_scaled(dots, scales);                                                           \
    }
GRID_MULTIPLY_SIGNED(iq2xxs)
GRID_MULTIPLY_SIGNED(iq2xs)
GRID_MULTIPLY_SIGNED(iq2s)
GRID_MULTIPLY_SIGNED(iq3xxs)
GRID_MULTIPLY_SIGNED(iq3s)

#define GRID_MULTIPLY(name, bias)                                                                  \
    ALWAYS_INLINE __m512i grid_multiply_##name(const uint8_t *block,                               \
                                               const struct product_block *x)                      \
    {                                                                                              \
        const __m256i groups = grid_groups_##name(block);                                          \
        __m512i dots[4], scales[2];                                                                \
        UNROLL for (uint32_t j = 0; j < 4; j++) dots[j] =                                          \
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), grid_weights64_##name(block, j),           \
                                _mm512_loadu_si512(x->values + 64 * j));                           \
        row_scale_sixteens(groups, scales);                                                        \
        const __m256i offsets =                                                                    \
            _mm256_madd_epi16(_mm256_mullo_epi16(groups, _mm256_set1_epi16(bias)),                 \
                              _mm256_loadu_si256((const void *)x->sums));                          \
        return _mm512_sub_epi32(row_scaled(dots, scales), _mm512_zextsi256_si512(offsets));        \
    }
GRID_MULTIPLY(iq1s, GRID_IQ1_BIAS)
GRID_MULTIPLY(iq1m, GRID_IQ1_BIAS)

/* n <= LOT blocks more. */
ALWAYS_INLINE float grid_multiply_lot(const struct grid_row *form, const uint8_t *block, uint32_t n,
                                      const struct product_block *x, float y)
{
    __m512i sums[LOT];
    float d[LOT];
    eight_ints products;
    UNROLL for (uint32_t i = 0; i < LOT; i++)
    {
        sums[i] = _mm512_setzero_si512();
        if (i < n) {
            const uint8_t *at = block + i * form->bytes;
            row_prefetch(at, form->bytes);
            sums[i] = form->multiply(at, &x[i]);
            d[i] = form->d(at) * x[i].scale;
        }
    }
    ints_add_up(sums, &products);
    for (uint32_t i = 0; i < n; i++)
        y = add_product(y, d[i], (float)products[i]);
    return y;
}

ALWAYS_INLINE void grid_multiply_rows(const struct grid_row *form, const uint8_t *const *rows,
                                      uint32_t n_rows, uint32_t n_blocks,
                                      const struct product_block *x, float *out)
{
    for (uint32_t c = 0; c < n_rows; c++) {
        float y = 0;
        uint32_t b = 0;
        for (; b + LOT <= n_blocks; b += LOT)
            y = grid_multiply_lot(form, rows[c] + (size_t)b * form->bytes, LOT, x + b, y);
        if (b < n_blocks)
            y = grid_multiply_lot(form, rows[c] + (size_t)b * form->bytes, n_blocks - b, x + b, y);
        out[c] = y;
    }
}

/* ---- many rows ---- */

/* weights and scales of sixteen rows, which stand one after the other. */
ALWAYS_INLINE void grid_put_all(uint8_t weights[SHEAF_ROWS][PRODUCT_BLOCK],
                                uint8_t scales[SHEAF_ROWS][PRODUCT_GROUPS], struct sheaf_block *out)
{
    const uint8_t *of[SHEAF_ROWS];
    __m512i x[4];
    for (uint32_t c = 0; c < SHEAF_ROWS; c++)
        of[c] = weights[c];
    for (uint32_t at = 0; at < PRODUCT_BLOCK; at += 16) {
        lanes_turn(of, at, x);
        UNROLL for (uint32_t i = 0; i < 4; i++) sheaf_put(out, at / 4 + i, x[i]);
    }
    for (uint32_t c = 0; c < SHEAF_ROWS; c++)
        of[c] = scales[c];
    lanes_turn(of, 0, x);
    sheaf_put_signed(out, x);
}

#define GRID_SHEAF(type, name, n_bytes, bias, get_d)                                               \
    static __attribute__((noinline)) void sheaf_unpack_##name(const uint8_t *const *rows,          \
                                                              size_t at, struct sheaf_block *out)  \
    {                                                                                              \
        uint8_t weights[SHEAF_ROWS][PRODUCT_BLOCK] __attribute__((aligned(64)));                   \
        uint8_t scales[SHEAF_ROWS][PRODUCT_GROUPS] __attribute__((aligned(64)));                   \
        for (uint32_t c = 0; c < SHEAF_ROWS; c++) {                                                \
            const struct grid_scales of = grid_scales_##name(rows[c] + at);                        \
            grid_weights_##name(rows[c] + at, weights[c]);                                         \
            memcpy(scales[c], &of, sizeof of);                                                     \
            out->d[c] = get_d(rows[c] + at);                                                       \
        }                                                                                          \
        grid_put_all(weights, scales, out);                                                        \
    }                                                                                              \
    SHEAF_KIND(name, n_bytes, 1, false, bias)                                                      \
    static const struct grid_row grid_row_##name = {n_bytes, get_d, grid_multiply_##name};
GRID_TYPES(GRID_SHEAF)

static void grid_vnni_row(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                          uint32_t n_blocks, const struct product_block *x, float *y)
{
#define GRID_CASE(type_name, name, n_bytes, bias, d)                                               \
    if (type == PRODUCT_##type_name)                                                               \
        grid_multiply_rows(&grid_row_##name, rows, n_rows, n_blocks, x, y);
    GRID_TYPES(GRID_CASE)
#undef GRID_CASE
}

static void grid_vnni_sheaf(enum product_type type, const uint8_t *const *rows, uint32_t n_blocks,
                            const struct product_block *const *x, uint32_t n,
                            float (*y)[PRODUCT_SHEAF_MAX])
{
    const struct product_block *filled[PRODUCT_TILE];
    n = lanes_fill(x, n, filled);
#define GRID_CASE(type_name, name, n_bytes, bias, d)                                               \
    if (type == PRODUCT_##type_name)                                                               \
        sheaf_rows_##name(rows, n_blocks, filled, n, y);
    GRID_TYPES(GRID_CASE)
#undef GRID_CASE
}
