/* Products of Q2_K, Q3_K and Q6_K with one row on processors with AVX-512 VNNI: the arithmetic of
 * product.h, a row of the matrix from its begin to its end, 64 weights at a time. (Q4_K and Q5_K:
 * product_square_blocks_vnni.h.)
 *
 * Weights have no sign here, so vpdpbusd multiplies them. Sums of four products fit 16 bits (63
 * times 127 times 4 at most), so two vectors of them are packed into one, and vpdpwssd multiplies
 * those with their groups' scales. A byte that has weights of two groups of 32 is put into both
 * halves of a vector, which shift by different counts: so weights come in the order that x has. */
#pragma once

#include "kernels/product_kernel.h"

#include <immintrin.h>
#include <string.h>

struct row_weights {    /* of a block */
    __m512i weights[4]; /* in the order that x has */
    __m512i scales[2];  /* see row_products() */
    __m256i offsets;    /* of the 16 groups */
};

struct row_form { /* constants where code is made for it */
    uint32_t bytes, d_at, dmin_at;
    bool has_dmin;         /* else offsets count in d, */
    uint32_t offset_shift; /* as a scale moved so far to the left */
    void (*unpack)(const uint8_t *block, struct row_weights *out);
};

/* ---- a block --------------------------------------------------------------------------------- */

ALWAYS_INLINE __m512i row_twice(const uint8_t *from)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)from));
}

/* 64-bit numbers of the lower and of the upper half. */
ALWAYS_INLINE __m512i row_halves(int64_t lower, int64_t upper)
{
    return _mm512_set_epi64(upper, upper, upper, upper, lower, lower, lower, lower);
}

/* The bits `mask` of each byte, after its half was moved to the right by so many. */
ALWAYS_INLINE __m512i row_bits(__m512i twice, int lower, int upper, int mask)
{
    return _mm512_and_si512(_mm512_srlv_epi64(twice, row_halves(lower, upper)),
                            _mm512_set1_epi8((char)mask));
}

/* Weights and bits `from` (lower half) and `from` + 1 (upper half) of each byte as their bit
 * `to`. */
ALWAYS_INLINE __m512i row_with_bit(__m512i weights, __m512i twice, int from, int to)
{
    const __m512i moved =
        _mm512_rolv_epi64(twice, row_halves((to - from) & 63, (to - from - 1) & 63));
    return _mm512_ternarylogic_epi64(weights, moved, _mm512_set1_epi8((char)(1 << to)), 0xf8);
}

/* dots[i] are sums of four products of weights 64 i to 64 i + 63; scales[i] stand as the packed
 * sums of dots[2 i] and dots[2 i + 1] do. */
ALWAYS_INLINE __m512i row_scaled(const __m512i dots[4], const __m512i scales[2])
{
    const __m512i first = _mm512_packs_epi32(dots[0], dots[1]),
                  second = _mm512_packs_epi32(dots[2], dots[3]);
    return _mm512_dpwssd_epi32(_mm512_madd_epi16(first, scales[0]), second, scales[1]);
}

/* Sums of scaled products with x, of which vectors of 64 values are `step` bytes apart. */
ALWAYS_INLINE __m512i row_products(const struct row_weights *row, const int8_t *q, size_t step)
{
    __m512i dots[4];
    UNROLL for (uint32_t j = 0; j < 4; j++) dots[j] = _mm512_dpbusd_epi32(
        _mm512_setzero_si512(), row->weights[j], _mm512_loadu_si512(q + j * step));
    return row_scaled(dots, row->scales);
}

/* Scales of 16 groups of 16: of groups i and i + 4 four times each, in 16 bytes. */
ALWAYS_INLINE void row_scale_sixteens(__m256i scales, __m512i out[2])
{
    const int64_t each = 0x0001000100010001;
    const __m512i order =
        _mm512_set_epi64(7 * each, 3 * each, 6 * each, 2 * each, 5 * each, each, 4 * each, 0);
    const __m512i all = _mm512_castsi256_si512(scales);
    out[0] = _mm512_permutexvar_epi16(order, all);
    out[1] = _mm512_permutexvar_epi16(_mm512_add_epi16(order, _mm512_set1_epi16(8)), all);
}

ALWAYS_INLINE void row_unpack_q6(const uint8_t *block, struct row_weights *out)
{
    const __m256i of_groups = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(block + 192)));
    const __m512i four = _mm512_set1_epi8(15), two = _mm512_set1_epi8(48);
    UNROLL for (uint32_t j = 0; j < 2; j++)
    {
        const __m512i low = _mm512_loadu_si512(block + 64 * j),
                      high = row_twice(block + 128 + 32 * j);
        const __m512i first = _mm512_and_si512(_mm512_sllv_epi64(high, row_halves(4, 2)), two),
                      second = _mm512_and_si512(_mm512_srlv_epi64(high, row_halves(0, 2)), two);
        out->weights[2 * j] = _mm512_ternarylogic_epi64(first, low, four, 0xf8);
        out->weights[2 * j + 1] =
            _mm512_ternarylogic_epi64(second, _mm512_srli_epi64(low, 4), four, 0xf8);
    }
    row_scale_sixteens(of_groups, out->scales);
    out->offsets = of_groups;
}

ALWAYS_INLINE void row_unpack_q2(const uint8_t *block, struct row_weights *out)
{
    const __m256i both = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)block));
    UNROLL for (int j = 0; j < 4; j++) out->weights[j] =
        row_bits(row_twice(block + 16 + j / 2 * 32), j % 2 * 4, j % 2 * 4 + 2, 3);
    row_scale_sixteens(_mm256_and_si256(both, _mm256_set1_epi16(15)), out->scales);
    out->offsets = _mm256_srli_epi16(both, 4);
}

/* Scales of 6 bits, less 32: the lower four of groups g and g + 8 in byte g of 8, the upper two of
 * groups g, g + 4, g + 8 and g + 12 in byte g of the four behind. */
ALWAYS_INLINE __m256i row_scales_q3(const uint8_t *block)
{
    const __m128i last = _mm_loadu_si128((const void *)(block + 94)); /* two of weights, d behind */
    const __m128i low =
        _mm_shuffle_epi8(last, _mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9));
    const __m128i high = _mm_shuffle_epi8(
        last, _mm_setr_epi8(10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13));
    const __m128i two =
        _mm_and_si128(_mm_rolv_epi32(high, _mm_setr_epi32(4, 2, 0, 30)), _mm_set1_epi8(48));
    const __m128i all = _mm_ternarylogic_epi64(two, _mm_srlv_epi64(low, _mm_set_epi64x(4, 0)),
                                               _mm_set1_epi8(15), 0xf8);
    return _mm256_cvtepi8_epi16(_mm_sub_epi8(all, _mm_set1_epi8(32)));
}

ALWAYS_INLINE void row_unpack_q3(const uint8_t *block, struct row_weights *out)
{
    const __m256i of_groups = row_scales_q3(block);
    const __m512i third = row_twice(block);
    UNROLL for (int j = 0; j < 4; j++)
    {
        const __m512i low =
            row_bits(row_twice(block + 32 + j / 2 * 32), j % 2 * 4, j % 2 * 4 + 2, 3);
        out->weights[j] = row_with_bit(low, third, 2 * j, 2);
    }
    row_scale_sixteens(of_groups, out->scales);
    out->offsets = of_groups;
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum {
    ROW_LOT = 8,      /* blocks whose sums are added up together */
    ROW_AHEAD = 8192, /* bytes that are fetched early: all lines, to the first cache */
};

ALWAYS_INLINE void row_prefetch(const uint8_t *block, uint32_t bytes)
{
    UNROLL for (uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(block + ROW_AHEAD + at);
}

struct row_lot { /* what n blocks add to their row's y */
    float products[ROW_LOT], offsets[ROW_LOT];
    float factors[ROW_LOT][4]; /* d e, dmin e */
    uint32_t n;
};

/* Through memory: a compiler that sees the vector takes its numbers out one after the other, which
 * takes longer. */
ALWAYS_INLINE void row_store(float to[ROW_LOT], eight_ints x)
{
    _mm256_storeu_ps(to, _mm256_cvtepi32_ps((__m256i)x));
    __asm__ volatile("" : "+m"(*(float(*)[ROW_LOT])to));
}

ALWAYS_INLINE float row_add(const struct row_form *form, const struct row_lot *lot, uint32_t i,
                            float y)
{
    y = add_product(y, lot->factors[i][0], lot->products[i]);
    return form->has_dmin ? add_product(y, -lot->factors[i][1], lot->offsets[i]) : y;
}

/* n <= ROW_LOT blocks to `out`. Meanwhile the lot before is added to y, one block after the other:
 * each of these sums waits for the one before, and there is work while they do. */
ALWAYS_INLINE float row_multiply_lot(const struct row_form *form, const uint8_t *block, uint32_t n,
                                     const struct product_block *x, const struct row_lot *before,
                                     struct row_lot *out, float y)
{
    __m512i products[ROW_LOT];
    __m256i offsets[ROW_LOT];
    eight_ints all, less;
    UNROLL for (uint32_t i = 0; i < ROW_LOT; i++)
    {
        products[i] = _mm512_setzero_si512(), offsets[i] = _mm256_setzero_si256();
        if (i < before->n)
            y = row_add(form, before, i, y);
        if (i >= n)
            continue;
        const uint8_t *at = block + i * form->bytes;
        struct row_weights row;
        row_prefetch(at, form->bytes);
        form->unpack(at, &row);
        products[i] = row_products(&row, x[i].values, 64);
        offsets[i] = _mm256_madd_epi16(row.offsets, _mm256_loadu_si256((const void *)x[i].sums));
        const __m128i d =
            form->has_dmin ? _mm_loadu_si32(at + form->d_at) : _mm_loadu_si16(at + form->d_at);
        _mm_storeu_ps(out->factors[i], _mm_mul_ps(_mm_cvtph_ps(d), _mm_set1_ps(x[i].scale)));
    }
    ints_add_up(products, &all);
    part_add_up(offsets, &less);
    if (!form->has_dmin)
        all -= less << (int)form->offset_shift;
    row_store(out->products, all);
    if (form->has_dmin)
        row_store(out->offsets, less);
    out->n = n;
    return y;
}

ALWAYS_INLINE void row_multiply(const struct row_form *form, const uint8_t *const *rows,
                                uint32_t n_rows, uint32_t n_blocks, const struct product_block *x,
                                float *out)
{
    struct row_lot lots[2];
    uint32_t which = 0;
    float y = 0;
    lots[1].n = 0;
    for (uint32_t c = 0; c < n_rows; c++) {
        for (uint32_t b = 0; b < n_blocks; b += ROW_LOT, which ^= 1) {
            const uint32_t n = n_blocks - b < ROW_LOT ? n_blocks - b : ROW_LOT;
            const uint8_t *block = rows[c] + (size_t)b * form->bytes;
            y = n == ROW_LOT
                    ? row_multiply_lot(form, block, ROW_LOT, x + b, &lots[which ^ 1], &lots[which],
                                       y)
                    : row_multiply_lot(form, block, n, x + b, &lots[which ^ 1], &lots[which], y);
            if (b == 0 && c > 0)
                out[c - 1] = y;
            if (b == 0)
                y = 0;
        }
    }
    for (uint32_t i = 0; i < lots[which ^ 1].n; i++)
        y = row_add(form, &lots[which ^ 1], i, y);
    out[n_rows - 1] = y;
}

static const struct row_form row_q2 = {84, 80, 82, true, 0, row_unpack_q2},
                             row_q3 = {110, 108, 0, false, 2, row_unpack_q3},
                             row_q6 = {210, 208, 0, false, 5, row_unpack_q6};

/* CASE(type, form) for each. */
#define ROW_TYPES(CASE)                                                                            \
    CASE(Q2_K, q2)                                                                                 \
    CASE(Q3_K, q3)                                                                                 \
    CASE(Q6_K, q6)

static void product_vnni_row(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                             uint32_t n_blocks, const struct product_block *x, float *y)
{
#define ROW_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        row_multiply(&row_##form, rows, n_rows, n_blocks, x, y);
    ROW_TYPES(ROW_CASE)
#undef ROW_CASE
}
