/* Products of types of parts with more than a few rows on processors with AVX-512 VNNI: the
 * arithmetic of product.h, some parts of 32 rows of the matrix at a time.
 *
 * What bounds it is the two units that multiply: for a part, sixteen rows and a row x they are
 * given eight vpdpbusd and two products of floats, so 0.8 of the processor's peak is the limit. Two
 * loads a cycle would be a lower one with sixteen rows and eight x: there each vpdpbusd needs a
 * number of x spread for it alone. With two vectors of rows it serves both.
 * Each of the four partial sums is computed for itself, so that registers hold it. */
#pragma once

#include "kernels/product_strip_unpack_vnni.h"

enum {
    PANEL_ROWS = STRIP_ROWS,
    PANEL_PARTS = 32, /* whose weights are unpacked together: 32 KiB */
    PANEL_HALVES = 2, /* of a sheaf */
    PANEL_SIDE = 4,   /* rows x that are multiplied together */
};

struct panel_of_parts { /* of half a sheaf */
    uint8_t weights[PANEL_PARTS][PRODUCT_PART / 4][PANEL_ROWS][4];
    float d[PANEL_PARTS][PANEL_ROWS], m[PANEL_PARTS][PANEL_ROWS];
} __attribute__((aligned(64)));

struct panel_beside {            /* the same parts of a row x */
    int32_t excess[PANEL_PARTS]; /* what products have too much, less than zero */
    float x_sums[PANEL_PARTS];
} __attribute__((aligned(64)));

struct panel_place { /* of a panel in the rows */
    uint32_t block, n_parts;
    bool is_first, is_last;
};

struct panel_sums { /* of a row x */
    row_floats of[4][PANEL_HALVES];
} __attribute__((aligned(64)));

/* Parts first to first + n_parts - 1 of sixteen rows, their weights less `bias`. */
ALWAYS_INLINE void panel_unpack(const struct part_form *form, strip_unpack *unpack, int32_t bias,
                                const uint8_t *const *rows, uint32_t first, uint32_t n_parts,
                                struct panel_of_parts *out)
{
    const __m512i less = _mm512_set1_epi8((char)bias);
    for (uint32_t i = 0; i < n_parts; i++) {
        struct strip strip;
        unpack(rows, strip_at(form, first + i), (first + i) % PRODUCT_PARTS, &strip);
        UNROLL for (uint32_t j = 0; j < PRODUCT_PART / 4; j++) _mm512_store_si512(
            out->weights[i][j], bias ? _mm512_sub_epi8(strip.weights[j], less) : strip.weights[j]);
        _mm512_store_ps(out->d[i], strip.d);
        if (form->has_m)
            _mm512_store_ps(out->m[i], strip.m);
    }
}

/* ---- multiplying ---- */

ALWAYS_INLINE void panel_prepare(int32_t bias, bool has_m, const struct product_block *x,
                                 uint32_t n_parts, struct panel_beside *out)
{
    for (uint32_t i = 0; i < n_parts; i += PRODUCT_PARTS, x++) {
        const __m256i sums = _mm256_loadu_si256((const void *)x->part_sums);
        _mm256_store_si256((void *)&out->excess[i],
                           _mm256_mullo_epi32(sums, _mm256_set1_epi32(-bias)));
        if (has_m)
            _mm256_store_ps(&out->x_sums[i], _mm256_loadu_ps(x->x_sums));
    }
}

/* Every fourth part, from `first` on, times PANEL_SIDE rows x. */
ALWAYS_INLINE void panel_multiply_fourth(bool has_m, const struct panel_of_parts *panel,
                                         const struct panel_place *place,
                                         const struct product_block *const *x,
                                         const struct panel_beside *beside, uint32_t first,
                                         const struct lanes_next *next, struct panel_sums *sums)
{
    row_floats all[PANEL_SIDE][PANEL_HALVES];
    UNROLL for (uint32_t k = 0; k < PANEL_SIDE; k++)
    {
        UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) all[k][h] =
            place->is_first ? (row_floats){0} : sums[k].of[first][h];
    }
    for (uint32_t part = first; part < place->n_parts; part += 4) {
        const uint32_t b = part / PRODUCT_PARTS, i = part % PRODUCT_PARTS;
        __m512i dot[PANEL_SIDE][PANEL_HALVES];
        lanes_fetch(next, first * (PANEL_PARTS / 4) + part / 4, PANEL_PARTS);
        UNROLL for (uint32_t k = 0; k < PANEL_SIDE; k++)
        {
            UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) dot[k][h] =
                _mm512_set1_epi32(beside[k].excess[part]);
        }
        UNROLL for (uint32_t j = 0; j < PRODUCT_PART / 4; j++)
        {
            __m512i w[PANEL_HALVES];
            UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) w[h] =
                _mm512_load_si512(panel[h].weights[part][j]);
            UNROLL for (uint32_t k = 0; k < PANEL_SIDE; k++)
            {
                const __m512i q = lanes_spread(x[k][b].values + PRODUCT_PART * i + 4 * j);
                UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) dot[k][h] =
                    _mm512_dpbusd_epi32(dot[k][h], w[h], q);
            }
        }
        UNROLL for (uint32_t k = 0; k < PANEL_SIDE; k++)
        {
            UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++)
            {
                all[k][h] += *(const row_floats *)panel[h].d[part] * x[k][b].scales[i] *
                             (row_floats)_mm512_cvtepi32_ps(dot[k][h]);
                if (has_m)
                    all[k][h] += *(const row_floats *)panel[h].m[part] * beside[k].x_sums[part];
            }
        }
    }
    UNROLL for (uint32_t k = 0; k < PANEL_SIDE; k++)
    {
        UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) sums[k].of[first][h] = all[k][h];
    }
}

ALWAYS_INLINE void panel_add_up(const struct panel_sums *sums, float *const *y)
{
    UNROLL for (uint32_t k = 0; k < PANEL_SIDE; k++)
    {
        UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) * (row_floats *)&y[k][h * PANEL_ROWS] =
            (sums[k].of[0][h] + sums[k].of[1][h]) + (sums[k].of[2][h] + sums[k].of[3][h]);
    }
}

/* For types with and without m. Rows x and their sums are added up as soon as they can be, while
 * the first cache has them. */
#define PANEL_MULTIPLY(name, has_m)                                                                \
    static __attribute__((noinline)) void name(                                                    \
        int32_t bias, const struct panel_of_parts *panel, const struct panel_place *place,         \
        const struct product_block *const *x, const struct lanes_next *next,                       \
        struct panel_sums *sums, float *const *y)                                                  \
    {                                                                                              \
        struct panel_beside beside[PANEL_SIDE];                                                    \
        const struct product_block *from[PANEL_SIDE];                                              \
        UNROLL for (uint32_t k = 0; k < PANEL_SIDE; k++)                                           \
        {                                                                                          \
            from[k] = x[k] + place->block;                                                         \
            panel_prepare(bias, has_m, from[k], place->n_parts, &beside[k]);                       \
        }                                                                                          \
        for (uint32_t first = 0; first < 4; first++)                                               \
            panel_multiply_fourth(has_m, panel, place, from, beside, first, next, sums);           \
        if (place->is_last)                                                                        \
            panel_add_up(sums, y);                                                                 \
    }
PANEL_MULTIPLY(panel_some, false)
PANEL_MULTIPLY(panel_some_with_m, true)

/* n is a multiple of PANEL_SIDE. */
static void panel_multiply_all(const struct part_form *form, const struct panel_of_parts *panel,
                               const struct panel_place *place,
                               const struct product_block *const *x, uint32_t n,
                               const struct lanes_next *next, struct panel_sums *sums,
                               float *const *y)
{
    static const struct lanes_next nothing;
    for (uint32_t i = 0; i < n; i += PANEL_SIDE, next = &nothing)
        (form->has_m ? panel_some_with_m : panel_some)(form->bias, panel, place, x + i, next,
                                                       sums + i, y + i);
}

ALWAYS_INLINE void panel_rows(const struct part_form *form, strip_unpack *unpack,
                              const uint8_t *const *rows, uint32_t n_parts,
                              const struct product_block *const *x, uint32_t n, float *const *y)
{
    struct panel_sums sums[PRODUCT_TILE];
    for (uint32_t first = 0; first < n_parts; first += PANEL_PARTS) {
        struct panel_of_parts panel[PANEL_HALVES];
        const uint32_t left = n_parts - first;
        const struct panel_place place = {.block = first / PRODUCT_PARTS,
                                          .n_parts = left < PANEL_PARTS ? left : PANEL_PARTS,
                                          .is_first = first == 0,
                                          .is_last = left <= PANEL_PARTS};
        struct lanes_next next;
        for (uint32_t h = 0; h < PANEL_HALVES; h++)
            panel_unpack(form, unpack, 0, rows + h * PANEL_ROWS, first, place.n_parts, &panel[h]);
        lanes_set_next(rows, (size_t)n_parts * form->block_bytes / PRODUCT_PARTS,
                       (size_t)(first + PANEL_PARTS) / PRODUCT_PARTS * form->block_bytes,
                       PANEL_PARTS / PRODUCT_PARTS * form->block_bytes, &next);
        panel_multiply_all(form, panel, &place, x, n, &next, sums, y);
    }
}

static void product_vnni_panels(enum product_type type, const uint8_t *const *rows,
                                uint32_t n_parts, const struct product_block *const *x, uint32_t n,
                                float *const *y)
{
    const struct product_block *filled[PRODUCT_TILE];
    n = lanes_fill(x, n, filled);
#define PANEL_CASE(name, form)                                                                     \
    if (type == PRODUCT_##name)                                                                    \
        panel_rows(&form, strip_unpack_##form, rows, n_parts, filled, n, y);
    PART_TYPES(PANEL_CASE)
#undef PANEL_CASE
}
