/* Products of types of parts with one to sixteen rows x on processors with AVX-512 VNNI: the
 * arithmetic of product.h, a square at a time.
 *
 * A square is four parts of four rows of the matrix. Its weights are eight vectors, of which each
 * has four weights of all of them: a lane for each row, and in it a number for each part. So a
 * vector of sums has them all, too, and nothing is added up across it: a lane has the four partial
 * sums of its row. Of a row x the same four weights of each part are 16 bytes, which a load spreads
 * over the lanes; that takes none of the units that multiply.
 *
 * With eight rows x a square gives those units 64 vpdpbusd, 24 operations of floats, and 35 (Q4_0)
 * to 50 (Q8_0) for its weights. On AMD's Zen 5 instructions that move bytes between lanes
 * (vpermt2w, vshufi32x4) and stores are the dear ones.
 *
 * The next square is loaded and turned before this one is multiplied, so that memory is waited for
 * meanwhile. Without that two rows x took 1.4 times as long. */
#pragma once

#include "kernels/product_strip_unpack_vnni.h"

#include <assert.h>

enum {
    SQUARE = 4,          /* rows of the matrix, and parts */
    SQUARE_X = 8,        /* rows x of a pass, at most */
    SQUARE_SIDE = 4,     /* rows x whose sums are under way: registers hold no more, but all with
                            weights of four bits, two of which are in a byte */
    SQUARE_UPPER = 3,    /* rows x, at most, that multiply upper weights where they are in a byte */
    SQUARE_BLOCKS = 64,  /* of eight parts, of all rows x of a pass, that the first cache holds */
    SQUARE_ROWS = 256,   /* of the matrix, whose sums are kept meanwhile */
    SQUARE_PUT = 16,     /* rows of the matrix */
    SQUARE_AHEAD = 6144, /* bytes that are fetched early, at least */
};

struct square_x {      /* what a square is multiplied with of a row x */
    __m128i values[8]; /* [i]: values 4 i to 4 i + 3 of each part */
    __m128 scale;      /* of each part, as … */
    union {
        __m128 value_sum; /* … for types with m this is, for the others */
        __m128i excess;   /* what their products have too much, less than zero */
    };
};

struct square_job {
    const uint8_t *rows; /* of the matrix, where these blocks begin */
    size_t row_bytes;
    size_t ahead; /* bytes to what is fetched meanwhile */
    uint32_t n_rows;
    uint32_t n_blocks;        /* whole ones */
    uint32_t n_last;          /* parts of one behind them */
    const struct square_x *x; /* [half of a block][row x] */
    __m512 *sums;             /* [square of rows][row x] */
};

/* ---- rows x ---------------------------------------------------------------------------------- */

/* Of four parts of eight numbers each: number 4 h + i of each part in lane i. */
ALWAYS_INLINE __m512i square_order(uint32_t h)
{
    return _mm512_add_epi32(
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27),
        _mm512_set1_epi32((int)(4 * h)));
}

/* Parts 4 i to 4 i + 3. Types with m have no bias. */
ALWAYS_INLINE void square_prepare(bool has_m, int32_t bias, const struct product_block *block,
                                  uint32_t i, struct square_x *out)
{
    const __m512i first = _mm512_loadu_si512(block->values + 128 * i),
                  last = _mm512_loadu_si512(block->values + 128 * i + 64);
    const __m128i sums = _mm_loadu_si128((const void *)(block->part_sums + 4 * i));
    UNROLL for (uint32_t h = 0; h < 2; h++) _mm512_storeu_si512(
        &out->values[4 * h], _mm512_permutex2var_epi32(first, square_order(h), last));
    out->scale = _mm_loadu_ps(block->scales + 4 * i);
    if (has_m) /* s, the same bytes */
        out->value_sum = _mm_castsi128_ps(sums);
    else
        out->excess = _mm_mullo_epi32(sums, _mm_set1_epi32(-bias));
}

/* ---- a square -------------------------------------------------------------------------------- */

/* A square is a strip, too, whose rows are parts of one part each. Of four bits two weights stay in
 * a byte of the first four vectors until they are multiplied, which registers hold: a store takes
 * both units that multiply for a cycle. */
typedef void square_unpack(const uint8_t *const *blocks, uint32_t i, struct strip *out);

/* Are weights numbers of eight bits, or of four that stand for themselves or for those of a table?
 */
enum square_kind { SQUARE_EIGHTS, SQUARE_FOURS, SQUARE_FOURS_IQ4, SQUARE_FOURS_MX4 };
enum {
    square_kind_q40 = SQUARE_FOURS,
    square_kind_q41 = SQUARE_FOURS,
    square_kind_q50 = SQUARE_EIGHTS,
    square_kind_q51 = SQUARE_EIGHTS,
    square_kind_q80 = SQUARE_EIGHTS,
    square_kind_iq4nl = SQUARE_FOURS_IQ4,
    square_kind_iq4xs = SQUARE_FOURS_IQ4,
    square_kind_mxfp4 = SQUARE_FOURS_MX4,
};

/* Weights 4 i to 4 i + 3 of all parts. */
ALWAYS_INLINE __m512i square_weights(enum square_kind kind, const struct strip *square, uint32_t i)
{
    if (kind == SQUARE_EIGHTS)
        return square->weights[i];
    const __m512i both = square->weights[i % 4];
    const __m512i fours =
        _mm512_and_si512(i < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    if (kind == SQUARE_FOURS)
        return fours;
    return _mm512_shuffle_epi8(kind == SQUARE_FOURS_IQ4 ? strip_table_iq4() : strip_table_mx4(),
                               fours);
}

/* Lane r of out[i] is row r's lane i. */
ALWAYS_INLINE void square_turn(const __m512i rows[SQUARE], __m512i out[SQUARE])
{
    const __m512i a = _mm512_shuffle_i32x4(rows[0], rows[1], 0x44),
                  b = _mm512_shuffle_i32x4(rows[0], rows[1], 0xee),
                  c = _mm512_shuffle_i32x4(rows[2], rows[3], 0x44),
                  d = _mm512_shuffle_i32x4(rows[2], rows[3], 0xee);
    out[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    out[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    out[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

/* Parts 4 i to 4 i + 3 of a row's block, of `step` bytes, 18 or 20, from so far before them that
 * their weights begin with a number of four bytes: all their F16 numbers, and the weights of parts
 * 0 and 2. What is before the block is not read. */
ALWAYS_INLINE __m512i square_begin(const uint8_t *block, uint32_t i, size_t step)
{
    const uint8_t *parts = block + 4 * step * i;
    if (step == 20)
        return _mm512_loadu_si512(parts);
    return i ? _mm512_loadu_si512(parts - 2)
             : _mm512_maskz_loadu_epi16(~1u, (const void *)((uintptr_t)parts - 2));
}

/* The last 16 bytes of each of a row's four parts: of each the first four in lane 0, and so on. No
 * byte behind the parts is read.
 *
 * Numbers of four bytes are what is moved: those of parts 0 and 2 from the begin, those of parts 1
 * and 3 from where 64 bytes end with part 3's. */
ALWAYS_INLINE __m512i square_ends(__m512i begin, const uint8_t *parts, size_t step)
{
    const int quarter = (int)step / 2; /* two parts are so many numbers */
    const __m512i order =
        _mm512_add_epi32(_mm512_broadcast_i32x4(_mm_setr_epi32(1, 28 - quarter, 1 + quarter, 28)),
                         _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
    return _mm512_permutex2var_epi32(begin, order, _mm512_loadu_si512(parts + 4 * step - 64));
}

/* F16 numbers of four rows, of which each has those of its parts as words `at`, at + step, ... */
ALWAYS_INLINE __m512 square_heads(const __m512i rows[SQUARE], uint32_t at, uint32_t step)
{
    uint16_t words[32] = {0};
    UNROLL for (uint32_t i = 0; i < 16; i++) words[i] =
        (uint16_t)(at + i % 4 * step + i / 4 % 2 * 32);
    const __m512i order = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)words));
    const __m512i first = _mm512_permutex2var_epi16(rows[0], order, rows[1]),
                  last = _mm512_permutex2var_epi16(rows[2], order, rows[3]);
    return _mm512_cvtph_ps(_mm256_mask_blend_epi16(0xff00, _mm512_castsi512_si256(first),
                                                   _mm512_castsi512_si256(last)));
}

/* Parts of `step` bytes, 18 or 20, whose weights of four bits end them. */
ALWAYS_INLINE void square_unpack_fours(const uint8_t *const *blocks, uint32_t i, size_t step,
                                       struct strip *out)
{
    __m512i begins[SQUARE], rows[SQUARE];
    UNROLL for (uint32_t r = 0; r < SQUARE; r++)
    {
        begins[r] = square_begin(blocks[r], i, step);
        rows[r] = square_ends(begins[r], blocks[r] + 4 * step * i, step);
    }
    square_turn(rows, out->weights);
    out->d = square_heads(begins, step == 18, (uint32_t)step / 2);
    if (step == 20)
        out->m = square_heads(begins, 1, 10);
}

ALWAYS_INLINE void square_unpack_q40(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    square_unpack_fours(blocks, i, 18, out);
}

ALWAYS_INLINE void square_unpack_q41(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    square_unpack_fours(blocks, i, 20, out);
}

ALWAYS_INLINE void square_unpack_iq4nl(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    square_unpack_fours(blocks, i, 18, out);
}

ALWAYS_INLINE void square_unpack_iq4xs(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i heads = strip_lanes(blocks, 1, 0);
    __m512i rows[SQUARE];
    UNROLL for (uint32_t r = 0; r < SQUARE; r++) rows[r] =
        _mm512_permutexvar_epi32(order, _mm512_loadu_si512(blocks[r] + 8 + 64 * i));
    square_turn(rows, out->weights);
    out->d =
        strip_scales_iq4xs(_mm512_shuffle_epi32(heads, 0x00), _mm512_shuffle_epi32(heads, 0x55),
                           _mm512_add_epi32(_mm512_set1_epi32((int)(SQUARE * i)),
                                            _mm512_broadcast_i32x4(_mm_setr_epi32(0, 1, 2, 3))));
}

/* The F16 number at the begin of each of a row's four parts of 34 bytes, in each lane: of parts 0
 * and 2 the lower half of a number of four bytes, of parts 1 and 3 the upper one. */
ALWAYS_INLINE __m512i square_eight_heads(const uint8_t *parts)
{
    return _mm512_permutex2var_epi32(_mm512_loadu_si512(parts),
                                     _mm512_broadcast_i32x4(_mm_setr_epi32(0, 8, 16, 24)),
                                     _mm512_loadu_si512(parts + 68));
}

/* Two parts of 32 bytes beside each other. */
ALWAYS_INLINE __m512i square_eights(const uint8_t *parts)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(load32(parts + 2)), load32(parts + 36), 1);
}

ALWAYS_INLINE void square_unpack_q80(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    const __m512i bias = _mm512_set1_epi8((char)0x80);
    __m512i heads[SQUARE], rows[2][SQUARE];
    UNROLL for (uint32_t r = 0; r < SQUARE; r++)
    {
        const uint8_t *parts = blocks[r] + 136 * i;
        const __m512i a = square_eights(parts), b = square_eights(parts + 68);
        heads[r] = square_eight_heads(parts);
        UNROLL for (uint32_t h = 0; h < 2; h++) rows[h][r] =
            _mm512_xor_si512(_mm512_permutex2var_epi32(a, square_order(h), b), bias);
    }
    UNROLL for (uint32_t h = 0; h < 2; h++) square_turn(rows[h], out->weights + SQUARE * h);
    const __m512i first = _mm512_mask_blend_epi32(0x00f0, heads[0], heads[1]),
                  last = _mm512_mask_blend_epi32(0xf000, heads[2], heads[3]),
                  halves = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 16, 0, 16));
    out->d =
        lanes_low_half(_mm512_srlv_epi32(_mm512_mask_blend_epi32(0xff00, first, last), halves));
}

/* A strip's rows, of `step` bytes. */
ALWAYS_INLINE void square_parts(const uint8_t *const *blocks, uint32_t i, size_t step,
                                const uint8_t *parts[STRIP_ROWS])
{
    UNROLL for (uint32_t k = 0; k < STRIP_ROWS; k++) parts[k] =
        blocks[k / SQUARE] + (SQUARE * i + k % SQUARE) * step;
}

ALWAYS_INLINE void square_unpack_q50(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    const uint8_t *parts[STRIP_ROWS];
    square_parts(blocks, i, 22, parts);
    strip_unpack_q50(parts, 0, 0, out);
}

ALWAYS_INLINE void square_unpack_q51(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    const uint8_t *parts[STRIP_ROWS];
    square_parts(blocks, i, 24, parts);
    strip_unpack_q51(parts, 0, 0, out);
}

ALWAYS_INLINE void square_unpack_mxfp4(const uint8_t *const *blocks, uint32_t i, struct strip *out)
{
    const uint8_t *parts[STRIP_ROWS];
    square_parts(blocks, i, 17, parts);
    out->d = strip_scales_mxfp4(parts, 0);
    strip_turn(parts, 1, out->weights);
}

/* Sums of weights of four bits that stand for themselves, times n rows x. The upper ones are
 * multiplied where they are in their byte, and their sums are moved down instead: a few rows x have
 * fewer of these than there are vectors of weights. */
ALWAYS_INLINE void square_add_fours(const struct strip *square, uint32_t n,
                                    const struct square_x *x, __m512i *dot)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i upper[SQUARE_X];
    UNROLL for (uint32_t k = 0; k < n; k++) upper[k] = _mm512_setzero_si512();
    UNROLL for (uint32_t i = 0; i < SQUARE; i++)
    {
        const __m512i both = square->weights[i];
        UNROLL for (uint32_t k = 0; k < n; k++)
        {
            dot[k] = _mm512_dpbusd_epi32(dot[k], _mm512_and_si512(both, low),
                                         _mm512_broadcast_i32x4(x[k].values[i]));
            upper[k] = _mm512_dpbusd_epi32(upper[k], _mm512_andnot_si512(low, both),
                                           _mm512_broadcast_i32x4(x[k].values[i + SQUARE]));
        }
    }
    UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
        _mm512_add_epi32(dot[k], _mm512_srai_epi32(upper[k], 4));
}

/* Sums of weights of any kind. */
ALWAYS_INLINE void square_add(enum square_kind kind, const struct strip *square, uint32_t n,
                              const struct square_x *x, __m512i *dot)
{
    UNROLL for (uint32_t i = 0; i < PRODUCT_PART / 4; i++)
    {
        const __m512i w = square_weights(kind, square, i);
        UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
            _mm512_dpbusd_epi32(dot[k], w, _mm512_broadcast_i32x4(x[k].values[i]));
    }
}

/* Times n rows x, a constant, which take turns: what a row's sum adds to waits. */
ALWAYS_INLINE void square_multiply_some(bool has_m, enum square_kind kind,
                                        const struct strip *square, uint32_t n,
                                        const struct square_x *x, __m512 *y)
{
    __m512i dot[SQUARE_X];
    UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
        has_m ? _mm512_setzero_si512() : _mm512_broadcast_i32x4(x[k].excess);
    if (kind == SQUARE_FOURS && n <= SQUARE_UPPER)
        square_add_fours(square, n, x, dot);
    else
        square_add(kind, square, n, x, dot);
    UNROLL for (uint32_t k = 0; k < n; k++)
    {
        y[k] = _mm512_fmadd_ps(_mm512_mul_ps(square->d, _mm512_broadcast_f32x4(x[k].scale)),
                               _mm512_cvtepi32_ps(dot[k]), y[k]);
        if (has_m)
            y[k] = _mm512_fmadd_ps(square->m, _mm512_broadcast_f32x4(x[k].value_sum), y[k]);
    }
}

/* Times n rows x, a constant. */
ALWAYS_INLINE void square_multiply(bool has_m, enum square_kind kind, const struct strip *square,
                                   uint32_t n, const struct square_x *x, __m512 *y)
{
    const uint32_t side = kind == SQUARE_EIGHTS ? SQUARE_SIDE : SQUARE_X;
    UNROLL for (uint32_t k = 0; k < n; k += side)
        square_multiply_some(has_m, kind, square, n - k < side ? n - k : side, x + k, y + k);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What is fetched early, to the first cache: the same blocks of rows behind these, one row after
 * the other, as memory likes it. */
struct square_ahead {
    uintptr_t at;
    uint32_t left; /* blocks of that row */
};

ALWAYS_INLINE void square_fetch(size_t row_bytes, uint32_t n_blocks, uint32_t bytes,
                                struct square_ahead *ahead)
{
    UNROLL for (uint32_t i = 0; i < SQUARE; i++)
    {
        UNROLL for (uint32_t at = 0; at < bytes; at += 64)
            __builtin_prefetch((const void *)(ahead->at + at));
        ahead->at += bytes;
        if (--ahead->left == 0) {
            ahead->at += row_bytes - (size_t)n_blocks * bytes;
            ahead->left = n_blocks;
        }
    }
}

/* What is behind the last parts are zeros. */
static void square_take_last(uint32_t bytes, uint8_t (*to)[PRODUCT_PARTS * 34],
                             const uint8_t **blocks)
{
    for (uint32_t r = 0; r < SQUARE; r++) {
        memset(to[r], 0, sizeof to[r]);
        blocks[r] = memcpy(to[r], blocks[r], bytes);
    }
}

/* Makes block b of each row ready, and fetches what comes later. */
ALWAYS_INLINE void square_take(const struct part_form *form, const struct square_job *job,
                               uint32_t b, const uint8_t **blocks,
                               uint8_t (*last)[PRODUCT_PARTS * 34], struct square_ahead *ahead)
{
    if (b == job->n_blocks)
        square_take_last(job->n_last * form->block_bytes / PRODUCT_PARTS, last, blocks);
    else
        square_fetch(job->row_bytes, job->n_blocks, form->block_bytes, ahead);
}

ALWAYS_INLINE void square_multiply_rows(const struct part_form *form, enum square_kind kind,
                                        square_unpack *unpack, uint32_t n,
                                        const struct square_job *job)
{
    struct square_ahead ahead = {(uintptr_t)job->rows + job->ahead, job->n_blocks};
    const uint32_t n_all = job->n_blocks + (job->n_last != 0);
    for (uint32_t row = 0; row < job->n_rows; row += SQUARE) {
        const uint8_t *blocks[SQUARE];
        const struct square_x *x = job->x;
        uint8_t last[SQUARE][PRODUCT_PARTS * 34];
        __m512 y[SQUARE_X], *sums = job->sums + row / SQUARE * n;
        UNROLL for (uint32_t r = 0; r < SQUARE; r++) blocks[r] =
            job->rows + (row + r < job->n_rows ? row + r : job->n_rows - 1) * job->row_bytes;
        UNROLL for (uint32_t k = 0; k < n; k++) y[k] = sums[k];
        struct strip first, second;
        square_take(form, job, 0, blocks, last, &ahead);
        unpack(blocks, 0, &first);
        for (uint32_t b = 0; b < n_all; b++, x += 2 * n) {
            unpack(blocks, 1, &second);
            square_multiply(form->has_m, kind, &first, n, x, y);
            if (b + 1 < n_all) {
                UNROLL for (uint32_t r = 0; r < SQUARE; r++) blocks[r] += form->block_bytes;
                square_take(form, job, b + 1, blocks, last, &ahead);
                unpack(blocks, 0, &first);
            }
            square_multiply(form->has_m, kind, &second, n, x + n, y);
        }
        UNROLL for (uint32_t k = 0; k < n; k++) sums[k] = y[k];
    }
}

/* As many rows as have SQUARE_AHEAD bytes here, of which each has so many. */
static uint32_t square_rows_ahead(uint32_t bytes)
{
    return (SQUARE_AHEAD + SQUARE * bytes - 1) / (SQUARE * bytes) * SQUARE;
}

typedef void square_rows(const struct square_job *job);

/* For each type one to six rows x, and eight. */
#define SQUARE_OF(form, n)                                                                         \
    static __attribute__((noinline)) void square_rows_##form##_##n(const struct square_job *job)   \
    {                                                                                              \
        square_multiply_rows(&form, (enum square_kind)square_kind_##form, square_unpack_##form, n, \
                             job);                                                                 \
    }
#define SQUARE_EACH(name, form)                                                                    \
    SQUARE_OF(form, 1)                                                                             \
    SQUARE_OF(form, 2)                                                                             \
    SQUARE_OF(form, 3) SQUARE_OF(form, 4) SQUARE_OF(form, 5) SQUARE_OF(form, 6) SQUARE_OF(form, 8)
PART_TYPES(SQUARE_EACH)
#undef SQUARE_EACH
#undef SQUARE_OF

struct square_form {
    const struct part_form *of;
    square_rows *multiply[SQUARE_X + 1]; /* [rows x] */
};

static struct square_form square_form_of(enum product_type type)
{
#define SQUARE_CASE(name, form)                                                                    \
    if (type == PRODUCT_##name)                                                                    \
        return (struct square_form){&form,                                                         \
                                    {[1] = square_rows_##form##_1,                                 \
                                     [2] = square_rows_##form##_2,                                 \
                                     [3] = square_rows_##form##_3,                                 \
                                     [4] = square_rows_##form##_4,                                 \
                                     [5] = square_rows_##form##_5,                                 \
                                     [6] = square_rows_##form##_6,                                 \
                                     [8] = square_rows_##form##_8}};
    PART_TYPES(SQUARE_CASE)
#undef SQUARE_CASE
    return (struct square_form){0};
}

/* Numbers 0 and 1, 2 and 3 of each lane of a, then of b. */
ALWAYS_INLINE __m512 square_add_pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* Rows `row` to row + n_rows - 1 of y, sixteen at a time: the sums of four partial ones, which
 * stand in a lane. */
static void square_put(const __m512 *sums, uint32_t n_x, uint32_t n, uint32_t row, uint32_t n_rows,
                       float *const *y)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (uint32_t r = 0; r < n_rows; r += SQUARE_PUT, sums += SQUARE_PUT / SQUARE * n_x) {
        const uint32_t left = n_rows - r;
        const __mmask16 there = (__mmask16)(left < SQUARE_PUT ? (1u << left) - 1 : 0xffff);
        for (uint32_t k = 0; k < n; k++) {
            const __m512 *of = sums + k;
            const __m512 all = square_add_pairs(square_add_pairs(of[0], of[n_x]),
                                                square_add_pairs(of[2 * n_x], of[3 * n_x]));
            _mm512_mask_storeu_ps(y[k] + row + r, there, _mm512_permutexvar_ps(order, all));
        }
    }
}

/* n <= SQUARE_X rows x, rows `first` to `end` - 1 of the matrix, SQUARE_ROWS at most. */
static void square_pass(const struct product_matrix *matrix, const struct product_block *const *x,
                        float *const *y, uint32_t n, uint32_t first, uint32_t end)
{
    const struct square_form form = square_form_of(matrix->type);
    assert(form.of && n > 0 && n <= SQUARE_X && end - first <= SQUARE_ROWS);
    struct square_x prepared[2 * SQUARE_BLOCKS];
    __m512 sums[SQUARE_ROWS / SQUARE * SQUARE_X];
    uint32_t n_x = n; /* that are computed: the last one may count twice */
    while (!form.multiply[n_x])
        n_x++;
    const uint32_t n_at_once = SQUARE_BLOCKS / n_x;
    const uint32_t n_blocks = matrix->n_columns / PRODUCT_BLOCK,
                   n_last = matrix->n_columns % PRODUCT_BLOCK / PRODUCT_PART,
                   n_all = n_blocks + (n_last != 0);
    memset(sums, 0,
           (end - first + SQUARE_PUT - 1) / SQUARE_PUT * (SQUARE_PUT / SQUARE) * n_x *
               sizeof *sums);
    for (uint32_t b = 0; b < n_all; b += n_at_once) {
        const uint32_t used = n_all - b < n_at_once ? n_all - b : n_at_once;
        const bool is_last = n_last && b + used == n_all;
        for (uint32_t i = 0; i < 2 * used; i++) {
            for (uint32_t k = 0; k < n_x; k++)
                square_prepare(form.of->has_m, form.of->bias, &x[k < n ? k : n - 1][b + i / 2],
                               i % 2, &prepared[i * n_x + k]);
        }
        form.multiply[n_x](&(struct square_job){
            .rows = (const uint8_t *)matrix->rows + first * matrix->row_bytes +
                    (size_t)b * form.of->block_bytes,
            .row_bytes = matrix->row_bytes,
            .ahead = square_rows_ahead(used * form.of->block_bytes) * matrix->row_bytes,
            .n_rows = end - first,
            .n_blocks = used - is_last,
            .n_last = is_last ? n_last : 0,
            .x = prepared,
            .sums = sums,
        });
    }
    square_put(sums, n_x, n, first, end - first, y);
}

/* Where squares are faster than sheaves, by measurement. Fifth bits and scales of eight bits cost
 * more to unpack. */
static bool square_is_worth_it(enum product_type type, uint32_t n)
{
    const bool is_dear = type == PRODUCT_Q5_0 || type == PRODUCT_Q5_1 || type == PRODUCT_MXFP4;
    return n <= (is_dear ? SQUARE_X : 2 * SQUARE_X);
}

/* In passes of as many rows x each as can be. */
static bool product_vnni_squares(const struct product_matrix *matrix,
                                 const struct product_block *const *x, float *const *y, uint32_t n,
                                 uint32_t first, uint32_t end)
{
    const uint32_t n_passes = (n + SQUARE_X - 1) / SQUARE_X;
    if (!square_is_worth_it(matrix->type, n))
        return false;
    for (uint32_t row = first; row < end; row += SQUARE_ROWS) {
        const uint32_t behind = end - row < SQUARE_ROWS ? end : row + SQUARE_ROWS;
        for (uint32_t i = 0; i < n_passes; i++) {
            const uint32_t at = n * i / n_passes;
            square_pass(matrix, x + at, y + at, n * (i + 1) / n_passes - at, row, behind);
        }
    }
    return true;
}
