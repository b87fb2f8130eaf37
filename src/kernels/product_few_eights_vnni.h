/* Products of Q8_0 with two to four rows x on processors with AVX-512 VNNI: the arithmetic of
 * product.h, one row of the matrix after the other. Reading is the limit here, and memory gives
 * more to one stream, which processors see, than to the four of product_square_vnni.h.
 *
 * Four parts are in lanes, their first sixteen weights in one vector and their last ones in
 * another. A vector of sums has a lane for each part and in it a number for each row x. */
#pragma once

#include "kernels/product_few_vnni.h"
#include "kernels/product_square_vnni.h"

enum { EIGHTS_BYTES = 4 * 34 }; /* four parts */

struct eights_x { /* four parts of all rows x */
    __m512i values[2][FEW_X];
    __m512i excess; /* what products have too much, less than zero: [part][row x], as … */
    __m512 scales;  /* … these are */
};

struct eights_job {
    const uint8_t *rows; /* of the matrix, where these blocks begin */
    size_t row_bytes, ahead;
    uint32_t n_rows;
    uint32_t n_fours;         /* of parts, whole ones */
    uint32_t n_last;          /* parts behind them */
    const struct eights_x *x; /* [four] */
    __m512 *sums;             /* [row] */
};

/* Number k of lane p is number p of rows[k]. */
ALWAYS_INLINE __m512 eights_turn(__m128 rows[FEW_X])
{
    _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
    const __m512 first = _mm512_insertf32x4(_mm512_castps128_ps512(rows[0]), rows[1], 1);
    return _mm512_insertf32x4(_mm512_insertf32x4(first, rows[2], 2), rows[3], 3);
}

/* Parts 4 i to 4 i + 3 of block b. */
static void eights_prepare(const struct product_block *const *x, uint32_t b, uint32_t i,
                           struct eights_x *out)
{
    __m128 scales[FEW_X], excess[FEW_X];
    for (uint32_t k = 0; k < FEW_X; k++) {
        const struct product_block *block = &x[k][b];
        const __m512i first = _mm512_loadu_si512(block->values + 128 * i),
                      last = _mm512_loadu_si512(block->values + 128 * i + 64);
        const __m128i sums = _mm_loadu_si128((const void *)(block->part_sums + 4 * i));
        out->values[0][k] = _mm512_shuffle_i32x4(first, last, 0x88);
        out->values[1][k] = _mm512_shuffle_i32x4(first, last, 0xdd);
        scales[k] = _mm_loadu_ps(block->scales + 4 * i);
        excess[k] = _mm_castsi128_ps(_mm_mullo_epi32(sums, _mm_set1_epi32(-q80.bias)));
    }
    out->scales = eights_turn(scales);
    out->excess = _mm512_castps_si512(eights_turn(excess));
}

struct eights_dots { /* of four parts; they wait while the next ones are multiplied */
    __m512i products[FEW_X];
    __m512 d;
};

ALWAYS_INLINE void eights_dot(const uint8_t *parts, uint32_t n, const struct eights_x *x,
                              struct eights_dots *out)
{
    struct square_row row;
    square_row_q80(parts, 0, &row);
    out->d = row.d;
    UNROLL for (uint32_t k = 0; k < n; k++) out->products[k] = _mm512_dpbusd_epi32(
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), row.weights[0], x->values[0][k]),
        row.weights[1], x->values[1][k]);
}

ALWAYS_INLINE __m512 eights_add(const struct eights_dots *dots, uint32_t n,
                                const struct eights_x *x, __m512 y)
{
    const __m512i sums = _mm512_add_epi32(few_add_up(dots->products, n), x->excess);
    return _mm512_fmadd_ps(_mm512_mul_ps(dots->d, x->scales), _mm512_cvtepi32_ps(sums), y);
}

/* For n rows x, a constant. */
ALWAYS_INLINE void eights_multiply_rows(uint32_t n, const struct eights_job *job)
{
    const uint32_t n_fours = job->n_fours + (job->n_last != 0);
    for (uint32_t r = 0; r < job->n_rows; r++) {
        const uint8_t *parts = job->rows + r * job->row_bytes;
        uint8_t last[EIGHTS_BYTES] = {0};
        struct eights_dots before = {.d = _mm512_setzero_ps()};
        __m512 y = job->sums[r];
        for (uint32_t i = 0; i < n_fours; i++, parts += EIGHTS_BYTES) {
            struct eights_dots dots;
            if (i == job->n_fours)
                parts = memcpy(last, parts, job->n_last * EIGHTS_BYTES / 4);
            else
                few_fetch(parts + job->ahead, EIGHTS_BYTES);
            eights_dot(parts, n, &job->x[i], &dots);
            if (i > 0)
                y = eights_add(&before, n, &job->x[i - 1], y);
            before = dots;
        }
        job->sums[r] = eights_add(&before, n, &job->x[n_fours - 1], y);
    }
}

static __attribute__((noinline)) void eights_rows_2(const struct eights_job *job)
{
    eights_multiply_rows(2, job);
}

static __attribute__((noinline)) void eights_rows_3(const struct eights_job *job)
{
    eights_multiply_rows(3, job);
}

static __attribute__((noinline)) void eights_rows_4(const struct eights_job *job)
{
    eights_multiply_rows(4, job);
}

static void eights_put(const __m512 *sums, uint32_t n_rows, uint32_t n, uint32_t row,
                       float *const *y)
{
    __m128 totals[FEW_ROWS];
    for (uint32_t r = 0; r < n_rows; r++)
        totals[r] = square_total(sums[r]);
    few_put(totals, n_rows, n, row, y);
}

static void product_vnni_few_eights(const struct product_matrix *matrix,
                                    const struct product_block *const *x, float *const *y,
                                    uint32_t n, uint32_t first, uint32_t end)
{
    const struct product_block *filled[FEW_X];
    struct eights_x prepared[2 * FEW_BLOCKS];
    __m512 sums[FEW_ROWS];
    const uint32_t n_fours = matrix->n_columns / PRODUCT_PART / 4,
                   n_last = matrix->n_columns / PRODUCT_PART % 4, n_all = n_fours + (n_last != 0);
    void (*const multiply)(const struct eights_job *job) = n == 2   ? eights_rows_2
                                                           : n == 3 ? eights_rows_3
                                                                    : eights_rows_4;
    assert(n > 1 && n <= FEW_X);
    lanes_fill(x, n, filled);
    for (uint32_t row = first; row < end; row += FEW_ROWS) {
        const uint32_t n_rows = end - row < FEW_ROWS ? end - row : FEW_ROWS;
        memset(sums, 0, n_rows * sizeof *sums);
        for (uint32_t i = 0; i < n_all; i += 2 * FEW_BLOCKS) {
            const uint32_t used = n_all - i < 2 * FEW_BLOCKS ? n_all - i : 2 * FEW_BLOCKS;
            const bool is_last = n_last && i + used == n_all;
            for (uint32_t k = 0; k < used; k++)
                eights_prepare(filled, (i + k) / 2, (i + k) % 2, &prepared[k]);
            multiply(&(struct eights_job){
                .rows = (const uint8_t *)matrix->rows + row * matrix->row_bytes +
                        (size_t)i * EIGHTS_BYTES,
                .row_bytes = matrix->row_bytes,
                .ahead = few_ahead(matrix->row_bytes, 2 * FEW_BLOCKS * EIGHTS_BYTES),
                .n_rows = n_rows,
                .n_fours = used - is_last,
                .n_last = is_last ? n_last : 0,
                .x = prepared,
                .sums = sums,
            });
        }
        eights_put(sums, n_rows, n, row, y);
    }
}
