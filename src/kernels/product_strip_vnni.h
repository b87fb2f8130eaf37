/* Products of types of parts with up to sixteen rows x on processors with AVX-512 VNNI, other than
 * squares (product_square_vnni.h): the arithmetic of product.h, a strip at a time. A strip is a
 * part of sixteen rows of the matrix. Its eight vectors of weights stay in registers until all rows
 * x have been multiplied, so nine to sixteen go through the matrix once, where squares go twice.
 *
 * A number of x is spread over a vector as it is loaded. With eight rows x a strip gives the two
 * units that multiply 64 vpdpbusd, 24 operations of floats, and 50 (Q4_0) to 70 (Q8_0) to unpack
 * it.
 *
 * PRODUCT_IS_INTEL is of those who include it. */
#pragma once

#include "kernels/product_strip_unpack_vnni.h"

#include <assert.h>

enum {
    STRIP_SIDE = 8,       /* rows x whose sums are under way */
    STRIP_SIDES = 2,      /* at most */
    STRIP_PARTS = 64,     /* of all rows x, that the first cache holds */
    STRIP_MANY_ROWS = 256 /* of the matrix, whose sums are kept meanwhile */
};

struct strip_x { /* a part of a side */
    int8_t values[STRIP_SIDE][PRODUCT_PART];
    union {
        float sums[STRIP_SIDE];     /* of types with m; their weights have no bias */
        int32_t excess[STRIP_SIDE]; /* what products have too much, less than zero */
    };
    float scales[STRIP_SIDE];
} __attribute__((aligned(64)));

struct strip_sums { /* of a side, the four partial ones */
    __m512 of[4][STRIP_SIDE];
};

struct strip_job {
    const uint8_t *rows; /* of the matrix, where these parts begin */
    size_t row_bytes;
    uint32_t n_rows;
    uint32_t n_parts;
    bool is_first, is_last; /* of their rows */
    uint32_t n;             /* rows x */
    const struct strip_x (*x)[STRIP_PARTS];
    struct strip_sums (*sums)[STRIP_SIDES]; /* [sixteen rows]: of the parts before */
    float *const *y;                        /* + row: where those of all go */
};

/* ---- rows x ---------------------------------------------------------------------------------- */

/* Block b of STRIP_SIDE rows x. */
static void strip_prepare(const struct part_form *form, const struct product_block *const *x,
                          uint32_t b, struct strip_x out[PRODUCT_PARTS])
{
    const __m256i less = _mm256_set1_epi32(-form->bias);
    __m256i sums[STRIP_SIDE], scales[STRIP_SIDE];
    for (uint32_t k = 0; k < STRIP_SIDE; k++) {
        const struct product_block *block = &x[k][b];
        sums[k] = load32((const void *)block->part_sums);
        if (!form->has_m)
            sums[k] = _mm256_mullo_epi32(sums[k], less);
        scales[k] = load32((const void *)block->scales);
        for (uint32_t i = 0; i < PRODUCT_PARTS; i++)
            memcpy(out[i].values[k], block->values + i * PRODUCT_PART, PRODUCT_PART);
    }
    turn_column((const uint8_t *)sums, sizeof *sums, (uint8_t *)out->excess, sizeof *out);
    turn_column((const uint8_t *)scales, sizeof *scales, (uint8_t *)out->scales, sizeof *out);
}

/* ---- a strip --------------------------------------------------------------------------------- */

/* Times the first n rows x of a side, a constant. */
ALWAYS_INLINE void strip_multiply(bool has_m, const struct strip *strip, const struct strip_x *x,
                                  uint32_t n, __m512 *sums)
{
    __m512i dot[STRIP_SIDE];
    UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
        has_m ? _mm512_setzero_si512() : _mm512_set1_epi32(x->excess[k]);
    UNROLL for (uint32_t i = 0; i < PRODUCT_PART / 4; i++)
    {
        UNROLL for (uint32_t k = 0; k < n; k++) dot[k] =
            _mm512_dpbusd_epi32(dot[k], strip->weights[i], lanes_spread(x->values[k] + 4 * i));
    }
    UNROLL for (uint32_t k = 0; k < n; k++)
    {
        sums[k] = _mm512_fmadd_ps(_mm512_mul_ps(strip->d, _mm512_set1_ps(x->scales[k])),
                                  _mm512_cvtepi32_ps(dot[k]), sums[k]);
        if (has_m)
            sums[k] = _mm512_fmadd_ps(strip->m, _mm512_set1_ps(x->sums[k]), sums[k]);
    }
}

/* Two rows' share of the next block, to the first cache: that of part i of this one. So many
 * streams processors do not see. */
ALWAYS_INLINE void strip_fetch(const struct part_form *form, const uint8_t *const *rows, size_t at,
                               uint32_t i)
{
    UNROLL for (uint32_t c = 2 * i; c < 2 * i + STRIP_ROWS / PRODUCT_PARTS; c++)
    {
        UNROLL for (uint32_t line = 0; line < form->block_bytes; line += 64)
            __builtin_prefetch((const void *)((uintptr_t)rows[c] + at + line));
    }
}

/* n_rows <= STRIP_ROWS rows of y, from `row` on. */
ALWAYS_INLINE void strip_put(const struct strip_sums *sums, uint32_t n, uint32_t row,
                             uint32_t n_rows, float *const *y)
{
    const __mmask16 there = (__mmask16)(n_rows < STRIP_ROWS ? (1u << n_rows) - 1 : 0xffff);
    for (uint32_t k = 0; k < n; k++) {
        const __m512 *of = &sums[k / STRIP_SIDE].of[0][k % STRIP_SIDE];
        _mm512_mask_storeu_ps(y[k] + row, there,
                              _mm512_add_ps(_mm512_add_ps(of[0], of[STRIP_SIDE]),
                                            _mm512_add_ps(of[2 * STRIP_SIDE], of[3 * STRIP_SIDE])));
    }
}

/* Sixteen rows' sums of all rows x, of which the last side may be half. */
ALWAYS_INLINE void strip_add_parts(const struct part_form *form, strip_unpack *unpack,
                                   const struct strip_job *job, const uint8_t *const *rows,
                                   struct strip_sums *sums)
{
    const uint32_t n_whole = (job->n + STRIP_SIDE / 2 - 1) / STRIP_SIDE;
    const bool is_last_half = n_whole * STRIP_SIDE < job->n;
    for (uint32_t part = 0; part < job->n_parts; part++) {
        const uint32_t b = part / PRODUCT_PARTS + 1, i = part % PRODUCT_PARTS;
        const bool is_behind = b * PRODUCT_PARTS >= job->n_parts;
        struct strip strip;
        unpack(rows, strip_at(form, part), i, &strip);
        strip_fetch(form, rows,
                    is_behind ? STRIP_ROWS * job->row_bytes : (size_t)b * form->block_bytes, i);
        for (uint32_t side = 0; side < n_whole; side++)
            strip_multiply(form->has_m, &strip, &job->x[side][part], STRIP_SIDE,
                           sums[side].of[part % 4]);
        if (is_last_half)
            strip_multiply(form->has_m, &strip, &job->x[n_whole][part], STRIP_SIDE / 2,
                           sums[n_whole].of[part % 4]);
    }
}

ALWAYS_INLINE void strip_multiply_rows(const struct part_form *form, strip_unpack *unpack,
                                       const struct strip_job *job)
{
    for (uint32_t row = 0; row < job->n_rows; row += STRIP_ROWS) {
        const uint32_t left = job->n_rows - row;
        struct strip_sums(*kept)[STRIP_SIDES] = &job->sums[row / STRIP_ROWS];
        struct strip_sums sums[STRIP_SIDES];
        const uint8_t *rows[STRIP_ROWS];
        for (uint32_t c = 0; c < STRIP_ROWS; c++)
            rows[c] = job->rows + (row + (c < left ? c : left - 1)) * job->row_bytes;
        if (job->is_first)
            memset(sums, 0, sizeof sums);
        else
            memcpy(sums, kept, sizeof sums);
        strip_add_parts(form, unpack, job, rows, sums);
        if (job->is_last)
            strip_put(sums, job->n, row, left, job->y);
        else
            memcpy(kept, sums, sizeof sums);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef void strip_rows(const struct strip_job *job);

#define STRIP_OF(name, form)                                                                       \
    static __attribute__((noinline)) void strip_rows_##form(const struct strip_job *job)           \
    {                                                                                              \
        strip_multiply_rows(&form, strip_unpack_##form, job);                                      \
    }
PART_TYPES(STRIP_OF)
#undef STRIP_OF

struct strip_form {
    const struct part_form *of;
    strip_rows *multiply;
};

static struct strip_form strip_form_of(enum product_type type)
{
#define STRIP_CASE(name, form)                                                                     \
    if (type == PRODUCT_##name)                                                                    \
        return (struct strip_form){&form, strip_rows_##form};
    PART_TYPES(STRIP_CASE)
#undef STRIP_CASE
    return (struct strip_form){0};
}

/* n rows x, rows `first` to `end` - 1 of the matrix, STRIP_MANY_ROWS at most. */
static void strip_compute(const struct product_matrix *matrix, const struct product_block *const *x,
                          float *const *y, uint32_t n, uint32_t first, uint32_t end)
{
    const struct strip_form form = strip_form_of(matrix->type);
    const uint32_t n_parts = matrix->n_columns / PRODUCT_PART;
    const uint32_t n_sides = (n + STRIP_SIDE - 1) / STRIP_SIDE;
    const struct product_block *filled[STRIP_SIDES * STRIP_SIDE];
    struct strip_x prepared[STRIP_SIDES][STRIP_PARTS];
    struct strip_sums sums[STRIP_MANY_ROWS / STRIP_ROWS][STRIP_SIDES];
    assert(form.of && n > 0 && n_sides <= STRIP_SIDES && end - first <= STRIP_MANY_ROWS);
    float *to[STRIP_SIDES * STRIP_SIDE];
    for (uint32_t k = 0; k < n_sides * STRIP_SIDE; k++) {
        filled[k] = x[k < n ? k : n - 1];
        to[k] = y[k < n ? k : n - 1] + first;
    }
    for (uint32_t part = 0; part < n_parts; part += STRIP_PARTS) {
        const uint32_t used = n_parts - part < STRIP_PARTS ? n_parts - part : STRIP_PARTS;
        for (uint32_t i = 0; i < n_sides; i++) {
            for (uint32_t at = 0; at < used; at += PRODUCT_PARTS)
                strip_prepare(form.of, filled + i * STRIP_SIDE, (part + at) / PRODUCT_PARTS,
                              prepared[i] + at);
        }
        form.multiply(&(struct strip_job){
            .rows = (const uint8_t *)matrix->rows + first * matrix->row_bytes +
                    part / PRODUCT_PARTS * (size_t)form.of->block_bytes,
            .row_bytes = matrix->row_bytes,
            .n_rows = end - first,
            .n_parts = used,
            .is_first = part == 0,
            .is_last = part + used == n_parts,
            .n = n,
            .x = prepared,
            .sums = sums,
            .y = to,
        });
    }
}

/* Where strips are faster than squares and panels, by measurement. Squares keep weights of four
 * bits in half as many registers. */
static bool strip_is_worth_it(enum product_type type, uint32_t n)
{
    const bool is_eights = type == PRODUCT_Q5_0 || type == PRODUCT_Q5_1 || type == PRODUCT_Q8_0;
    return PRODUCT_IS_INTEL && n >= (is_eights ? 7 : 9) && n <= STRIP_SIDES * STRIP_SIDE;
}

static bool product_vnni_strips(const struct product_matrix *matrix,
                                const struct product_block *const *x, float *const *y, uint32_t n,
                                uint32_t first, uint32_t end)
{
    if (!strip_is_worth_it(matrix->type, n))
        return false;
    for (uint32_t row = first; row < end; row += STRIP_MANY_ROWS)
        strip_compute(matrix, x, y, n, row,
                      end - row < STRIP_MANY_ROWS ? end : row + STRIP_MANY_ROWS);
    return true;
}
