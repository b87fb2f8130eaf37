/* Products with two to eight rows x on processors with AVX-512 VNNI: the arithmetic of product.h, a
 * row of the matrix from its begin to its end, as memory likes it, and each block of it unpacked
 * once for all rows x.
 *
 * Rows x come in fours. A vector of sums has a lane of 16 bytes for each fourth of a block and in
 * it a number for each row x, so what is behind the sums is done for four rows x at once. Parts
 * are put into lanes, their first halves into one vector and their last ones into another, and
 * rows x are brought into that order before. */
#pragma once

#include "kernels/product_lanes_avx512.h"
#include "kernels/product_row_vnni.h"

enum {
    FEW_X = 4,       /* rows x of a group */
    FEW_GROUPS = 2,  /* of them, at most */
    FEW_BLOCKS = 16, /* of a group, or half as many of two, that the first cache holds */
    FEW_ROWS = 128,  /* of the matrix, whose sums are kept meanwhile */
};

struct few_block {               /* of a group of rows x */
    int8_t values[4][FEW_X][64]; /* as weights are multiplied with them */
    float e[2][4][FEW_X];        /* of parts 4 i + k; K-quants: the first of all */
    union {
        int32_t excess[2][4][FEW_X];  /* parts: what products have too much, less than zero */
        int16_t sums[2][4][FEW_X][2]; /* K-quants: of two groups */
    };
    float x_sums[2][4][FEW_X]; /* parts */
} __attribute__((aligned(64)));

struct few_job {
    const uint8_t *rows; /* of the matrix, where these blocks begin */
    size_t row_bytes;
    size_t ahead;              /* bytes to what is fetched meanwhile */
    uint32_t n_rows, n_blocks; /* whole ones */
    uint32_t n_last;           /* parts of one behind them */
    const struct few_block *x; /* [block][group] */
    __m512 *sums;              /* [row][group] */
};

/* ---- rows x ---------------------------------------------------------------------------------- */

/* out[p][k] is number p of row x k. */
ALWAYS_INLINE void few_turn(__m128 rows[FEW_X], void *out)
{
    _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
    UNROLL for (uint32_t p = 0; p < 4; p++) _mm_store_ps((float *)out + FEW_X * p, rows[p]);
}

/* Four parts, from 4 i on, of a group. */
static void few_prepare_parts(int32_t bias, const struct product_block *const *x, uint32_t b,
                              uint32_t i, struct few_block *out)
{
    __m128 e[FEW_X], excess[FEW_X], x_sums[FEW_X];
    for (uint32_t k = 0; k < FEW_X; k++) {
        const struct product_block *block = &x[k][b];
        const __m512i first = _mm512_loadu_si512(block->values + 128 * i),
                      last = _mm512_loadu_si512(block->values + 128 * i + 64);
        const __m128i sums = _mm_loadu_si128((const void *)(block->part_sums + 4 * i));
        e[k] = _mm_loadu_ps(block->scales + 4 * i);
        excess[k] = _mm_castsi128_ps(_mm_mullo_epi32(sums, _mm_set1_epi32(-bias)));
        x_sums[k] = _mm_loadu_ps(block->x_sums + 4 * i);
        _mm512_store_si512(out->values[2 * i][k], _mm512_shuffle_i32x4(first, last, 0x88));
        _mm512_store_si512(out->values[2 * i + 1][k], _mm512_shuffle_i32x4(first, last, 0xdd));
    }
    few_turn(e, out->e[i]);
    few_turn(excess, out->excess[i]);
    few_turn(x_sums, out->x_sums[i]);
}

static void few_prepare_block(const struct product_block *const *x, uint32_t b,
                              struct few_block *out)
{
    for (uint32_t k = 0; k < FEW_X; k++) {
        const struct product_block *block = &x[k][b];
        for (uint32_t j = 0; j < 4; j++)
            _mm512_store_si512(out->values[j][k], _mm512_loadu_si512(block->values + 64 * j));
        for (uint32_t p = 0; p < 8; p++)
            memcpy(out->sums[p / 4][p % 4][k], &block->sums[2 * p], sizeof out->sums[0][0][0]);
        out->e[0][0][k] = block->scale;
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* [a0 + a1, a2 + a3, b0 + b1, b2 + b3] of each lane; what is not wide fits 16 bits. */
ALWAYS_INLINE __m512i few_add_pairs(__m512i a, __m512i b, bool is_wide)
{
    if (!is_wide)
        return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
    const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

/* Number k of each lane is the sum of the lane's of dots[k], for k < n; else it may be anything. */
ALWAYS_INLINE __m512i few_add_up(const __m512i dots[FEW_X], uint32_t n, bool is_wide)
{
    const __m512i first = few_add_pairs(dots[0], dots[n > 1], is_wide);
    return few_add_pairs(
        first, n > 2 ? few_add_pairs(dots[2], dots[n > 3 ? 3 : 2], is_wide) : first, true);
}

/* ---- a block --------------------------------------------------------------------------------- */

struct few_parts { /* four: their first and their last sixteen weights, d and m */
    __m512i weights[2];
    __m512 d, m;
};

/* Parts 4 i to 4 i + 3 of a block. */
typedef void few_unpack(const uint8_t *block, uint32_t i, struct few_parts *out);

/* 16 bytes of each of four parts, in lanes. Vectors of 64 bytes across lines would be fewer loads,
 * and are faster from the cache, but take twice as long from memory. */
ALWAYS_INLINE __m512i few_lanes(const uint8_t *from, size_t step)
{
    const uint8_t *const parts[13] = {
        [0] = from, [4] = from + step, [8] = from + 2 * step, [12] = from + 3 * step};
    return lanes_of_four(parts, 0, 0);
}

/* The F16 number at the begin of each of four parts, in all of its lane. */
ALWAYS_INLINE __m512 few_halves(const uint8_t *from, size_t step)
{
    const __m256i order = _mm256_setr_epi16(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    uint64_t four = 0;
    UNROLL for (uint32_t p = 0; p < 4; p++)
    {
        uint16_t one;
        memcpy(&one, from + p * step, sizeof one);
        four |= (uint64_t)one << 16 * p;
    }
    return _mm512_cvtph_ps(
        _mm256_permutexvar_epi16(order, _mm256_castsi128_si256(_mm_cvtsi64_si128((int64_t)four))));
}

/* Weights of four bits. */
ALWAYS_INLINE void few_put_fours(__m512i both, const __m128i *table, struct few_parts *out)
{
    const __m512i mask = _mm512_set1_epi8(15);
    out->weights[0] = _mm512_and_si512(both, mask);
    out->weights[1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    UNROLL for (uint32_t i = 0; table && i < 2; i++) out->weights[i] =
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(*table), out->weights[i]);
}

/* The fifth bits are the four bytes before. */
ALWAYS_INLINE void few_put_fives(const uint8_t *from, size_t step, struct few_parts *out)
{
    uint64_t bits[2] = {0, 0};
    few_put_fours(few_lanes(from, step), NULL, out);
    UNROLL for (uint32_t p = 0; p < 4; p++)
    {
        uint32_t fifth;
        memcpy(&fifth, from + p * step - 4, sizeof fifth);
        bits[0] |= (uint64_t)(fifth & 0xffff) << 16 * p;
        bits[1] |= (uint64_t)(fifth >> 16) << 16 * p;
    }
    UNROLL for (uint32_t i = 0; i < 2; i++) out->weights[i] =
        _mm512_mask_add_epi8(out->weights[i], bits[i], out->weights[i], _mm512_set1_epi8(16));
}

ALWAYS_INLINE void few_unpack_q40(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const uint8_t *from = block + 72 * i;
    few_put_fours(few_lanes(from + 2, 18), NULL, out);
    out->d = few_halves(from, 18);
}

ALWAYS_INLINE void few_unpack_q41(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const uint8_t *from = block + 80 * i;
    few_put_fours(few_lanes(from + 4, 20), NULL, out);
    out->d = few_halves(from, 20);
    out->m = few_halves(from + 2, 20);
}

ALWAYS_INLINE void few_unpack_q50(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const uint8_t *from = block + 88 * i;
    few_put_fives(from + 6, 22, out);
    out->d = few_halves(from, 22);
}

ALWAYS_INLINE void few_unpack_q51(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const uint8_t *from = block + 96 * i;
    few_put_fives(from + 8, 24, out);
    out->d = few_halves(from, 24);
    out->m = few_halves(from + 2, 24);
}

ALWAYS_INLINE void few_unpack_iq4nl(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const __m128i table = part_table_iq4();
    const uint8_t *from = block + 72 * i;
    few_put_fours(few_lanes(from + 2, 18), &table, out);
    out->d = few_halves(from, 18);
}

/* Two parts of 32 bytes beside each other. */
ALWAYS_INLINE __m512i few_eights(const uint8_t *from)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(load32(from + 2)), load32(from + 36), 1);
}

ALWAYS_INLINE void few_unpack_q80(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const uint8_t *from = block + 136 * i;
    const __m512i bias = _mm512_set1_epi8((char)0x80);
    const __m512i a = few_eights(from), b = few_eights(from + 68);
    out->weights[0] = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0x88), bias);
    out->weights[1] = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0xdd), bias);
    out->d = few_halves(from, 34);
}

/* Scales of eight parts: those of parts 4 i, ... in lanes. */
ALWAYS_INLINE __m512 few_spread(const float of_parts[PRODUCT_PARTS], uint32_t i)
{
    const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(order, _mm512_castps128_ps512(_mm_loadu_ps(of_parts + 4 * i)));
}

ALWAYS_INLINE void few_unpack_iq4xs(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const __m128i table = part_table_iq4();
    float d[PRODUCT_PARTS];
    part_scales_iq4(block, d);
    few_put_fours(few_lanes(block + 8 + 64 * i, 16), &table, out);
    out->d = few_spread(d, i);
}

ALWAYS_INLINE void few_unpack_mxfp4(const uint8_t *block, uint32_t i, struct few_parts *out)
{
    const __m128i table = part_table_mx4();
    float d[PRODUCT_PARTS];
    part_scales_mx4(block, d);
    few_put_fours(few_lanes(block + 68 * i + 1, 17), &table, out);
    out->d = few_spread(d, i);
}

/* What four parts, or a block of K-quants, have to be added to the sums of a group of rows x. It
 * waits while the next ones are multiplied, so that the processor has work meanwhile. */
struct few_dots {
    __m512i products[FEW_X];
    __m512i offsets; /* K-quants */
    __m512 d, m;
};

/* Parts 4 i to 4 i + 3 of a block, for n <= FEW_X rows x, a constant, of a group. */
ALWAYS_INLINE void few_dot_parts(const struct few_parts *parts, uint32_t i, uint32_t n,
                                 const struct few_block *x, struct few_dots *out)
{
    out->d = parts->d, out->m = parts->m;
    UNROLL for (uint32_t k = 0; k < n; k++)
    {
        const __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), parts->weights[0],
                                                _mm512_load_si512(x->values[2 * i][k]));
        out->products[k] =
            _mm512_dpbusd_epi32(dot, parts->weights[1], _mm512_load_si512(x->values[2 * i + 1][k]));
    }
}

ALWAYS_INLINE void few_add_parts(const struct part_form *form, const struct few_dots *dots,
                                 uint32_t i, uint32_t n, const struct few_block *x, __m512 *y)
{
    const __m512i sums = _mm512_add_epi32(few_add_up(dots->products, n, form->is_wide),
                                          _mm512_load_si512(x->excess[i]));
    *y = _mm512_fmadd_ps(_mm512_mul_ps(dots->d, _mm512_load_ps(x->e[i])), _mm512_cvtepi32_ps(sums),
                         *y);
    if (form->has_m)
        *y = _mm512_fmadd_ps(dots->m, _mm512_load_ps(x->x_sums[i]), *y);
}

/* Offsets times the sums of groups: as products, a lane's numbers are those of rows x. */
ALWAYS_INLINE __m512i few_offsets(__m256i offsets, const struct few_block *x)
{
    const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                  all = _mm512_castsi256_si512(offsets);
    return _mm512_dpwssd_epi32(
        _mm512_madd_epi16(_mm512_permutexvar_epi32(order, all), _mm512_load_si512(x->sums[0])),
        _mm512_permutexvar_epi32(_mm512_add_epi32(order, _mm512_set1_epi32(4)), all),
        _mm512_load_si512(x->sums[1]));
}

/* The sum of all lanes. */
ALWAYS_INLINE __m128i few_add_lanes(__m512i x)
{
    const __m256i two =
        _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
}

ALWAYS_INLINE void few_dot_block(const struct row_weights *row, uint32_t n,
                                 const struct few_block *x, struct few_dots *out)
{
    UNROLL for (uint32_t k = 0; k < n; k++) out->products[k] =
        row_products(row, x->values[0][k], sizeof x->values[0]);
    out->offsets = few_offsets(row->offsets, x);
}

ALWAYS_INLINE void few_add_block(const struct row_form *form, const struct few_dots *dots,
                                 uint32_t n, const struct few_block *x, __m512 *y)
{
    const __m128 both = _mm512_castps512_ps128(dots->d), e = _mm_load_ps(x->e[0][0]);
    __m512i sums = few_add_up(dots->products, n, true);
    __m128 sum = _mm512_castps512_ps128(*y);
    if (!form->has_dmin)
        sums = _mm512_sub_epi32(sums, _mm512_slli_epi32(dots->offsets, form->offset_shift));
    sum = _mm_fmadd_ps(_mm_mul_ps(_mm_broadcastss_ps(both), e),
                       _mm_cvtepi32_ps(few_add_lanes(sums)), sum);
    if (form->has_dmin)
        sum = _mm_fnmadd_ps(_mm_mul_ps(_mm_permute_ps(both, 0x55), e),
                            _mm_cvtepi32_ps(few_add_lanes(dots->offsets)), sum);
    *y = _mm512_castps128_ps512(sum);
}

/* ---- rows ------------------------------------------------------------------------------------ */

ALWAYS_INLINE void few_fetch(const uint8_t *from, uint32_t bytes)
{
    UNROLL for (uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

/* As far ahead as a single row of activations fetches. Of a part of each row, the same of rows
 * behind it is next, not what stands behind it. */
static size_t few_ahead(size_t row_bytes, size_t part_bytes)
{
    return part_bytes < row_bytes ? (ROW_AHEAD + part_bytes - 1) / part_bytes * row_bytes
                                  : ROW_AHEAD;
}

/* How many rows x of n are in group g. */
ALWAYS_INLINE uint32_t few_x_of(uint32_t n, uint32_t g)
{
    return n - FEW_X * g < FEW_X ? n - FEW_X * g : FEW_X;
}

/* A block for n rows x, a constant; `before` is what waits of the one before. */
ALWAYS_INLINE void few_multiply_parts(const struct part_form *form, few_unpack *unpack,
                                      const uint8_t *block, bool is_first, uint32_t n,
                                      const struct few_block *x, struct few_dots *before, __m512 *y)
{
    const uint32_t n_groups = (n + FEW_X - 1) / FEW_X;
    struct few_parts parts = {.m = _mm512_setzero_ps()};
    UNROLL for (uint32_t at = 0; at < 2 * n_groups; at++)
    {
        const uint32_t g = at % n_groups, last = (at + 2 * n_groups - 1) % (2 * n_groups);
        const uint32_t last_g = last % n_groups;
        struct few_dots dots;
        if (g == 0)
            unpack(block, at / n_groups, &parts);
        few_dot_parts(&parts, at / n_groups, few_x_of(n, g), &x[g], &dots);
        if (at > 0)
            few_add_parts(form, before, last / n_groups, few_x_of(n, last_g), &x[last_g],
                          &y[last_g]);
        else if (!is_first)
            few_add_parts(form, before, 1, few_x_of(n, last_g), x - 1, &y[last_g]);
        *before = dots;
    }
}

ALWAYS_INLINE void few_multiply_part_rows(const struct part_form *form, few_unpack *unpack,
                                          uint32_t n, const struct few_job *job)
{
    const uint32_t n_groups = (n + FEW_X - 1) / FEW_X;
    for (uint32_t r = 0; r < job->n_rows; r++) {
        const uint8_t *block = job->rows + r * job->row_bytes;
        const struct few_block *x = job->x;
        struct few_dots before = {.offsets = _mm512_setzero_si512()};
        uint8_t last[PRODUCT_PARTS * 34];
        __m512 y[FEW_GROUPS], *sums = job->sums + r * n_groups;
        UNROLL for (uint32_t g = 0; g < n_groups; g++) y[g] = sums[g];
        for (uint32_t b = 0; b < job->n_blocks + (job->n_last != 0); b++) {
            if (b == job->n_blocks) {
                memset(last, 0, sizeof last);
                block = memcpy(last, block, job->n_last * form->block_bytes / PRODUCT_PARTS);
            } else {
                few_fetch(block + job->ahead, form->block_bytes);
            }
            few_multiply_parts(form, unpack, block, b == 0, n, x, &before, y);
            block += form->block_bytes, x += n_groups;
        }
        few_add_parts(form, &before, 1, few_x_of(n, n_groups - 1), x - 1, &y[n_groups - 1]);
        UNROLL for (uint32_t g = 0; g < n_groups; g++) sums[g] = y[g];
    }
}

ALWAYS_INLINE void few_multiply_block(const struct row_form *form, const uint8_t *block,
                                      bool is_first, uint32_t n, const struct few_block *x,
                                      struct few_dots *before, __m512 *y)
{
    const uint32_t n_groups = (n + FEW_X - 1) / FEW_X;
    struct row_weights row;
    form->unpack(block, &row);
    UNROLL for (uint32_t g = 0; g < n_groups; g++)
    {
        const uint32_t last = (g + n_groups - 1) % n_groups;
        struct few_dots dots;
        few_dot_block(&row, few_x_of(n, g), &x[g], &dots);
        if (g > 0 || !is_first)
            few_add_block(form, before, few_x_of(n, last), g > 0 ? &x[last] : x - 1, &y[last]);
        dots.d = _mm512_castps128_ps512(_mm_cvtph_ps(form->has_dmin
                                                         ? _mm_loadu_si32(block + form->d_at)
                                                         : _mm_loadu_si16(block + form->d_at)));
        *before = dots;
    }
}

ALWAYS_INLINE void few_multiply_block_rows(const struct row_form *form, uint32_t n,
                                           const struct few_job *job)
{
    const uint32_t n_groups = (n + FEW_X - 1) / FEW_X;
    for (uint32_t r = 0; r < job->n_rows; r++) {
        const uint8_t *block = job->rows + r * job->row_bytes;
        const struct few_block *x = job->x;
        struct few_dots before = {.offsets = _mm512_setzero_si512()};
        __m512 y[FEW_GROUPS], *sums = job->sums + r * n_groups;
        UNROLL for (uint32_t g = 0; g < n_groups; g++) y[g] = sums[g];
        for (uint32_t b = 0; b < job->n_blocks; b++, block += form->bytes, x += n_groups) {
            few_fetch(block + job->ahead, form->bytes);
            few_multiply_block(form, block, b == 0, n, x, &before, y);
        }
        few_add_block(form, &before, few_x_of(n, n_groups - 1), x - 1, &y[n_groups - 1]);
        UNROLL for (uint32_t g = 0; g < n_groups; g++) sums[g] = y[g];
    }
}

typedef void few_rows(const struct few_job *job);

/* For each type: two, three, four and eight rows x. */
#define FEW_EACH(name, form, MULTIPLY)                                                             \
    static __attribute__((noinline)) void few_two_##form(const struct few_job *job)                \
    {                                                                                              \
        MULTIPLY(form, 2, job);                                                                    \
    }                                                                                              \
    static __attribute__((noinline)) void few_three_##form(const struct few_job *job)              \
    {                                                                                              \
        MULTIPLY(form, 3, job);                                                                    \
    }                                                                                              \
    static __attribute__((noinline)) void few_four_##form(const struct few_job *job)               \
    {                                                                                              \
        MULTIPLY(form, 4, job);                                                                    \
    }                                                                                              \
    static __attribute__((noinline)) void few_eight_##form(const struct few_job *job)              \
    {                                                                                              \
        MULTIPLY(form, 8, job);                                                                    \
    }
#define FEW_PARTS(form, n, job) few_multiply_part_rows(&form, few_unpack_##form, n, job)
#define FEW_BLOCKS_OF(form, n, job) few_multiply_block_rows(&row_##form, n, job)
#define FEW_PART_CASE(name, form) FEW_EACH(name, form, FEW_PARTS)
#define FEW_BLOCK_CASE(name, form) FEW_EACH(name, form, FEW_BLOCKS_OF)
PART_TYPES(FEW_PART_CASE)
BLOCK_TYPES(FEW_BLOCK_CASE)
#undef FEW_PART_CASE
#undef FEW_BLOCK_CASE

static few_rows *few_rows_of(enum product_type type, uint32_t n)
{
#define FEW_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        return n == 2   ? few_two_##form                                                           \
               : n == 3 ? few_three_##form                                                         \
               : n == 4 ? few_four_##form                                                          \
                        : few_eight_##form;
    BLOCK_TYPES(FEW_CASE)
    PART_TYPES(FEW_CASE)
#undef FEW_CASE
    return NULL;
}

/* Block b of a group. */
static void few_prepare(enum product_type type, const struct product_block *const *x, uint32_t b,
                        struct few_block *out)
{
    int32_t bias = 0;
#define FEW_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        bias = form.bias;
    PART_TYPES(FEW_CASE)
#undef FEW_CASE
    if (type < PRODUCT_Q4_0) {
        few_prepare_block(x, b, out);
        return;
    }
    few_prepare_parts(bias, x, b, 0, out);
    few_prepare_parts(bias, x, b, 1, out);
}

static uint32_t few_block_bytes(enum product_type type)
{
#define FEW_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        return form.block_bytes;
    PART_TYPES(FEW_CASE)
#undef FEW_CASE
#define FEW_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        return row_##form.bytes;
    BLOCK_TYPES(FEW_CASE)
#undef FEW_CASE
    return 0;
}

/* A row's sums of a group: parts are added up as product.h says, K-quants have one. */
ALWAYS_INLINE __m128 few_total(bool is_of_parts, __m512 y)
{
    const __m128 first = _mm512_castps512_ps128(y);
    if (!is_of_parts)
        return first;
    return _mm_add_ps(_mm_add_ps(first, _mm512_extractf32x4_ps(y, 1)),
                      _mm_add_ps(_mm512_extractf32x4_ps(y, 2), _mm512_extractf32x4_ps(y, 3)));
}

/* Of group g. */
static void few_put(bool is_of_parts, const __m512 *sums, uint32_t n_groups, uint32_t n_rows,
                    uint32_t n, uint32_t row, float *const *y)
{
    for (uint32_t r = 0; r < n_rows; r += 4) {
        const uint32_t n_here = n_rows - r < 4 ? n_rows - r : 4;
        __m128 of[4];
        float out[4][4] __attribute__((aligned(16)));
        for (uint32_t i = 0; i < 4; i++)
            of[i] = few_total(is_of_parts, sums[(r + (i < n_here ? i : 0)) * n_groups]);
        few_turn(of, out);
        for (uint32_t k = 0; k < n; k++)
            memcpy(y[k] + row + r, out[k], n_here * sizeof out[0][0]);
    }
}

static void product_vnni_few(const struct product_matrix *matrix,
                             const struct product_block *const *x, float *const *y, uint32_t n,
                             uint32_t first, uint32_t end)
{
    const struct product_block *filled[FEW_GROUPS * FEW_X];
    struct few_block prepared[FEW_BLOCKS];
    __m512 sums[FEW_ROWS * FEW_GROUPS];
    const uint32_t n_groups = lanes_fill(x, n, filled) / FEW_X, n_at_once = FEW_BLOCKS / n_groups;
    const uint32_t n_blocks = matrix->n_columns / PRODUCT_BLOCK,
                   n_last = matrix->n_columns % PRODUCT_BLOCK / PRODUCT_PART,
                   n_all = n_blocks + (n_last != 0);
    const uint32_t bytes = few_block_bytes(matrix->type);
    few_rows *const multiply = few_rows_of(matrix->type, n);
    for (uint32_t row = first; row < end; row += FEW_ROWS) {
        const uint32_t n_rows = end - row < FEW_ROWS ? end - row : FEW_ROWS;
        memset(sums, 0, n_rows * n_groups * sizeof *sums);
        for (uint32_t b = 0; b < n_all; b += n_at_once) {
            const uint32_t used = n_all - b < n_at_once ? n_all - b : n_at_once;
            const bool is_last = n_last && b + used == n_all;
            for (uint32_t i = 0; i < used * n_groups; i++)
                few_prepare(matrix->type, filled + i % n_groups * FEW_X, b + i / n_groups,
                            &prepared[i]);
            multiply(&(struct few_job){
                .rows = (const uint8_t *)matrix->rows + row * matrix->row_bytes + (size_t)b * bytes,
                .row_bytes = matrix->row_bytes,
                .ahead = few_ahead(matrix->row_bytes, (size_t)n_at_once * bytes),
                .n_rows = n_rows,
                .n_blocks = used - is_last,
                .n_last = is_last ? n_last : 0,
                .x = prepared,
                .sums = sums,
            });
        }
        for (uint32_t g = 0; g < n_groups; g++)
            few_put(matrix->type >= PRODUCT_Q4_0, sums + g, n_groups, n_rows, few_x_of(n, g), row,
                    y + FEW_X * g);
    }
}
