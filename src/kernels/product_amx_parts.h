/* Many rows x and types of parts by AMX. A part has scales of its own, so the products of its 32
 * weights are summed up apart: tiles of x have 32 bytes a row, and half of the unit that multiplies
 * tiles is idle. What bounds it all the same is what comes behind: each sum of a tile is converted
 * and multiplied by the product of its scales. A tile of x serves two of weights, those of 32 rows
 * of the matrix, and so do its scales. */
#pragma once

#include "kernels/product_amx.h"

enum { AMX_STEPS = 4 }; /* parts of a lot */

/* Up to four parts of one of the four partial sums: first, first + 4, ... */
struct amx_lot {
    uint32_t first, n;
};

struct amx_lot_sums {
    int32_t of[AMX_STEPS][PANEL_HALVES][AMX_ROWS][PANEL_ROWS];
} __attribute__((aligned(64)));

struct amx_panel { /* both halves, times a side */
    const struct panel_of_parts *halves;
    uint32_t n_parts, n_rows;
    struct amx_side side;
    const struct lanes_next *next;
};

ALWAYS_INLINE struct amx_lot amx_lot_at(uint32_t n_parts, uint32_t i)
{
    const uint32_t first = i / 4 * 16 + i % 4, left = (n_parts - first + 3) / 4;
    return (struct amx_lot){first, left < AMX_STEPS ? left : AMX_STEPS};
}

static uint32_t amx_lots_of(uint32_t n_parts)
{
    const uint32_t rest = n_parts % 16;
    return n_parts / 16 * 4 + (rest < 4 ? rest : 4);
}

#define AMX_DOT_PART(i, x, low, high)                                                              \
    if (i < lot.n) {                                                                               \
        const uint32_t part = lot.first + 4 * i;                                                   \
        const struct product_block *block = amx_blocks_of(&panel->side, 0) + part / PRODUCT_PARTS; \
        AMX_LOAD(x, block->values + part % PRODUCT_PARTS * PRODUCT_PART, panel->side.step);        \
        AMX_LOAD(6, panel->halves[0].weights[part], 64);                                           \
        AMX_LOAD(7, panel->halves[1].weights[part], 64);                                           \
        AMX_ZERO(low);                                                                             \
        AMX_ZERO(high);                                                                            \
        AMX_DOT_SIGNED(low, x, 6);                                                                 \
        AMX_DOT_SIGNED(high, x, 7);                                                                \
    }
#define AMX_STORE_PART(i, low, high)                                                               \
    if (i < lot.n) {                                                                               \
        AMX_STORE(low, out->of[i][0], 64);                                                         \
        AMX_STORE(high, out->of[i][1], 64);                                                        \
    }

/* A part's sums are stored while the next part is multiplied. */
ALWAYS_INLINE void amx_dot_lot(const struct amx_panel *panel, struct amx_lot lot,
                               struct amx_lot_sums *out)
{
    AMX_DOT_PART(0, 4, 0, 1)
    AMX_DOT_PART(1, 5, 2, 3)
    AMX_STORE_PART(0, 0, 1)
    AMX_DOT_PART(2, 4, 0, 1)
    AMX_STORE_PART(1, 2, 3)
    AMX_DOT_PART(3, 5, 2, 3)
    AMX_STORE_PART(2, 0, 1)
    AMX_STORE_PART(3, 2, 3)
}

struct amx_part_scales { /* of a lot: in registers while rows x take turns */
    __m512 d[AMX_STEPS][PANEL_HALVES], m[AMX_STEPS][PANEL_HALVES];
};

ALWAYS_INLINE void amx_part_scales_of(bool has_m, const struct amx_panel *panel, uint32_t first,
                                      uint32_t n, struct amx_part_scales *out)
{
    UNROLL for (uint32_t i = 0; i < n; i++)
    {
        UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++)
        {
            out->d[i][h] = _mm512_load_ps(panel->halves[h].d[first + 4 * i]);
            if (has_m)
                out->m[i][h] = _mm512_load_ps(panel->halves[h].m[first + 4 * i]);
        }
    }
}

/* What a lot of n parts adds to y. */
ALWAYS_INLINE void amx_add_lot(bool has_m, const struct amx_panel *panel, uint32_t first,
                               uint32_t n, const struct amx_lot_sums *sums, struct panel_sums *y)
{
    struct amx_part_scales scales = {0};
    amx_part_scales_of(has_m, panel, first, n, &scales);
    for (uint32_t k = 0; k < panel->n_rows; k++) {
        const struct product_block *x = amx_blocks_of(&panel->side, k);
        row_floats *const to = y[k].of[first % 4];
        __m512 all[PANEL_HALVES];
        UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) all[h] = to[h];
        UNROLL for (uint32_t i = 0; i < n; i++)
        {
            const uint32_t part = first + 4 * i;
            const struct product_block *block = x + part / PRODUCT_PARTS;
            const __m512 e = _mm512_set1_ps(block->scales[part % PRODUCT_PARTS]);
            UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++)
            {
                const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums->of[i][h][k]));
                all[h] = _mm512_fmadd_ps(_mm512_mul_ps(scales.d[i][h], e), sum, all[h]);
                if (has_m)
                    all[h] = _mm512_fmadd_ps(scales.m[i][h],
                                             _mm512_set1_ps(block->x_sums[part % PRODUCT_PARTS]),
                                             all[h]);
            }
        }
        UNROLL for (uint32_t h = 0; h < PANEL_HALVES; h++) to[h] = all[h];
    }
}

/* For types with and without m. */
#define AMX_MULTIPLY(name, has_m)                                                                  \
    static __attribute__((noinline)) void name(const struct amx_panel *panel,                      \
                                               struct panel_sums *y)                               \
    {                                                                                              \
        const uint32_t n_lots = amx_lots_of(panel->n_parts);                                       \
        for (uint32_t i = 0; i < n_lots; i++) {                                                    \
            const struct amx_lot lot = amx_lot_at(panel->n_parts, i);                              \
            struct amx_lot_sums sums;                                                              \
            amx_dot_lot(panel, lot, &sums);                                                        \
            lanes_fetch(panel->next, i, n_lots);                                                   \
            if (lot.n == AMX_STEPS)                                                                \
                amx_add_lot(has_m, panel, lot.first, AMX_STEPS, &sums, y);                         \
            else                                                                                   \
                amx_add_lot(has_m, panel, lot.first, lot.n, &sums, y);                             \
        }                                                                                          \
    }
AMX_MULTIPLY(amx_multiply_panel, false)
AMX_MULTIPLY(amx_multiply_panel_with_m, true)

/* A panel, whose `block` of rows x it begins with, times all sides. */
static void amx_multiply_sides(const struct part_form *form, const struct panel_of_parts *halves,
                               uint32_t n_parts, const struct product_block *const *x,
                               uint32_t block, const struct amx_sides *sides,
                               const struct lanes_next *next, struct panel_sums *y)
{
    static const struct lanes_next nothing;
    struct product_block copies[AMX_ROWS * PANEL_PARTS / PRODUCT_PARTS];
    const uint32_t n_blocks = (n_parts + PRODUCT_PARTS - 1) / PRODUCT_PARTS;
    for (uint32_t i = 0; i < sides->n; i++) {
        struct amx_panel panel = {halves, n_parts, sides->n_rows};
        panel.next = i ? &nothing : next;
        panel.side = amx_side_of(x + i * sides->n_rows, sides->n_rows, block, n_blocks, copies);
        (form->has_m ? amx_multiply_panel_with_m : amx_multiply_panel)(&panel,
                                                                       y + i * sides->n_rows);
    }
}

ALWAYS_INLINE void amx_parts_rows(const struct part_form *form, strip_unpack *unpack,
                                  const uint8_t *const *rows, uint32_t n_parts,
                                  const struct product_block *const *x,
                                  const struct amx_sides *sides, float *const *y)
{
    struct panel_sums sums[PRODUCT_TILE];
    const uint32_t n = sides->n * sides->n_rows;
    memset(sums, 0, n * sizeof *sums);
    for (uint32_t first = 0; first < n_parts; first += PANEL_PARTS) {
        struct panel_of_parts halves[PANEL_HALVES];
        const uint32_t used = n_parts - first < PANEL_PARTS ? n_parts - first : PANEL_PARTS;
        struct lanes_next next;
        for (uint32_t h = 0; h < PANEL_HALVES; h++)
            panel_unpack(form, unpack, form->bias, rows + h * PANEL_ROWS, first, used, &halves[h]);
        lanes_set_next(rows, (size_t)n_parts * form->block_bytes / PRODUCT_PARTS,
                       (size_t)(first + PANEL_PARTS) / PRODUCT_PARTS * form->block_bytes,
                       PANEL_PARTS / PRODUCT_PARTS * form->block_bytes, &next);
        amx_multiply_sides(form, halves, used, x, first / PRODUCT_PARTS, sides, &next, sums);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t h = 0; h < PANEL_HALVES; h++) {
            const row_floats all =
                (sums[i].of[0][h] + sums[i].of[1][h]) + (sums[i].of[2][h] + sums[i].of[3][h]);
            _mm512_storeu_ps(&y[i][h * PANEL_ROWS], all);
        }
    }
}

static void product_amx_parts(enum product_type type, const uint8_t *const *rows, uint32_t n_parts,
                              const struct product_block *const *x, uint32_t n, float *const *y)
{
    const struct amx_sides sides = amx_sides_of(n);
    const struct product_block *filled[PRODUCT_TILE];
    amx_fill(&sides, x, n, filled);
#define AMX_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        amx_parts_rows(&form, strip_unpack_##form, rows, n_parts, filled, &sides, y);
    PART_TYPES(AMX_CASE)
#undef AMX_CASE
}
