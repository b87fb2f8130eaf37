/* Products of Q4_K and Q5_K with one to eight rows x on processors with AVX-512 VNNI: the
 * arithmetic of product.h, a block of four rows of the matrix at a time. As with squares of parts
 * (product_square_vnni.h) a lane is a row of the matrix, and what a row x has is spread over lanes
 * by the loads that bring it.
 *
 * A block's 128 bytes are four pieces of 32, of which the lower halves of bytes are one group of
 * weights and the upper ones the next. A number in a lane is a piece. So a vector of sums has four
 * groups of all four rows; they fit 16 bits until a group's scale multiplies them (vpdpwssd), which
 * adds them to a sum for the block. Only that one is added up across a lane, for four rows x at
 * once, whose numbers stand in the lane then. */
#pragma once

#include "kernels/product_few_vnni.h"
#include "kernels/product_square_vnni.h"

enum {
    QUARTET = 4,        /* rows x whose sums stand in a lane */
    QUARTETS = 2,       /* of a pass, at most */
    QUARTET_BLOCKS = 64 /* of all rows x of a pass, that the first cache holds */
};

struct quartet_x {                 /* a block of up to four rows x */
    __m128i values[QUARTET][2][8]; /* [h][i]: values 4 i to 4 i + 3 of groups h, h + 2, ... */
    __m128i sums[4];               /* number k of [j]: row k's, of groups 2 j and 2 j + 1 */
    __m128 e;
};

struct quartet_job {
    const uint8_t *rows; /* of the matrix, where these blocks begin */
    size_t row_bytes;
    size_t ahead; /* bytes to what is fetched meanwhile */
    uint32_t n_rows, n_blocks;
    const struct quartet_x *x; /* [block][quartet] */
    __m512 *sums;              /* [four rows][quartet]: number k of lane r */
};

/* ---- rows x ---------------------------------------------------------------------------------- */

ALWAYS_INLINE void quartet_put_values(const struct product_block *block, __m128i out[2][8])
{
    __m512i pieces[4], turned[4];
    UNROLL for (uint32_t p = 0; p < 4; p++) pieces[p] =
        _mm512_loadu_si512(block->values + PRODUCT_BLOCK / 4 * p);
    lanes_turn_four(pieces, turned);
    square_turn(turned, pieces);
    UNROLL for (uint32_t i = 0; i < 4; i++) _mm512_storeu_si512(&out[i / 2][i % 2 * 4], pieces[i]);
}

/* n rows x; of the others nothing is used. */
static void quartet_prepare(const struct product_block *const *x, uint32_t n, uint32_t b,
                            struct quartet_x *out)
{
    int32_t sums[4][QUARTET] = {{0}};
    float e[QUARTET] = {0};
    for (uint32_t k = 0; k < n; k++) {
        const struct product_block *block = &x[k][b];
        int16_t of[PRODUCT_GROUPS / 2]; /* of 32 values */
        quartet_put_values(block, out->values[k]);
        for (uint32_t g = 0; g < PRODUCT_GROUPS / 2; g++)
            of[g] = (int16_t)(block->sums[2 * g] + block->sums[2 * g + 1]);
        for (uint32_t j = 0; j < 4; j++)
            memcpy(&sums[j][k], &of[2 * j], sizeof sums[0][0]);
        e[k] = block->scale;
    }
    memcpy(out->sums, sums, sizeof sums);
    memcpy(&out->e, e, sizeof e);
}

/* ---- a block of four rows -------------------------------------------------------------------- */

struct quartet_weights {
    __m512i fours[8];  /* [i]: weights 4 i to 4 i + 3 of all groups, two in a byte */
    __m512i fifths[2]; /* 32 bytes of a row, each with the fifth bits of all groups */
    __m512i scales[2]; /* of groups h, h + 2, ... */
    __m512i offsets;   /* of all eight groups, 16 bits each */
    __m512 d, dmin;
};

ALWAYS_INLINE uint32_t quartet_bytes_of(bool has_fifths)
{
    return has_fifths ? 176 : 144;
}

/* Scales s and offsets m in lanes: [s0 s1 s2 s3 m0 m1 m2 m3 s4 s5 s6 s7 m4 m5 m6 m7], bytes. Of
 * heads 4 bytes are d and dmin, then come a, b and c: s0 = a & 63, m0 = b & 63,
 * s4 = c & 15 | (a >> 6) << 4, ... */
ALWAYS_INLINE __m512i quartet_six_bits(__m512i heads)
{
    const __m512i ab = _mm512_shuffle_epi32(heads, 0x99);
    const __m512i c = _mm512_srlv_epi32(_mm512_shuffle_epi32(heads, 0xff),
                                        _mm512_broadcast_i32x4(_mm_setr_epi32(32, 32, 0, 4)));
    const __m512i most = _mm512_and_si512(
        _mm512_srlv_epi64(ab, _mm512_broadcast_i32x4(_mm_set_epi64x(2, 0))),
        _mm512_broadcast_i32x4(_mm_set_epi64x(0x3030303030303030, 0x3f3f3f3f3f3f3f3f)));
    return _mm512_ternarylogic_epi64(most, c, _mm512_set1_epi8(15), 0xf8);
}

ALWAYS_INLINE __m512i quartet_bytes(__m512i of, int a, int b, int c, int d)
{
    return _mm512_shuffle_epi8(
        of, _mm512_broadcast_i32x4(_mm_setr_epi32(a | ~255, b | ~255, c | ~255, d | ~255)));
}

/* F16 number `at` of each lane, in all of it. */
ALWAYS_INLINE __m512 quartet_halves(__m512i heads, int at)
{
    const __m512i lanes = _mm512_setr_epi32(0, 0, 8, 8, 16, 16, 24, 24, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i order = _mm512_add_epi16(_mm512_or_si512(lanes, _mm512_slli_epi32(lanes, 16)),
                                           _mm512_set1_epi16((short)at));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutexvar_epi16(order, heads)));
}

ALWAYS_INLINE void quartet_unpack(bool has_fifths, const uint8_t *const *blocks,
                                  struct quartet_weights *out)
{
    const size_t at = quartet_bytes_of(has_fifths) - PRODUCT_BLOCK / 2;
    const __m512i heads = strip_lanes(blocks, 1, 0), six_bits = quartet_six_bits(heads);
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        __m512i rows[SQUARE];
        UNROLL for (uint32_t r = 0; r < SQUARE; r++) rows[r] =
            _mm512_permutex2var_epi32(_mm512_loadu_si512(blocks[r] + at), square_order(h),
                                      _mm512_loadu_si512(blocks[r] + at + 64));
        square_turn(rows, out->fours + 4 * h);
        if (has_fifths)
            out->fifths[h] = strip_lanes(blocks, 1, 16 + 16 * h);
    }
    out->scales[0] = quartet_bytes(six_bits, 0, 2, 8, 10);
    out->scales[1] = quartet_bytes(six_bits, 1, 3, 9, 11);
    out->offsets = _mm512_shuffle_epi8(
        six_bits, _mm512_broadcast_i32x4(
                      _mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, -1, 13, -1, 14, -1, 15, -1)));
    out->d = quartet_halves(heads, 0);
    out->dmin = quartet_halves(heads, 1);
}

/* Number i of each lane in all of it; i a constant. */
ALWAYS_INLINE __m512i quartet_spread(__m512i x, uint32_t i)
{
    return i == 0   ? _mm512_shuffle_epi32(x, 0x00)
           : i == 1 ? _mm512_shuffle_epi32(x, 0x55)
           : i == 2 ? _mm512_shuffle_epi32(x, 0xaa)
                    : _mm512_shuffle_epi32(x, 0xff);
}

/* Weights 4 i to 4 i + 3 of groups h, h + 2, ... */
ALWAYS_INLINE __m512i quartet_weights(bool has_fifths, const struct quartet_weights *of, uint32_t h,
                                      uint32_t i)
{
    const __m512i fours = _mm512_and_si512(h ? _mm512_srli_epi16(of->fours[i], 4) : of->fours[i],
                                           _mm512_set1_epi8(15));
    if (!has_fifths)
        return fours;
    const int to = 4 - (int)h; /* bit 2 p + h to bit 4 */
    const __m512i moved = _mm512_rolv_epi32(
        quartet_spread(of->fifths[i / 4], i % 4),
        _mm512_broadcast_i32x4(_mm_setr_epi32(to, (to - 2) & 31, (to - 4) & 31, (to - 6) & 31)));
    return _mm512_ternarylogic_epi64(fours, moved, _mm512_set1_epi8(16), 0xf8);
}

/* Times n <= QUARTET rows x, a constant. Sums of sixteen products of four bits by 7, or of eight of
 * five, fit 16 bits. */
ALWAYS_INLINE __m512 quartet_multiply(bool has_fifths, const struct quartet_weights *of, uint32_t n,
                                      const struct quartet_x *x, __m512 y)
{
    const uint32_t step = has_fifths ? 2 : 4;
    __m512i sums[QUARTET], offsets = _mm512_setzero_si512();
    UNROLL for (uint32_t k = 0; k < n; k++) sums[k] = _mm512_setzero_si512();
    UNROLL for (uint32_t i = 0; i < 8; i += step)
    {
        __m512i dots[2][QUARTET];
        UNROLL for (uint32_t k = 0; k < 2 * n; k++) dots[k % 2][k / 2] = _mm512_setzero_si512();
        UNROLL for (uint32_t j = i; j < i + step; j++)
        {
            UNROLL for (uint32_t h = 0; h < 2; h++)
            {
                const __m512i w = quartet_weights(has_fifths, of, h, j);
                UNROLL for (uint32_t k = 0; k < n; k++) dots[h][k] =
                    _mm512_dpbusd_epi32(dots[h][k], w, _mm512_broadcast_i32x4(x->values[k][h][j]));
            }
        }
        UNROLL for (uint32_t k = 0; k < 2 * n; k++) sums[k / 2] =
            _mm512_dpwssd_epi32(sums[k / 2], dots[k % 2][k / 2], of->scales[k % 2]);
    }
    UNROLL for (uint32_t j = 0; j < 4; j++) offsets = _mm512_dpwssd_epi32(
        offsets, quartet_spread(of->offsets, j), _mm512_broadcast_i32x4(x->sums[j]));
    const __m512 e = _mm512_broadcast_f32x4(x->e);
    y = _mm512_fmadd_ps(_mm512_mul_ps(of->d, e), _mm512_cvtepi32_ps(few_add_up(sums, n)), y);
    return _mm512_fnmadd_ps(_mm512_mul_ps(of->dmin, e), _mm512_cvtepi32_ps(offsets), y);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* For n rows x, a constant, and one block at least. */
ALWAYS_INLINE void quartet_multiply_rows(bool has_fifths, uint32_t n, const struct quartet_job *job)
{
    const uint32_t bytes = quartet_bytes_of(has_fifths);
    const uint32_t n_all = (n + QUARTET - 1) / QUARTET;
    struct square_ahead ahead = {(uintptr_t)job->rows + job->ahead, job->n_blocks};
    for (uint32_t row = 0; row < job->n_rows; row += SQUARE) {
        const uint8_t *blocks[SQUARE];
        const struct quartet_x *x = job->x;
        __m512 y[QUARTETS], *sums = job->sums + row / SQUARE * n_all;
        struct quartet_weights next;
        UNROLL for (uint32_t r = 0; r < SQUARE; r++) blocks[r] =
            job->rows + (row + r < job->n_rows ? row + r : job->n_rows - 1) * job->row_bytes;
        UNROLL for (uint32_t k = 0; k < n_all; k++) y[k] = sums[k];
        quartet_unpack(has_fifths, blocks, &next);
        for (uint32_t b = 0; b < job->n_blocks; b++, x += n_all) {
            const struct quartet_weights weights = next;
            square_fetch(job->row_bytes, job->n_blocks, bytes, &ahead);
            if (b + 1 < job->n_blocks) {
                UNROLL for (uint32_t r = 0; r < SQUARE; r++) blocks[r] += bytes;
                quartet_unpack(has_fifths, blocks, &next);
            }
            UNROLL for (uint32_t k = 0; k < n_all; k++) y[k] = quartet_multiply(
                has_fifths, &weights, n - k * QUARTET < QUARTET ? n - k * QUARTET : QUARTET, x + k,
                y[k]);
        }
        UNROLL for (uint32_t k = 0; k < n_all; k++) sums[k] = y[k];
    }
}

typedef void quartet_rows(const struct quartet_job *job);

#define QUARTET_OF(name, has_fifths, n)                                                            \
    static __attribute__((noinline)) void quartet_##name##_##n(const struct quartet_job *job)      \
    {                                                                                              \
        quartet_multiply_rows(has_fifths, n, job);                                                 \
    }
#define QUARTET_EACH(name, has_fifths)                                                             \
    QUARTET_OF(name, has_fifths, 1)                                                                \
    QUARTET_OF(name, has_fifths, 2)                                                                \
    QUARTET_OF(name, has_fifths, 3)                                                                \
    QUARTET_OF(name, has_fifths, 4)                                                                \
    QUARTET_OF(name, has_fifths, 5)                                                                \
    QUARTET_OF(name, has_fifths, 6)                                                                \
    QUARTET_OF(name, has_fifths, 7)                                                                \
    QUARTET_OF(name, has_fifths, 8)                                                                \
    static quartet_rows *const quartet_##name[] = {                                                \
        quartet_##name##_1, quartet_##name##_2, quartet_##name##_3, quartet_##name##_4,            \
        quartet_##name##_5, quartet_##name##_6, quartet_##name##_7, quartet_##name##_8};
QUARTET_EACH(q4, false)
QUARTET_EACH(q5, true)
#undef QUARTET_EACH
#undef QUARTET_OF

/* Rows `row` to row + n_rows - 1 of y, n of a quartet, sixteen at a time. */
static void quartet_put(const __m512 *sums, uint32_t n_all, uint32_t n, uint32_t row,
                        uint32_t n_rows, float *const *y)
{
    const __m512i lanes = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    for (uint32_t r = 0; r < n_rows; r += SQUARE_PUT, sums += SQUARE_PUT / SQUARE * n_all) {
        const uint32_t left = n_rows - r;
        const __mmask16 there = (__mmask16)(left < SQUARE_PUT ? (1u << left) - 1 : 0xffff);
        for (uint32_t k = 0; k < n; k++) {
            const __m512i order = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)k));
            const __m512 first = _mm512_permutex2var_ps(sums[0], order, sums[n_all]),
                         last = _mm512_permutex2var_ps(sums[2 * n_all], order, sums[3 * n_all]);
            _mm512_mask_storeu_ps(y[k] + row + r, there, _mm512_shuffle_f32x4(first, last, 0x44));
        }
    }
}

/* n rows x, rows `first` to `end` - 1 of the matrix, SQUARE_ROWS at most. */
static void quartet_pass(const struct product_matrix *matrix, const struct product_block *const *x,
                         float *const *y, uint32_t n, uint32_t first, uint32_t end)
{
    const bool has_fifths = matrix->type == PRODUCT_Q5_K;
    const uint32_t bytes = quartet_bytes_of(has_fifths);
    const uint32_t n_all = (n + QUARTET - 1) / QUARTET,
                   n_at_once = QUARTET_BLOCKS / n_all / QUARTET,
                   n_blocks = matrix->n_columns / PRODUCT_BLOCK;
    struct quartet_x prepared[QUARTET_BLOCKS / QUARTET];
    __m512 sums[SQUARE_ROWS / SQUARE * QUARTETS];
    memset(sums, 0,
           (end - first + SQUARE_PUT - 1) / SQUARE_PUT * (SQUARE_PUT / SQUARE) * n_all *
               sizeof *sums);
    for (uint32_t b = 0; b < n_blocks; b += n_at_once) {
        const uint32_t used = n_blocks - b < n_at_once ? n_blocks - b : n_at_once;
        for (uint32_t i = 0; i < used; i++) {
            for (uint32_t k = 0; k < n; k += QUARTET)
                quartet_prepare(x + k, n - k < QUARTET ? n - k : QUARTET, b + i,
                                &prepared[i * n_all + k / QUARTET]);
        }
        (has_fifths ? quartet_q5 : quartet_q4)[n - 1](&(struct quartet_job){
            .rows = (const uint8_t *)matrix->rows + first * matrix->row_bytes + (size_t)b * bytes,
            .row_bytes = matrix->row_bytes,
            .ahead = square_rows_ahead(used * bytes) * matrix->row_bytes,
            .n_rows = end - first,
            .n_blocks = used,
            .x = prepared,
            .sums = sums,
        });
    }
    for (uint32_t k = 0; k < n; k += QUARTET)
        quartet_put(sums + k / QUARTET, n_all, n - k < QUARTET ? n - k : QUARTET, first,
                    end - first, y + k);
}

/* False: not for this type, or for so many rows x. */
static bool product_vnni_quartets(const struct product_matrix *matrix,
                                  const struct product_block *const *x, float *const *y, uint32_t n,
                                  uint32_t first, uint32_t end)
{
    if ((matrix->type != PRODUCT_Q4_K && matrix->type != PRODUCT_Q5_K) || n > QUARTETS * QUARTET)
        return false;
    for (uint32_t row = first; row < end; row += SQUARE_ROWS)
        quartet_pass(matrix, x, y, n, row, end - row < SQUARE_ROWS ? end : row + SQUARE_ROWS);
    return true;
}
