/* Many rows x and types of parts by AMX. A part has scales of its own, so the products of its 32
 * weights are summed up apart: tiles of x have 32 bytes a row, and half of the unit that multiplies
 * tiles is idle. What bounds it all the same is what comes behind: each sum of a tile is converted
 * and multiplied by the product of its scales. */
#pragma once

#include "kernels/product_amx.h"

struct amx_panel { /* times a side */
    const struct panel_of_parts *of;
    uint32_t n_parts, n_rows;
    struct amx_side side;
    const struct lanes_next *next;
    const struct panel_beside *beside; /* of each row, for types with m: x_sums */
};

struct amx_part_sums { /* of sixteen rows and a row x */
    __m512 of[4];
};

/* A lot: up to four parts of one of the four partial sums, first, first + 4, ... */
struct amx_lot {
    uint32_t first, n;
};

ALWAYS_INLINE struct amx_lot amx_lot_at(uint32_t n_parts, uint32_t i)
{
    const uint32_t first = i / 4 * 16 + i % 4, left = (n_parts - first + 3) / 4;
    return (struct amx_lot){first, left < 4 ? left : 4};
}

static uint32_t amx_lots_of(uint32_t n_parts)
{
    const uint32_t rest = n_parts % 16;
    return n_parts / 16 * 4 + (rest < 4 ? rest : 4);
}

/* Weights with their sign. */
static void amx_panel_take_bias(int32_t bias, uint32_t n_parts, struct panel_of_parts *panel)
{
    const __m512i all = _mm512_set1_epi8((char)bias);
    for (uint32_t part = 0; bias && part < n_parts; part++) {
        UNROLL for (uint32_t i = 0; i < PRODUCT_PART / 4; i++)
        {
            const __m512i weights = _mm512_load_si512(panel->weights[part][i]);
            panel_put(panel, part, i, _mm512_sub_epi8(weights, all));
        }
    }
}

/* Tiles of the next lot are multiplied while the sums of the last one are scaled. */
#define AMX_DOT_PART(i, sums, x, w)                                                                \
    if (i < lot.n) {                                                                               \
        const uint32_t part = lot.first + 4 * i;                                                   \
        const struct product_block *block = amx_blocks_of(&panel->side, 0) + part / PRODUCT_PARTS; \
        AMX_LOAD(x, block->values + part % PRODUCT_PARTS * PRODUCT_PART, panel->side.step);        \
        AMX_LOAD(w, panel->of->weights[part], 64);                                                 \
        AMX_ZERO(sums);                                                                            \
        AMX_DOT_SIGNED(sums, x, w);                                                                \
        AMX_STORE(sums, out->of[i], 64);                                                           \
    }

static void amx_dot_lot(const struct amx_panel *panel, uint32_t i, struct amx_sums *out)
{
    const struct amx_lot lot = amx_lot_at(panel->n_parts, i);
    AMX_DOT_PART(0, 0, 4, 6)
    AMX_DOT_PART(1, 1, 5, 7)
    AMX_DOT_PART(2, 2, 4, 6)
    AMX_DOT_PART(3, 3, 5, 7)
    lanes_fetch(panel->next, i, PANEL_PARTS / 4);
}

/* n parts of a lot, more of which follow if they are four. */
ALWAYS_INLINE void amx_add_some(bool has_m, const struct amx_panel *panel, uint32_t first,
                                uint32_t n, const struct amx_sums *sums, struct amx_part_sums *y)
{
    for (uint32_t k = 0; k < panel->n_rows; k++) {
        const struct product_block *x = amx_blocks_of(&panel->side, k);
        __m512 all = y[k].of[first % 4];
        UNROLL for (uint32_t i = 0; i < n; i++)
        {
            const uint32_t part = first + 4 * i;
            const float e = x[part / PRODUCT_PARTS].scales[part % PRODUCT_PARTS];
            const __m512 d = _mm512_load_ps(panel->of->d[part]);
            all = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(e)),
                                  _mm512_cvtepi32_ps(_mm512_load_si512(sums->of[i][k])), all);
            if (has_m)
                all = _mm512_fmadd_ps(_mm512_load_ps(panel->of->m[part]),
                                      _mm512_set1_ps(panel->beside[k].x_sums[part]), all);
        }
        y[k].of[first % 4] = all;
    }
}

ALWAYS_INLINE void amx_add_lot(bool has_m, const struct amx_panel *panel, uint32_t i,
                               const struct amx_sums *sums, struct amx_part_sums *y)
{
    const struct amx_lot lot = amx_lot_at(panel->n_parts, i);
    if (lot.n == 4)
        amx_add_some(has_m, panel, lot.first, 4, sums, y);
    else
        amx_add_some(has_m, panel, lot.first, lot.n, sums, y);
}

static void amx_multiply_panel(bool has_m, const struct amx_panel *panel, struct amx_part_sums *y)
{
    struct amx_sums sums[2];
    const uint32_t n = amx_lots_of(panel->n_parts);
    amx_dot_lot(panel, 0, &sums[0]);
    for (uint32_t i = 0; i < n; i++) {
        if (i + 1 < n)
            amx_dot_lot(panel, i + 1, &sums[(i + 1) % 2]);
        if (has_m)
            amx_add_lot(true, panel, i, &sums[i % 2], y);
        else
            amx_add_lot(false, panel, i, &sums[i % 2], y);
    }
}

/* A panel, whose `block` of rows x it begins with, times all sides. NULL: nothing is fetched. */
static void amx_multiply_sides(const struct part_form *form, const struct panel_of_parts *of,
                               uint32_t n_parts, const struct product_block *const *x,
                               uint32_t block, const struct amx_sides *sides,
                               const struct lanes_next *next, struct amx_part_sums *y)
{
    static const struct lanes_next nothing;
    struct product_block copies[AMX_ROWS * PANEL_PARTS / PRODUCT_PARTS];
    const uint32_t n_blocks = (n_parts + PRODUCT_PARTS - 1) / PRODUCT_PARTS;
    struct panel_beside beside[AMX_ROWS];
    for (uint32_t i = 0; i < sides->n; i++) {
        struct amx_panel panel = {of, n_parts, sides->n_rows, .beside = beside};
        panel.next = i || !next ? &nothing : next;
        panel.side = amx_side_of(x + i * sides->n_rows, sides->n_rows, block, n_blocks, copies);
        for (uint32_t k = 0; form->has_m && k < sides->n_rows; k++)
            panel_prepare(0, true, amx_blocks_of(&panel.side, k), n_parts, &beside[k]);
        amx_multiply_panel(form->has_m, &panel, y + i * sides->n_rows);
    }
}

/* `step` bytes from part to part; 0: unpack() takes a block of eight. */
ALWAYS_INLINE void amx_parts_rows(const struct part_form *form, size_t step, panel_unpack *unpack,
                                  const uint8_t *const *rows, uint32_t n_parts,
                                  const struct product_block *const *x,
                                  const struct amx_sides *sides, float *const *y)
{
    struct amx_part_sums sums[PANEL_HALVES][PRODUCT_TILE];
    const uint32_t n = sides->n * sides->n_rows;
    memset(sums, 0, sizeof sums);
    for (uint32_t first = 0; first < n_parts; first += PANEL_PARTS) {
        struct panel_of_parts panel[PANEL_HALVES];
        const uint32_t used = n_parts - first < PANEL_PARTS ? n_parts - first : PANEL_PARTS;
        struct lanes_next next;
        for (uint32_t h = 0; h < PANEL_HALVES; h++) {
            for (uint32_t i = 0; i < used; i++) {
                const uint32_t part = first + i;
                unpack(rows + h * PANEL_ROWS,
                       step ? part * step : (size_t)(part / PRODUCT_PARTS) * form->block_bytes,
                       &panel[h], i);
            }
            amx_panel_take_bias(form->bias, used, &panel[h]);
        }
        lanes_set_next(rows, (size_t)n_parts * form->block_bytes / PRODUCT_PARTS,
                       (size_t)(first + PANEL_PARTS) / PRODUCT_PARTS * form->block_bytes,
                       PANEL_PARTS / PRODUCT_PARTS * form->block_bytes, &next);
        for (uint32_t h = 0; h < PANEL_HALVES; h++)
            amx_multiply_sides(form, &panel[h], used, x, first / PRODUCT_PARTS, sides,
                               h ? NULL : &next, sums[h]);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t h = 0; h < PANEL_HALVES; h++) {
            const __m512 *of = sums[h][i].of;
            _mm512_storeu_ps(&y[i][h * PANEL_ROWS], (of[0] + of[1]) + (of[2] + of[3]));
        }
    }
}

static void product_amx_parts(enum product_type type, const uint8_t *const *rows, uint32_t n_parts,
                              const struct product_block *const *x, uint32_t n, float *const *y)
{
    const struct amx_sides sides = amx_sides_of(type, n);
    const struct product_block *filled[PRODUCT_TILE];
    amx_fill(&sides, x, n, filled);
#define AMX_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        amx_parts_rows(&form, type == PRODUCT_IQ4_XS ? 0 : form.block_bytes / PRODUCT_PARTS,       \
                       panel_unpack_##form, rows, n_parts, filled, &sides, y);
    PART_TYPES(AMX_CASE)
#undef AMX_CASE
}
