/* Products of Q2_K, Q3_K and Q6_K with two to four rows x on processors with AVX-512 VNNI: the
 * arithmetic of product.h, a row of the matrix from its begin to its end, as memory likes it, and
 * each block of it unpacked once for all rows x. (Q4_K and Q5_K: product_square_blocks_vnni.h,
 * types of parts: product_square_vnni.h.)
 *
 * A vector of sums has a lane of 16 bytes for each fourth of a block and in it a number for each
 * row x, so what is behind the sums is done for four rows x at once. */
#pragma once

#include "kernels/product_lanes_avx512.h"
#include "kernels/product_row_vnni.h"

enum {
    FEW_X = 4,
    FEW_BLOCKS = 16, /* of all rows x, that the first cache holds */
    FEW_ROWS = 128,  /* of the matrix, whose sums are kept meanwhile */
};

struct few_block { /* of all rows x */
    int8_t values[4][FEW_X][64];
    int16_t sums[2][4][FEW_X][2]; /* of two groups */
    float e[FEW_X];
} __attribute__((aligned(64)));

struct few_job {
    const uint8_t *rows; /* of the matrix, where these blocks begin */
    size_t row_bytes;
    size_t ahead; /* bytes to what is fetched meanwhile */
    uint32_t n_rows, n_blocks;
    const struct few_block *x; /* [block] */
    __m128 *sums;              /* [row] */
};

static void few_prepare(const struct product_block *const *x, uint32_t b, struct few_block *out)
{
    for (uint32_t k = 0; k < FEW_X; k++) {
        const struct product_block *block = &x[k][b];
        for (uint32_t j = 0; j < 4; j++)
            _mm512_store_si512(out->values[j][k], _mm512_loadu_si512(block->values + 64 * j));
        for (uint32_t p = 0; p < 8; p++)
            memcpy(out->sums[p / 4][p % 4][k], &block->sums[2 * p], sizeof out->sums[0][0][0]);
        out->e[k] = block->scale;
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* [a0 + a1, a2 + a3, b0 + b1, b2 + b3] of each lane. */
ALWAYS_INLINE __m512i few_add_pairs(__m512i a, __m512i b)
{
    const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

/* Number k of each lane is the sum of the lane's of dots[k], for k < n; else it may be anything. */
ALWAYS_INLINE __m512i few_add_up(const __m512i dots[FEW_X], uint32_t n)
{
    const __m512i first = few_add_pairs(dots[0], dots[n > 1]);
    return few_add_pairs(first, n > 2 ? few_add_pairs(dots[2], dots[n > 3 ? 3 : 2]) : first);
}

/* The sum of all lanes. */
ALWAYS_INLINE __m128i few_add_lanes(__m512i x)
{
    const __m256i two =
        _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
}

/* ---- a block --------------------------------------------------------------------------------- */

/* What a block has to be added to the sums. It waits while the next one is multiplied, so that the
 * processor has work meanwhile. */
struct few_dots {
    __m512i products[FEW_X];
    __m512i offsets;
    __m128 d; /* d, dmin */
};

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

ALWAYS_INLINE void few_dot(const struct row_form *form, const uint8_t *block, uint32_t n,
                           const struct few_block *x, struct few_dots *out)
{
    struct row_weights row;
    form->unpack(block, &row);
    UNROLL for (uint32_t k = 0; k < n; k++) out->products[k] =
        row_products(&row, x->values[0][k], sizeof x->values[0]);
    out->offsets = few_offsets(row.offsets, x);
    out->d = _mm_cvtph_ps(form->has_dmin ? _mm_loadu_si32(block + form->d_at)
                                         : _mm_loadu_si16(block + form->d_at));
}

ALWAYS_INLINE __m128 few_add(const struct row_form *form, const struct few_dots *dots, uint32_t n,
                             const struct few_block *x, __m128 sum)
{
    const __m128 e = _mm_load_ps(x->e);
    __m512i sums = few_add_up(dots->products, n);
    if (!form->has_dmin)
        sums = _mm512_sub_epi32(sums, _mm512_slli_epi32(dots->offsets, form->offset_shift));
    sum = _mm_fmadd_ps(_mm_mul_ps(_mm_broadcastss_ps(dots->d), e),
                       _mm_cvtepi32_ps(few_add_lanes(sums)), sum);
    if (!form->has_dmin)
        return sum;
    return _mm_fnmadd_ps(_mm_mul_ps(_mm_permute_ps(dots->d, 0x55), e),
                         _mm_cvtepi32_ps(few_add_lanes(dots->offsets)), sum);
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

/* For n rows x, a constant, and one block at least. */
ALWAYS_INLINE void few_multiply_rows(const struct row_form *form, uint32_t n,
                                     const struct few_job *job)
{
    for (uint32_t r = 0; r < job->n_rows; r++) {
        const uint8_t *block = job->rows + r * job->row_bytes;
        const struct few_block *x = job->x, *end = x + job->n_blocks;
        struct few_dots before;
        __m128 sum = job->sums[r];
        few_fetch(block + job->ahead, form->bytes);
        few_dot(form, block, n, x, &before);
        while (++x < end) {
            struct few_dots dots;
            block += form->bytes;
            few_fetch(block + job->ahead, form->bytes);
            few_dot(form, block, n, x, &dots);
            sum = few_add(form, &before, n, x - 1, sum);
            before = dots;
        }
        job->sums[r] = few_add(form, &before, n, x - 1, sum);
    }
}

typedef void few_rows(const struct few_job *job);

/* For each type: two, three and four rows x. */
#define FEW_OF(form, n)                                                                            \
    static __attribute__((noinline)) void few_rows_##form##_##n(const struct few_job *job)         \
    {                                                                                              \
        few_multiply_rows(&row_##form, n, job);                                                    \
    }
#define FEW_EACH(name, form)                                                                       \
    FEW_OF(form, 2)                                                                                \
    FEW_OF(form, 3)                                                                                \
    FEW_OF(form, 4)
ROW_TYPES(FEW_EACH)
#undef FEW_EACH
#undef FEW_OF

static few_rows *few_rows_of(enum product_type type, uint32_t n, uint32_t *block_bytes)
{
#define FEW_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name) {                                                                  \
        *block_bytes = row_##form.bytes;                                                           \
        return n == 2 ? few_rows_##form##_2 : n == 3 ? few_rows_##form##_3 : few_rows_##form##_4;  \
    }
    ROW_TYPES(FEW_CASE)
#undef FEW_CASE
    return NULL;
}

static void few_put(const __m128 *sums, uint32_t n_rows, uint32_t n, uint32_t row, float *const *y)
{
    for (uint32_t r = 0; r < n_rows; r += 4) {
        const uint32_t n_here = n_rows - r < 4 ? n_rows - r : 4;
        __m128 of[4];
        float out[4][4] __attribute__((aligned(16)));
        for (uint32_t i = 0; i < 4; i++)
            of[i] = sums[r + (i < n_here ? i : 0)];
        _MM_TRANSPOSE4_PS(of[0], of[1], of[2], of[3]);
        for (uint32_t k = 0; k < 4; k++)
            _mm_store_ps(out[k], of[k]);
        for (uint32_t k = 0; k < n; k++)
            memcpy(y[k] + row + r, out[k], n_here * sizeof out[0][0]);
    }
}

/* False: single rows and sheaves are faster. */
static bool product_vnni_few_blocks(const struct product_matrix *matrix,
                                    const struct product_block *const *x, float *const *y,
                                    uint32_t n, uint32_t first, uint32_t end)
{
    const struct product_block *filled[FEW_X];
    struct few_block prepared[FEW_BLOCKS];
    __m128 sums[FEW_ROWS];
    const uint32_t n_blocks = matrix->n_columns / PRODUCT_BLOCK;
    uint32_t bytes = 0;
    if (n < 2 || n > FEW_X)
        return false;
    few_rows *const multiply = few_rows_of(matrix->type, n, &bytes);
    if (!multiply)
        return false;
    lanes_fill(x, n, filled);
    for (uint32_t row = first; row < end; row += FEW_ROWS) {
        const uint32_t n_rows = end - row < FEW_ROWS ? end - row : FEW_ROWS;
        memset(sums, 0, n_rows * sizeof *sums);
        for (uint32_t b = 0; b < n_blocks; b += FEW_BLOCKS) {
            const uint32_t used = n_blocks - b < FEW_BLOCKS ? n_blocks - b : FEW_BLOCKS;
            for (uint32_t i = 0; i < used; i++)
                few_prepare(filled, b + i, &prepared[i]);
            multiply(&(struct few_job){
                .rows = (const uint8_t *)matrix->rows + row * matrix->row_bytes + (size_t)b * bytes,
                .row_bytes = matrix->row_bytes,
                .ahead = few_ahead(matrix->row_bytes, (size_t)FEW_BLOCKS * bytes),
                .n_rows = n_rows,
                .n_blocks = used,
                .x = prepared,
                .sums = sums,
            });
        }
        few_put(sums, n_rows, n, row, y);
    }
    return true;
}
