/* Products of types of parts with one to sixteen rows x on processors with AVX-512 VNNI: the
 * arithmetic of product.h, a square at a time.
 *
 * A square is four parts of four rows of the matrix. Its weights are eight vectors, of which each
 * has four weights of all of them: a lane for each part, and in it a number for each row. So a
 * vector of sums has them all, too, and nothing is added up across it: its lanes are the four
 * partial sums of the four rows. What a row x has four values of for each part is spread over lanes
 * by a shuffle (vpshufd), which does not take the two units that multiply.
 *
 * What bounds it on the processor that it was made on (AMD, Zen 5) is all four vector units: with
 * eight rows x a square is given 64 vpdpbusd, 64 shuffles, 24 operations of floats and 30 for its
 * weights. Instructions that move bytes between lanes (vpermt2w, vinserti32x4) and stores are the
 * dear ones, as they take the units that multiply: six for a square of Q4_0, and two.
 *
 * The next square is loaded and turned before this one is multiplied, so that memory is waited for
 * meanwhile. Without that two rows x took 1.4 times as long. */
#pragma once

#include "kernels/product_lanes_avx512.h"

#include <assert.h>

enum {
    SQUARE = 4,          /* rows of the matrix, and parts */
    SQUARE_X = 8,        /* rows x of a pass, at most */
    SQUARE_SIDE = 4,     /* rows x whose sums are under way: registers hold no more, but all with
                            weights of four bits, two of which are in a byte */
    SQUARE_BLOCKS = 32,  /* of eight parts, of all rows x of a pass, that the first cache holds */
    SQUARE_ROWS = 256,   /* of the matrix, whose sums are kept meanwhile */
    SQUARE_PUT = 16,     /* rows of the matrix */
    SQUARE_AHEAD = 6144, /* bytes that are fetched early, at least */
};

struct square_x {      /* what a square is multiplied with of a row x */
    __m512i values[2]; /* the first and the last sixteen of each part */
    __m512 scale;      /* in all of a lane, as … */
    union {
        __m512 value_sum; /* … for types with m this is, for the others */
        __m512i excess;   /* what their products have too much, less than zero */
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

/* Number p of four in all of lane p. */
ALWAYS_INLINE __m512i square_spread(__m128i four)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        _mm512_castsi128_si512(four));
}

/* Parts 4 i to 4 i + 3. Types with m have no bias. */
ALWAYS_INLINE void square_prepare(bool has_m, int32_t bias, const struct product_block *block,
                                  uint32_t i, struct square_x *out)
{
    const __m512i first = _mm512_loadu_si512(block->values + 128 * i),
                  last = _mm512_loadu_si512(block->values + 128 * i + 64);
    const __m128i sums = _mm_loadu_si128((const void *)(block->part_sums + 4 * i));
    out->values[0] = _mm512_shuffle_i32x4(first, last, 0x88);
    out->values[1] = _mm512_shuffle_i32x4(first, last, 0xdd);
    out->scale =
        _mm512_castsi512_ps(square_spread(_mm_loadu_si128((const void *)(block->scales + 4 * i))));
    if (has_m) /* s, the same bytes */
        out->value_sum = _mm512_castsi512_ps(square_spread(sums));
    else
        out->excess = square_spread(_mm_mullo_epi32(sums, _mm_set1_epi32(-bias)));
}

/* ---- four parts of a row --------------------------------------------------------------------- */

struct square_row {     /* in lanes */
    __m512i weights[2]; /* the first and the last sixteen of each part; of four bits both in [0] */
    __m512 d, m;        /* in all of a lane */
};

/* 16 bytes of each of four parts, from `first` on, in parts of `step` bytes that begin at `part`.
 * No byte behind the parts is read. */
ALWAYS_INLINE __m512i square_lanes(const uint8_t *part, size_t first, size_t step)
{
    if (step == 16)
        return _mm512_loadu_si512(part + first);
    if (step % 2) { /* bytes cannot be moved as words */
        const uint8_t *const parts[13] = {
            [0] = part, [4] = part + step, [8] = part + 2 * step, [12] = part + 3 * step};
        return lanes_of_four(parts, 0, first);
    }
    const size_t behind = 4 * step - 64; /* where a second vector begins, to end with the parts */
    uint16_t words[32];
    UNROLL for (uint32_t i = 0; i < 32; i++)
    {
        const size_t at = i / 8 * step + first + i % 8 * 2;
        words[i] = (uint16_t)(at < 64 ? at / 2 : 32 + (at - behind) / 2);
    }
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(part), _mm512_loadu_si512(words),
                                     _mm512_loadu_si512(part + behind));
}

/* The F16 number at the begin of each of four parts. */
ALWAYS_INLINE __m512 square_halves(const uint8_t *from, size_t step)
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

/* The lower four bits of each byte, h = 0, or the upper ones. */
ALWAYS_INLINE __m512i square_fours(__m512i both, uint32_t h)
{
    return _mm512_and_si512(h ? _mm512_srli_epi16(both, 4) : both, _mm512_set1_epi8(15));
}

/* The fifth bits are the four bytes before. */
ALWAYS_INLINE void square_put_fives(const uint8_t *part, size_t first, size_t step, __m512i out[2])
{
    const __m512i both = square_lanes(part, first, step);
    uint64_t bits[2] = {0, 0};
    UNROLL for (uint32_t p = 0; p < 4; p++)
    {
        uint32_t fifth;
        memcpy(&fifth, part + p * step + first - 4, sizeof fifth);
        bits[0] |= (uint64_t)(fifth & 0xffff) << 16 * p;
        bits[1] |= (uint64_t)(fifth >> 16) << 16 * p;
    }
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        const __m512i fours = square_fours(both, i);
        out[i] = _mm512_mask_add_epi8(fours, bits[i], fours, _mm512_set1_epi8(16));
    }
}

ALWAYS_INLINE void square_row_q50(const uint8_t *block, uint32_t i, struct square_row *out)
{
    square_put_fives(block + 88 * i, 6, 22, out->weights);
    out->d = square_halves(block + 88 * i, 22);
}

ALWAYS_INLINE void square_row_q51(const uint8_t *block, uint32_t i, struct square_row *out)
{
    square_put_fives(block + 96 * i, 8, 24, out->weights);
    out->d = square_halves(block + 96 * i, 24);
    out->m = square_halves(block + 96 * i + 2, 24);
}

/* Two parts of 32 bytes beside each other. */
ALWAYS_INLINE __m512i square_eights(const uint8_t *from)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(load32(from + 2)), load32(from + 36), 1);
}

ALWAYS_INLINE void square_row_q80(const uint8_t *block, uint32_t i, struct square_row *out)
{
    const uint8_t *from = block + 136 * i;
    const __m512i bias = _mm512_set1_epi8((char)0x80);
    const __m512i a = square_eights(from), b = square_eights(from + 68);
    out->weights[0] = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0x88), bias);
    out->weights[1] = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0xdd), bias);
    out->d = square_halves(from, 34);
}

/* Scales of eight parts: those of parts 4 i, ... in lanes. */
ALWAYS_INLINE __m512 square_spread_scales(const float of_parts[PRODUCT_PARTS], uint32_t i)
{
    return _mm512_castsi512_ps(square_spread(_mm_loadu_si128((const void *)(of_parts + 4 * i))));
}

ALWAYS_INLINE void square_row_iq4xs(const uint8_t *block, uint32_t i, struct square_row *out)
{
    float d[PRODUCT_PARTS];
    part_scales_iq4(block, d);
    out->weights[0] = square_lanes(block + 8 + 64 * i, 0, 16);
    out->d = square_spread_scales(d, i);
}

ALWAYS_INLINE void square_row_mxfp4(const uint8_t *block, uint32_t i, struct square_row *out)
{
    float d[PRODUCT_PARTS];
    part_scales_mx4(block, d);
    out->weights[0] = square_lanes(block + 68 * i, 1, 17);
    out->d = square_spread_scales(d, i);
}

/* ---- a square -------------------------------------------------------------------------------- */

struct square_weights {
    __m512i quads[2][SQUARE]; /* weights 16 h + 4 q to 16 h + 4 q + 3 of [h][q]; of four bits both
                                 in [0][q], which registers hold: a store takes both units that
                                 multiply for a cycle */
    __m512 d, m;
};

/* Are they numbers of eight bits, or of four that stand for themselves or for those of a table? */
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

ALWAYS_INLINE __m512i square_weights_of(enum square_kind kind, const struct square_weights *weights,
                                        uint32_t h, uint32_t q)
{
    if (kind == SQUARE_EIGHTS)
        return weights->quads[h][q];
    const __m512i fours = square_fours(weights->quads[0][q], h);
    if (kind == SQUARE_FOURS)
        return fours;
    return _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(kind == SQUARE_FOURS_MX4 ? part_table_mx4() : part_table_iq4()),
        fours);
}

/* out[q] has number q of each lane of all four rows. */
ALWAYS_INLINE void square_turn(const __m512i rows[SQUARE], __m512i out[SQUARE])
{
    __m512i pairs[SQUARE];
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        pairs[i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        pairs[i + 2] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        out[2 * i] = _mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]);
        out[2 * i + 1] = _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]);
    }
}

/* Number r of each lane is row r's, whose lanes have it in all places. */
ALWAYS_INLINE __m512 square_merge(__m512 a, __m512 b, __m512 c, __m512 d)
{
    return _mm512_mask_blend_ps(0xcccc, _mm512_mask_blend_ps(0xaaaa, a, b),
                                _mm512_mask_blend_ps(0xaaaa, c, d));
}

typedef void square_row_unpack(const uint8_t *block, uint32_t i, struct square_row *out);

/* Parts 4 i to 4 i + 3 of a block of each row. */
ALWAYS_INLINE void square_unpack_rows(enum square_kind kind, square_row_unpack *unpack,
                                      const uint8_t *const *blocks, uint32_t i,
                                      struct square_weights *out)
{
    struct square_row rows[SQUARE];
    UNROLL for (uint32_t r = 0; r < SQUARE; r++)
    {
        rows[r].m = _mm512_setzero_ps();
        unpack(blocks[r], i, &rows[r]);
    }
    UNROLL for (uint32_t h = 0; h < (kind == SQUARE_EIGHTS ? 2 : 1); h++)
    {
        const __m512i halves[SQUARE] = {rows[0].weights[h], rows[1].weights[h], rows[2].weights[h],
                                        rows[3].weights[h]};
        square_turn(halves, out->quads[h]);
    }
    out->d = square_merge(rows[0].d, rows[1].d, rows[2].d, rows[3].d);
    out->m = square_merge(rows[0].m, rows[1].m, rows[2].m, rows[3].m);
}

/* F16 numbers of four rows, of which each has those of its parts as words `at`, at + step, ... */
ALWAYS_INLINE __m512 square_heads(const __m512i rows[SQUARE], uint32_t at, uint32_t step)
{
    uint16_t words[32] = {0};
    UNROLL for (uint32_t i = 0; i < 16; i++) words[i] = (uint16_t)(at + i / 4 * step + i % 2 * 32);
    const __m512i order = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)words));
    const __m512i first = _mm512_permutex2var_epi16(rows[0], order, rows[1]),
                  last = _mm512_permutex2var_epi16(rows[2], order, rows[3]);
    return _mm512_cvtph_ps(_mm256_mask_blend_epi16(0xcccc, _mm512_castsi512_si256(first),
                                                   _mm512_castsi512_si256(last)));
}

/* Parts of `step` bytes, 18 or 20, whose weights of four bits end them: they are turned before they
 * are unpacked, and d and m come out of the vectors that have been loaded for them. */
ALWAYS_INLINE void square_unpack_fours(const uint8_t *const *blocks, uint32_t i, size_t step,
                                       struct square_weights *out)
{
    __m512i heads[SQUARE], rows[SQUARE];
    UNROLL for (uint32_t r = 0; r < SQUARE; r++)
    {
        const uint8_t *part = blocks[r] + 4 * step * i;
        heads[r] = _mm512_loadu_si512(part);
        rows[r] = square_lanes(part, step - 16, step);
    }
    square_turn(rows, out->quads[0]);
    out->d = square_heads(heads, 0, (uint32_t)step / 2);
    out->m = step == 20 ? square_heads(heads, 1, 10) : _mm512_setzero_ps();
}

typedef void square_unpack(const uint8_t *const *blocks, uint32_t i, struct square_weights *out);

ALWAYS_INLINE void square_unpack_q40(const uint8_t *const *blocks, uint32_t i,
                                     struct square_weights *out)
{
    square_unpack_fours(blocks, i, 18, out);
}

ALWAYS_INLINE void square_unpack_q41(const uint8_t *const *blocks, uint32_t i,
                                     struct square_weights *out)
{
    square_unpack_fours(blocks, i, 20, out);
}

ALWAYS_INLINE void square_unpack_iq4nl(const uint8_t *const *blocks, uint32_t i,
                                       struct square_weights *out)
{
    square_unpack_fours(blocks, i, 18, out);
}

#define SQUARE_UNPACK(form)                                                                        \
    ALWAYS_INLINE void square_unpack_##form(const uint8_t *const *blocks, uint32_t i,              \
                                            struct square_weights *out)                            \
    {                                                                                              \
        square_unpack_rows((enum square_kind)square_kind_##form, square_row_##form, blocks, i,     \
                           out);                                                                   \
    }
SQUARE_UNPACK(q50)
SQUARE_UNPACK(q51)
SQUARE_UNPACK(q80)
SQUARE_UNPACK(iq4xs)
SQUARE_UNPACK(mxfp4)
#undef SQUARE_UNPACK

/* Number i of each lane in all of it; i a constant. */
ALWAYS_INLINE __m512i square_quad(__m512i x, uint32_t i)
{
    return i == 0   ? _mm512_shuffle_epi32(x, 0x00)
           : i == 1 ? _mm512_shuffle_epi32(x, 0x55)
           : i == 2 ? _mm512_shuffle_epi32(x, 0xaa)
                    : _mm512_shuffle_epi32(x, 0xff);
}

/* Times n rows x, a constant, which take turns: what a row's sum adds to waits. */
ALWAYS_INLINE void square_multiply_some(bool has_m, enum square_kind kind,
                                        const struct square_weights *weights, uint32_t n,
                                        const struct square_x *x, __m512 *y)
{
    __m512i dot[SQUARE_X];
    UNROLL for (uint32_t k = 0; k < n; k++) dot[k] = has_m ? _mm512_setzero_si512() : x[k].excess;
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        UNROLL for (uint32_t i = 0; i < SQUARE; i++)
        {
            const __m512i w = square_weights_of(kind, weights, h, i);
            UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
                _mm512_dpbusd_epi32(dot[k], w, square_quad(x[k].values[h], i));
        }
    }
    UNROLL for (uint32_t k = 0; k < n; k++)
    {
        y[k] = _mm512_fmadd_ps(_mm512_mul_ps(weights->d, x[k].scale), _mm512_cvtepi32_ps(dot[k]),
                               y[k]);
        if (has_m)
            y[k] = _mm512_fmadd_ps(weights->m, x[k].value_sum, y[k]);
    }
}

/* Times n rows x, a constant. */
ALWAYS_INLINE void square_multiply(bool has_m, enum square_kind kind,
                                   const struct square_weights *weights, uint32_t n,
                                   const struct square_x *x, __m512 *y)
{
    const uint32_t side = kind == SQUARE_EIGHTS ? SQUARE_SIDE : SQUARE_X;
    UNROLL for (uint32_t k = 0; k < n; k += side)
        square_multiply_some(has_m, kind, weights, n - k < side ? n - k : side, x + k, y + k);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What is fetched early, to the first cache: the same blocks of rows behind these, one row after
 * the other, as memory likes it. */
struct square_ahead {
    uintptr_t at;
    uint32_t left; /* blocks of that row */
};

ALWAYS_INLINE void square_fetch(const struct square_job *job, uint32_t bytes,
                                struct square_ahead *ahead)
{
    UNROLL for (uint32_t i = 0; i < SQUARE; i++)
    {
        UNROLL for (uint32_t at = 0; at < bytes; at += 64)
            __builtin_prefetch((const void *)(ahead->at + at));
        ahead->at += bytes;
        if (--ahead->left == 0) {
            ahead->at += job->row_bytes - (size_t)job->n_blocks * bytes;
            ahead->left = job->n_blocks;
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
        square_fetch(job, form->block_bytes, ahead);
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
        struct square_weights first, second;
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

/* Lanes 0 and 1, lanes 2 and 3 of a, then of b. */
ALWAYS_INLINE __m512 square_add_lanes(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* Rows `row` to row + n_rows - 1 of y, sixteen at a time: the sums of four partial ones, which are
 * lanes. */
static void square_put(const __m512 *sums, uint32_t n_x, uint32_t n, uint32_t row, uint32_t n_rows,
                       float *const *y)
{
    for (uint32_t r = 0; r < n_rows; r += SQUARE_PUT, sums += SQUARE_PUT / SQUARE * n_x) {
        const uint32_t left = n_rows - r;
        const __mmask16 there = (__mmask16)(left < SQUARE_PUT ? (1u << left) - 1 : 0xffff);
        for (uint32_t k = 0; k < n; k++) {
            const __m512 *of = sums + k;
            _mm512_mask_storeu_ps(y[k] + row + r, there,
                                  square_add_lanes(square_add_lanes(of[0], of[n_x]),
                                                   square_add_lanes(of[2 * n_x], of[3 * n_x])));
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

/* Where squares are faster than single rows and sheaves, by measurement. Fifth bits and scales of
 * eight bits are gathered one by one. */
static bool square_is_worth_it(enum product_type type, uint32_t n)
{
    if (type == PRODUCT_Q5_0 || type == PRODUCT_Q5_1)
        return n > 1 && n <= SQUARE_X;
    return n <= (type == PRODUCT_MXFP4 ? SQUARE_X : 2 * SQUARE_X);
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
