/* Products of K-quants with more than a few rows on processors with AVX-512 VNNI: the arithmetic of
 * product.h, a block of 32 rows of the matrix at a time, as two vectors of sixteen, so that a
 * number of x that is spread over a vector serves both (product_panel_vnni.h).
 *
 * What bounds it is the two units that multiply: for a block, sixteen rows and a row x they are
 * given 64 vpdpbusd, one vpmulld for each scale, vpdpwssd for pairs of offsets and four products
 * of floats. */
#pragma once

#include "kernels/product_lanes_avx512.h"

enum {
    SHEAF_ROWS = 16,
    SHEAF_HALVES = 2,
    SHEAF_SIDE = 4,  /* rows x that are multiplied together */
    SHEAF_AHEAD = 2, /* blocks whose turn it is after this one when they are fetched */
};

struct sheaf_kind { /* of a type; constants where code is made for it */
    uint32_t bytes; /* of a block */
    uint32_t step;  /* groups that share a scale */
    bool has_dmin;
    int32_t bias; /* of weights without offsets */
};

struct sheaf_block { /* of each row of half a sheaf */
    uint8_t weights[PRODUCT_BLOCK / 4][SHEAF_ROWS][4];
    int32_t scales[PRODUCT_GROUPS][SHEAF_ROWS];         /* of groups 0, step, ... */
    int16_t offsets[PRODUCT_GROUPS / 2][SHEAF_ROWS][2]; /* of two that have scales of their own */
    float d[SHEAF_ROWS], dmin[SHEAF_ROWS];
} __attribute__((aligned(64)));

/* A row x beside it: with offsets sums of pairs of 16 bits, else what products have too much. */
union sheaf_sums {
    int32_t excess[PRODUCT_GROUPS];
    int16_t of[PRODUCT_GROUPS];
} __attribute__((aligned(64)));

/* ---- unpacking ---- */

ALWAYS_INLINE void sheaf_put(struct sheaf_block *out, uint32_t quad, __m512i weights)
{
    _mm512_store_si512(out->weights[quad], weights);
}

ALWAYS_INLINE void sheaf_put_scale(struct sheaf_block *out, uint32_t group, __m512i scale)
{
    _mm512_store_si512(out->scales[group], scale);
}

/* Bytes 2 i and 2 i + 1 of x are the offsets of pair 2 p + i. */
ALWAYS_INLINE void sheaf_put_offsets(struct sheaf_block *out, uint32_t p, __m512i x)
{
    UNROLL for (uint32_t i = 0; i < 2; i++) _mm512_store_si512(
        out->offsets[2 * p + i],
        _mm512_or_si512(lanes_byte(x, 2 * i), _mm512_slli_epi32(lanes_byte(x, 2 * i + 1), 16)));
}

ALWAYS_INLINE void sheaf_put_d(struct sheaf_block *out, __m512i both)
{
    _mm512_store_ps(out->d, lanes_low_half(both));
    _mm512_store_ps(out->dmin, lanes_high_half(both));
}

/* d, dmin, scales and offsets of Q4_K and Q5_K. */
ALWAYS_INLINE void sheaf_unpack_six_bits(const uint8_t *const *rows, size_t at,
                                         struct sheaf_block *out)
{
    __m512i head[4];
    lanes_turn(rows, at, head);
    const __m512i a = head[1], b = head[2], c = head[3];
    const __m512i scales[2] = {lanes_moved(a, 63, 0),
                               _mm512_or_si512(lanes_moved(c, 15, 0), lanes_moved(a, 0xc0, -2))};
    sheaf_put_d(out, head[0]);
    UNROLL for (uint32_t i = 0; i < 8; i++)
        sheaf_put_scale(out, 2 * i, lanes_byte(scales[i / 4], i % 4));
    sheaf_put_offsets(out, 0, lanes_moved(b, 63, 0));
    sheaf_put_offsets(out, 1, _mm512_or_si512(lanes_moved(c, 0xf0, -4), lanes_moved(b, 0xc0, -2)));
}

ALWAYS_INLINE void sheaf_unpack_q4(const uint8_t *const *rows, size_t at, struct sheaf_block *out)
{
    sheaf_unpack_six_bits(rows, at, out);
    for (uint32_t j = 0; j < 4; j++) {
        __m512i x[8];
        lanes_turn_32(rows, at + 16 + 32 * j, x);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            sheaf_put(out, 16 * j + i, lanes_moved(x[i], 15, 0));
            sheaf_put(out, 16 * j + 8 + i, lanes_moved(x[i], 0xf0, -4));
        }
    }
}

ALWAYS_INLINE void sheaf_unpack_q5(const uint8_t *const *rows, size_t at, struct sheaf_block *out)
{
    __m512i high[8];
    sheaf_unpack_six_bits(rows, at, out);
    lanes_turn_32(rows, at + 16, high);
    for (uint32_t j = 0; j < 4; j++) {
        __m512i x[8];
        lanes_turn_32(rows, at + 48 + 32 * j, x);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            sheaf_put(out, 16 * j + i,
                      _mm512_or_si512(lanes_moved(x[i], 15, 0), lanes_moved(high[i], 1, 4)));
            sheaf_put(out, 16 * j + 8 + i,
                      _mm512_or_si512(lanes_moved(x[i], 0xf0, -4), lanes_moved(high[i], 2, 3)));
            high[i] = _mm512_srli_epi32(high[i], 2);
        }
    }
}

/* Scales are signed bytes. */
ALWAYS_INLINE void sheaf_put_signed(struct sheaf_block *out, const __m512i scales[4])
{
    UNROLL for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) sheaf_put_scale(
        out, g, _mm512_srai_epi32(_mm512_slli_epi32(scales[g / 4], 24 - 8 * (g % 4)), 24));
}

ALWAYS_INLINE void sheaf_unpack_q6(const uint8_t *const *rows, size_t at, struct sheaf_block *out)
{
    __m512i scales[4], last[4];
    lanes_turn(rows, at + 192, scales);
    lanes_turn(rows, at + 194, last);
    sheaf_put_signed(out, scales);
    _mm512_store_ps(out->d, lanes_high_half(last[3]));
    for (uint32_t j = 0; j < 2; j++) {
        __m512i first[8], second[8], high[8];
        lanes_turn_32(rows, at + 64 * j, first);
        lanes_turn_32(rows, at + 64 * j + 32, second);
        lanes_turn_32(rows, at + 128 + 32 * j, high);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            sheaf_put(out, 32 * j + i,
                      _mm512_or_si512(lanes_moved(first[i], 15, 0), lanes_moved(high[i], 3, 4)));
            sheaf_put(out, 32 * j + 8 + i,
                      _mm512_or_si512(lanes_moved(second[i], 15, 0), lanes_moved(high[i], 12, 2)));
            sheaf_put(
                out, 32 * j + 16 + i,
                _mm512_or_si512(lanes_moved(first[i], 0xf0, -4), lanes_moved(high[i], 48, 0)));
            sheaf_put(
                out, 32 * j + 24 + i,
                _mm512_or_si512(lanes_moved(second[i], 0xf0, -4), lanes_moved(high[i], 0xc0, -2)));
        }
    }
}

ALWAYS_INLINE void sheaf_unpack_q2(const uint8_t *const *rows, size_t at, struct sheaf_block *out)
{
    __m512i both[4], last[4];
    lanes_turn(rows, at, both);
    lanes_turn(rows, at + 68, last);
    sheaf_put_d(out, last[3]);
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        UNROLL for (uint32_t k = 0; k < 4; k++)
            sheaf_put_scale(out, 4 * i + k, lanes_and(_mm512_srli_epi32(both[i], 8 * k), 15));
        sheaf_put_offsets(out, i, lanes_moved(both[i], 0xf0, -4));
    }
    for (uint32_t j = 0; j < 2; j++) {
        __m512i x[8];
        lanes_turn_32(rows, at + 16 + 32 * j, x);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            UNROLL for (uint32_t t = 0; t < 4; t++) sheaf_put(
                out, 32 * j + 8 * t + i, lanes_moved(_mm512_srli_epi32(x[i], 2 * t), 3, 0));
        }
    }
}

/* The last 16 bytes: two of weights, twelve of scales, d. */
ALWAYS_INLINE void sheaf_unpack_q3_scales(const uint8_t *const *rows, size_t at,
                                          struct sheaf_block *out)
{
    __m512i last[4], x[4], all[4];
    lanes_turn(rows, at + 94, last);
    _mm512_store_ps(out->d, lanes_high_half(last[3]));
    UNROLL for (uint32_t i = 0; i < 3; i++) x[i] =
        _mm512_or_si512(_mm512_srli_epi32(last[i], 16), _mm512_slli_epi32(last[i + 1], 16));
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        const __m512i low = i < 2 ? lanes_moved(x[i], 15, 0) : lanes_moved(x[i - 2], 0xf0, -4);
        const __m512i high = lanes_moved(x[2], UINT32_C(3) << (2 * i), 4 - 2 * (int)i);
        all[i] = _mm512_sub_epi8(_mm512_or_si512(low, high), _mm512_set1_epi8(32));
    }
    sheaf_put_signed(out, all);
}

ALWAYS_INLINE void sheaf_unpack_q3(const uint8_t *const *rows, size_t at, struct sheaf_block *out)
{
    __m512i third[8];
    sheaf_unpack_q3_scales(rows, at, out);
    lanes_turn_32(rows, at, third);
    for (uint32_t j = 0; j < 2; j++) {
        __m512i x[8];
        lanes_turn_32(rows, at + 32 + 32 * j, x);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            UNROLL for (uint32_t t = 0; t < 4; t++)
                sheaf_put(out, 32 * j + 8 * t + i,
                          _mm512_or_si512(lanes_moved(_mm512_srli_epi32(x[i], 2 * t), 3, 0),
                                          lanes_moved(_mm512_srli_epi32(third[i], t), 1, 2)));
            third[i] = _mm512_srli_epi32(third[i], 4);
        }
    }
}

/* ---- multiplying ---- */

ALWAYS_INLINE void sheaf_prepare_sums(const struct sheaf_kind *kind, const struct product_block *x,
                                      union sheaf_sums *out)
{
    const __m256i sums = _mm256_loadu_si256((const void *)x->sums);
    if (!kind->has_dmin) {
        _mm512_store_si512(
            out, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(sums), _mm512_set1_epi32(-kind->bias)));
    } else if (kind->step == 2) {
        const __m256i twos = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
        _mm_store_si128((void *)out, _mm256_cvtepi32_epi16(twos));
    } else {
        _mm256_store_si256((void *)out, sums);
    }
}

/* y + (d e) products - (dmin e) offsets, for sixteen rows. */
ALWAYS_INLINE void sheaf_add_sums(const struct sheaf_kind *kind, __m512 d, __m512 dmin,
                                  __m512i products, __m512i offsets, float e, float *y)
{
    __m512 all = _mm512_loadu_ps(y);
    all = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(e)), _mm512_cvtepi32_ps(products), all);
    if (kind->has_dmin)
        all = _mm512_fmadd_ps(_mm512_mul_ps(dmin, _mm512_set1_ps(-e)), _mm512_cvtepi32_ps(offsets),
                              all);
    _mm512_storeu_ps(y, all);
}

/* What sixteen rows' block adds to y. */
ALWAYS_INLINE void sheaf_add(const struct sheaf_kind *kind, const struct sheaf_block *block,
                             __m512i products, const union sheaf_sums *sums, float e, float *y)
{
    __m512i offsets = _mm512_setzero_si512();
    UNROLL for (uint32_t p = 0; kind->has_dmin && p < PRODUCT_GROUPS / 2 / kind->step; p++)
        offsets = _mm512_dpwssd_epi32(offsets, _mm512_load_si512(block->offsets[p]),
                                      _mm512_set1_epi32(sums->excess[p]));
    sheaf_add_sums(kind, _mm512_load_ps(block->d), _mm512_load_ps(block->dmin), products, offsets,
                   e, y);
}

/* A block, of which each half is sixteen rows, times SHEAF_SIDE rows x. */
ALWAYS_INLINE void sheaf_multiply(const struct sheaf_kind *kind, const struct sheaf_block *block,
                                  const struct product_block *const *x, uint32_t b,
                                  const struct lanes_next *next, float (*y)[PRODUCT_SHEAF_MAX])
{
    __m512i products[SHEAF_SIDE][SHEAF_HALVES];
    union sheaf_sums sums[SHEAF_SIDE];
    const int8_t *q[SHEAF_SIDE];
    UNROLL for (uint32_t k = 0; k < SHEAF_SIDE; k++)
    {
        q[k] = x[k][b].values;
        sheaf_prepare_sums(kind, &x[k][b], &sums[k]);
        UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) products[k][h] = _mm512_setzero_si512();
    }
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g += kind->step) {
        __m512i dot[SHEAF_SIDE][SHEAF_HALVES], scale[SHEAF_HALVES];
        lanes_fetch(next, g / kind->step, PRODUCT_GROUPS / kind->step);
        UNROLL for (uint32_t k = 0; k < SHEAF_SIDE; k++)
        {
            UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) dot[k][h] =
                _mm512_set1_epi32(kind->has_dmin ? 0 : sums[k].excess[g]);
        }
        UNROLL for (uint32_t i = 0; i < 4 * kind->step; i++)
        {
            __m512i w[SHEAF_HALVES];
            UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) w[h] =
                _mm512_load_si512(block[h].weights[4 * g + i]);
            UNROLL for (uint32_t k = 0; k < SHEAF_SIDE; k++)
            {
                const __m512i four = lanes_spread(q[k] + 16 * g + 4 * i);
                UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) dot[k][h] =
                    _mm512_dpbusd_epi32(dot[k][h], w[h], four);
            }
        }
        UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) scale[h] =
            _mm512_load_si512(block[h].scales[g]);
        UNROLL for (uint32_t k = 0; k < SHEAF_SIDE; k++)
        {
            UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) products[k][h] =
                _mm512_add_epi32(products[k][h], _mm512_mullo_epi32(dot[k][h], scale[h]));
        }
    }
    UNROLL for (uint32_t k = 0; k < SHEAF_SIDE; k++)
    {
        UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) sheaf_add(
            kind, &block[h], products[k][h], &sums[k], x[k][b].scale, &y[k][h * SHEAF_ROWS]);
    }
}

/* For each type: SHEAF_SIDE rows x, and all, a multiple of them. */
#define SHEAF_KIND(name, n_bytes, step, has_dmin, bias)                                            \
    static const struct sheaf_kind sheaf_##name = {n_bytes, step, has_dmin, bias};                 \
    static __attribute__((noinline)) void sheaf_some_##name(                                       \
        const struct sheaf_block *block, const struct product_block *const *x, uint32_t b,         \
        const struct lanes_next *next, float(*y)[PRODUCT_SHEAF_MAX])                               \
    {                                                                                              \
        sheaf_multiply(&sheaf_##name, block, x, b, next, y);                                       \
    }                                                                                              \
    static void sheaf_rows_##name(const uint8_t *const *rows, uint32_t n_blocks,                   \
                                  const struct product_block *const *x, uint32_t n,                \
                                  float(*y)[PRODUCT_SHEAF_MAX])                                    \
    {                                                                                              \
        memset(y, 0, n * sizeof *y);                                                               \
        for (uint32_t b = 0; b < n_blocks; b++) {                                                  \
            static const struct lanes_next nothing;                                                \
            struct sheaf_block block[SHEAF_HALVES];                                                \
            struct lanes_next ahead;                                                               \
            const struct lanes_next *next = &ahead;                                                \
            const size_t at = b * (size_t)sheaf_##name.bytes;                                      \
            for (uint32_t h = 0; h < SHEAF_HALVES; h++)                                            \
                sheaf_unpack_##name(rows + h * SHEAF_ROWS, at, &block[h]);                         \
            lanes_set_next(rows, n_blocks *(size_t)sheaf_##name.bytes,                             \
                           at + SHEAF_AHEAD * sheaf_##name.bytes, sheaf_##name.bytes, &ahead);     \
            for (uint32_t i = 0; i < n; i += SHEAF_SIDE, next = &nothing)                          \
                sheaf_some_##name(block, x + i, b, next, y + i);                                   \
        }                                                                                          \
    }
SHEAF_KIND(q2, 84, 1, true, 0)
SHEAF_KIND(q3, 110, 1, false, 4)
SHEAF_KIND(q4, 144, 2, true, 0)
SHEAF_KIND(q5, 176, 2, true, 0)
SHEAF_KIND(q6, 210, 1, false, 32)

static void product_vnni_sheaf(enum product_type type, const uint8_t *const *rows,
                               uint32_t n_blocks, const struct product_block *const *x, uint32_t n,
                               float (*y)[PRODUCT_SHEAF_MAX])
{
    const struct product_block *filled[PRODUCT_TILE];
    n = lanes_fill(x, n, filled);
#define SHEAF_CASE(name, form)                                                                     \
    if (type == PRODUCT_##name)                                                                    \
        sheaf_rows_##form(rows, n_blocks, filled, n, y);
    BLOCK_TYPES(SHEAF_CASE)
#undef SHEAF_CASE
}
