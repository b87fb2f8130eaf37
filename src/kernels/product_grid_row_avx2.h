/* One row of grid types on processors with AVX2: the arithmetic of product.h. 32 weights are four
 * entries of eight bytes, or eight of four, as they stand in the grid. Values of x take their
 * signs, which a block has once for all of them in a vector. Included behind product_grid_body.h.
 */
#pragma once

#include "kernels/product_grid_body.h"

struct grid_avx2_form {
    uint32_t bytes;
    float (*d)(const uint8_t *block);
    __m256i (*multiply)(const uint8_t *block, const struct product_block *x); /* sum by sum */
};

/* ---- scales, twice a number and one: even groups' in the lower half, odd ones' in the upper ----
 */

ALWAYS_INLINE __m256i grid_row_odd(__m256i numbers)
{
    return _mm256_add_epi16(_mm256_add_epi16(numbers, numbers), _mm256_set1_epi16(1));
}

/* Of eight numbers, each for two groups. */
ALWAYS_INLINE __m256i grid_row_twice(__m128i numbers)
{
    return grid_row_odd(_mm256_broadcastsi128_si256(numbers));
}

/* Dword i of each half of a and b: numbers 2 h to 2 h + 1 and, behind them, those 4 later. */
ALWAYS_INLINE __m256i grid_row_dwords(__m256i a, __m256i b, int is_upper)
{
    const __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
    const __m256i apart = _mm256_castps_si256(is_upper ? _mm256_shuffle_ps(x, y, 0xdd)
                                                       : _mm256_shuffle_ps(x, y, 0x88));
    return _mm256_permute4x64_epi64(apart, 0xd8);
}

ALWAYS_INLINE __m128i grid_row_words(__m256i dwords)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(dwords), _mm256_extracti128_si256(dwords, 1));
}

ALWAYS_INLINE __m256i grid_row_scales_iq2xxs(const uint8_t *block)
{
    const __m256i dwords = grid_row_dwords(load32(block + 2), load32(block + 34), 1);
    return grid_row_twice(grid_row_words(_mm256_srli_epi32(dwords, 28)));
}

ALWAYS_INLINE __m256i grid_row_scales_iq3xxs(const uint8_t *block)
{
    return grid_row_twice(grid_row_words(_mm256_srli_epi32(load32(block + 66), 28)));
}

/* Four bits for each group. */
ALWAYS_INLINE __m256i grid_row_fours(const uint8_t *from)
{
    const __m128i both = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)from));
    return grid_row_odd(
        _mm256_setr_m128i(_mm_and_si128(both, _mm_set1_epi16(15)), _mm_srli_epi16(both, 4)));
}

ALWAYS_INLINE __m256i grid_row_scales_iq2xs(const uint8_t *block)
{
    return grid_row_fours(block + 66);
}

ALWAYS_INLINE __m256i grid_row_scales_iq2s(const uint8_t *block)
{
    return grid_row_fours(block + 74);
}

ALWAYS_INLINE __m256i grid_row_scales_iq3s(const uint8_t *block)
{
    const __m128i both = _mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)grid_read32(block + 106)));
    return grid_row_twice(
        _mm_and_si128(_mm_or_si128(both, _mm_slli_epi32(both, 12)), _mm_set1_epi16(15)));
}

ALWAYS_INLINE __m256i grid_row_scales_iq1s(const uint8_t *block)
{
    const __m128i high = _mm_loadu_si128((const void *)(block + 34));
    return grid_row_twice(_mm_and_si128(_mm_srli_epi16(high, 12), _mm_set1_epi16(7)));
}

/* Three bits for each group, four of them in 16 bits. */
ALWAYS_INLINE __m256i grid_row_scales_iq1m(const uint8_t *block)
{
    const __m128i fours = _mm_loadl_epi64((const void *)(block + 48));
    const __m128i twos =
        _mm_mullo_epi16(_mm_unpacklo_epi16(fours, fours), _mm_set1_epi32(1 << 16 | 64));
    return grid_row_odd(_mm256_and_si256(
        _mm256_setr_m128i(_mm_srli_epi16(twos, 6), _mm_srli_epi16(twos, 9)), _mm256_set1_epi16(7)));
}

/* Scales in the order of groups. */
ALWAYS_INLINE __m256i grid_row_in_order(__m256i scales)
{
    const __m128i even = _mm256_castsi256_si128(scales), odd = _mm256_extracti128_si256(scales, 1);
    return _mm256_setr_m128i(_mm_unpacklo_epi16(even, odd), _mm_unpackhi_epi16(even, odd));
}

/* ---- signs: a bit for each of 256 weights ---- */

/* Of seven bits in each byte; the eighth makes the number of those that are set even. */
ALWAYS_INLINE __m256i grid_row_even(__m256i sevens)
{
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i low = _mm256_shuffle_epi8(parity, moved_bits(sevens, 15, 0)),
                  high = _mm256_shuffle_epi8(parity, moved_bits(sevens, 0xf0, -4));
    return _mm256_or_si256(sevens, _mm256_xor_si256(low, high));
}

/* Four times seven bits in each dword. */
ALWAYS_INLINE __m256i grid_row_sevens(__m256i x)
{
    const __m256i twos =
        _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(0x00003fff)),
                        _mm256_and_si256(_mm256_slli_epi32(x, 2), _mm256_set1_epi32(0x3fff0000)));
    return grid_row_even(
        _mm256_or_si256(_mm256_and_si256(twos, _mm256_set1_epi16(0x007f)),
                        _mm256_and_si256(_mm256_slli_epi16(twos, 1), _mm256_set1_epi16(0x7f00))));
}

ALWAYS_INLINE __m256i grid_row_signs_iq2xxs(const uint8_t *block)
{
    return grid_row_sevens(grid_row_dwords(load32(block + 2), load32(block + 34), 1));
}

ALWAYS_INLINE __m256i grid_row_signs_iq3xxs(const uint8_t *block)
{
    return grid_row_sevens(load32(block + 66));
}

ALWAYS_INLINE __m256i grid_row_signs_iq2xs(const uint8_t *block)
{
    const __m256i sevens = _mm256_packus_epi16(_mm256_srli_epi16(load32(block + 2), 9),
                                               _mm256_srli_epi16(load32(block + 34), 9));
    return grid_row_even(_mm256_permute4x64_epi64(sevens, 0xd8));
}

ALWAYS_INLINE __m256i grid_row_signs_iq2s(const uint8_t *block)
{
    return load32(block + 34);
}

ALWAYS_INLINE __m256i grid_row_signs_iq3s(const uint8_t *block)
{
    return load32(block + 74);
}

/* Values of x, less than zero where a bit is set. */
ALWAYS_INLINE __m256i grid_row_signed(const int8_t *values, uint32_t signs)
{
    const __m256i order =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)signs), order);
    const __m256i is_less = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
    return _mm256_sign_epi8(load32((const uint8_t *)values),
                            _mm256_or_si256(is_less, _mm256_set1_epi8(1)));
}

/* ---- a block times x ---- */

/* Weights 32 j to 32 j + 31, as the grid has them. */
#define GRID_ROW_WEIGHTS(name)                                                                     \
    ALWAYS_INLINE __m256i grid_row_weights_##name(const uint8_t *block, uint32_t j)                \
    {                                                                                              \
        return _mm256_setr_epi64x((long long)grid_entry_##name(block, 4 * j),                      \
                                  (long long)grid_entry_##name(block, 4 * j + 1),                  \
                                  (long long)grid_entry_##name(block, 4 * j + 2),                  \
                                  (long long)grid_entry_##name(block, 4 * j + 3));                 \
    }
GRID_ROW_WEIGHTS(iq2xxs)
GRID_ROW_WEIGHTS(iq2xs)
GRID_ROW_WEIGHTS(iq2s)
GRID_ROW_WEIGHTS(iq3xxs)
GRID_ROW_WEIGHTS(iq3s)

/* `high` has three bits for each of four entries, `step` apart. */
ALWAYS_INLINE __m256i grid_row_weights_iq1(const uint8_t *low, uint32_t high, uint32_t step)
{
    const uint64_t *const grid = product_grids.iq1;
    return _mm256_setr_epi64x((long long)grid[low[0] | (high << 8 & 0x700)],
                              (long long)grid[low[1] | (high << 8 >> step & 0x700)],
                              (long long)grid[low[2] | (high << 8 >> 2 * step & 0x700)],
                              (long long)grid[low[3] | (high << 8 >> 3 * step & 0x700)]);
}

/* Products of weights and values, times the scales of their groups. */
ALWAYS_INLINE __m256i grid_row_dot(__m256i sum, __m256i weights, __m256i values, __m256i scales,
                                   uint32_t j)
{
    const __m256i scale =
        _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(0x0100 + 0x0202 * j)));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(weights, values), scale));
}

#define GRID_ROW_SIGNED(name)                                                                      \
    ALWAYS_INLINE __m256i grid_row_multiply_##name(const uint8_t *block,                           \
                                                   const struct product_block *x)                  \
    {                                                                                              \
        const __m256i scales = grid_row_scales_##name(block);                                      \
        __m256i sum = _mm256_setzero_si256();                                                      \
        uint32_t signs[8];                                                                         \
        store32(signs, grid_row_signs_##name(block));                                              \
        UNROLL for (uint32_t j = 0; j < 8; j++) sum =                                              \
            grid_row_dot(sum, grid_row_weights_##name(block, j),                                   \
                         grid_row_signed(x->values + 32 * j, signs[j]), scales, j);                \
        return sum;                                                                                \
    }
GRID_ROW_SIGNED(iq2xxs)
GRID_ROW_SIGNED(iq2xs)
GRID_ROW_SIGNED(iq2s)
GRID_ROW_SIGNED(iq3xxs)
GRID_ROW_SIGNED(iq3s)

/* What entries have too much is the same for 32 weights: 7, or 9 where a bit is set. */
ALWAYS_INLINE __m256i grid_row_multiply_iq1s(const uint8_t *block, const struct product_block *x)
{
    const __m128i high = _mm_loadu_si128((const void *)(block + 34));
    const __m256i scales = grid_row_scales_iq1s(block);
    const __m128i excess = _mm_sub_epi16(_mm_and_si128(_mm_srai_epi16(high, 15), _mm_set1_epi16(2)),
                                         _mm_set1_epi16(2 - GRID_IQ1_BIAS));
    const __m256i offsets = _mm256_mullo_epi16(scales, _mm256_broadcastsi128_si256(excess));
    __m256i sum = _mm256_setzero_si256();
    UNROLL for (uint32_t j = 0; j < 8; j++)
    {
        const __m256i weights =
            grid_row_weights_iq1(block + 2 + 4 * j, grid_read16(block + 34 + 2 * j), 3);
        sum = grid_row_dot(sum, weights, load32((const uint8_t *)x->values + 32 * j), scales, j);
    }
    return _mm256_sub_epi32(
        sum, _mm256_madd_epi16(grid_row_in_order(offsets), load32((const uint8_t *)x->sums)));
}

/* Two more for each of four entries of which a bit is not set. */
ALWAYS_INLINE __m256i grid_row_more_iq1m(uint32_t high)
{
    const __m256i bits = _mm256_setr_epi64x(0x0008000800080008, 0x0080008000800080,
                                            0x0800080008000800, (long long)0x8000800080008000);
    const __m256i is_more = _mm256_cmpeq_epi16(
        _mm256_and_si256(_mm256_set1_epi16((short)high), bits), _mm256_setzero_si256());
    return _mm256_and_si256(is_more, _mm256_set1_epi8(2));
}

ALWAYS_INLINE __m256i grid_row_multiply_iq1m(const uint8_t *block, const struct product_block *x)
{
    const __m256i scales = grid_row_scales_iq1m(block);
    const __m256i offsets =
        _mm256_mullo_epi16(grid_row_in_order(scales), _mm256_set1_epi16(GRID_IQ1_BIAS));
    __m256i sum = _mm256_setzero_si256();
    UNROLL for (uint32_t j = 0; j < 8; j++)
    {
        const uint32_t high = grid_read16(block + 32 + 2 * j);
        const __m256i weights =
            _mm256_add_epi8(grid_row_weights_iq1(block + 4 * j, high, 4), grid_row_more_iq1m(high));
        sum = grid_row_dot(sum, weights, load32((const uint8_t *)x->values + 32 * j), scales, j);
    }
    return _mm256_sub_epi32(sum, _mm256_madd_epi16(offsets, load32((const uint8_t *)x->sums)));
}

/* n <= LOT blocks more. */
ALWAYS_INLINE float grid_row_lot(const struct grid_avx2_form *form, const uint8_t *block,
                                 uint32_t n, const struct product_block *x, float y)
{
    __m256i sums[LOT];
    float d[LOT];
    eight_ints products;
    for (uint32_t i = 0; i < n; i++, block += form->bytes) {
        UNROLL for (uint32_t at = 0; at < form->bytes; at += 64)
            __builtin_prefetch(block + AHEAD + at);
        sums[i] = form->multiply(block, &x[i]);
        d[i] = form->d(block) * x[i].scale;
    }
    for (uint32_t i = n; i < LOT; i++)
        sums[i] = _mm256_setzero_si256();
    part_add_up(sums, &products);
    for (uint32_t i = 0; i < n; i++)
        y = add_product(y, d[i], (float)products[i]);
    return y;
}

ALWAYS_INLINE float grid_row_product(const struct grid_avx2_form *form, const uint8_t *row,
                                     uint32_t n_blocks, const struct product_block *x)
{
    float y = 0;
    for (uint32_t b = 0; b < n_blocks; b += LOT)
        y = grid_row_lot(form, row + (size_t)b * form->bytes,
                         n_blocks - b < LOT ? n_blocks - b : LOT, x + b, y);
    return y;
}

static void grid_avx2_row(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                          uint32_t n_blocks, const struct product_block *x, float *y)
{
#define GRID_CASE(type_name, name, n_bytes, bias, get_d)                                           \
    static const struct grid_avx2_form row_##name = {n_bytes, get_d, grid_row_multiply_##name};    \
    for (uint32_t c = 0; type == PRODUCT_##type_name && c < n_rows; c++)                           \
        y[c] = grid_row_product(&row_##name, rows[c], n_blocks, x);
    GRID_TYPES(GRID_CASE)
#undef GRID_CASE
}
