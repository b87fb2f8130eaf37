/* Many rows x, K-quants and grids by AMX. A weight times its scale has at most 13 bits and a sign:
 * a low byte, and a high one with the sign. So the scales within a block are in the weights that
 * tiles are multiplied with, and a block has two sums of integers,
 *
 *     sum s[g] w q = sum low q + 256 sum high q
 *
 * which take the unit that multiplies tiles as long as one of each half of a tile would, and leave
 * less to do behind them. */
#pragma once

#include "kernels/product_amx.h"

struct amx_block {
    struct sheaf_block of; /* its weights are low bytes */
    uint8_t high[PRODUCT_BLOCK / 4][SHEAF_ROWS][4];
} __attribute__((aligned(64)));

struct amx_block_sums {
    int32_t of[SHEAF_HALVES][2][AMX_ROWS][SHEAF_ROWS]; /* low and high */
} __attribute__((aligned(64)));

struct amx_turn { /* a block of 32 rows of the matrix times a side */
    const struct amx_block *halves;
    struct amx_side side;
    uint32_t n_rows;
    const struct lanes_next *next;
    float (*y)[PRODUCT_SHEAF_MAX];
};

/* Weights times scales. */
ALWAYS_INLINE void amx_block_fold(const struct sheaf_kind *kind, struct amx_block *block)
{
    const __mmask64 odd_bytes = UINT64_C(0xaaaaaaaaaaaaaaaa);
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) {
        const __m512i scale = _mm512_load_si512(block->of.scales[g / kind->step * kind->step]);
        const __m512i twice =
            _mm512_mask_blend_epi16(UINT32_C(0xaaaaaaaa), scale, _mm512_slli_epi32(scale, 16));
        const __m512i even = _mm512_and_si512(twice, _mm512_set1_epi16(255)),
                      odd = _mm512_slli_epi16(even, 8);
        const __m512i excess = _mm512_mullo_epi16(twice, _mm512_set1_epi16((short)kind->bias));
        UNROLL for (uint32_t i = 4 * g; i < 4 * g + 4; i++)
        {
            const __m512i w = _mm512_load_si512(block->of.weights[i]);
            const __m512i a = _mm512_sub_epi16(_mm512_maddubs_epi16(w, even), excess),
                          b = _mm512_sub_epi16(_mm512_maddubs_epi16(w, odd), excess);
            _mm512_store_si512(block->of.weights[i],
                               _mm512_mask_blend_epi8(odd_bytes, a, _mm512_slli_epi16(b, 8)));
            _mm512_store_si512(block->high[i],
                               _mm512_mask_blend_epi8(odd_bytes, _mm512_srli_epi16(a, 8), b));
        }
    }
}

/* A tile of x serves four of weights: low and high bytes of both halves. */
static inline void amx_dot(const struct amx_turn *turn, struct amx_block_sums *out)
{
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (uint32_t i = 0; i < PRODUCT_BLOCK / 64; i++) {
        AMX_LOAD(4, amx_blocks_of(&turn->side, 0)->values + 64 * i, turn->side.step);
        AMX_LOAD(6, turn->halves[0].of.weights[16 * i], 64);
        AMX_LOAD(7, turn->halves[0].high[16 * i], 64);
        AMX_DOT_UNSIGNED(0, 4, 6);
        AMX_DOT_SIGNED(1, 4, 7);
        AMX_LOAD(6, turn->halves[1].of.weights[16 * i], 64);
        AMX_LOAD(7, turn->halves[1].high[16 * i], 64);
        AMX_DOT_UNSIGNED(2, 4, 6);
        AMX_DOT_SIGNED(3, 4, 7);
        lanes_fetch(turn->next, i, PRODUCT_BLOCK / 64);
    }
    AMX_STORE(0, out->of[0][0], 64);
    AMX_STORE(1, out->of[0][1], 64);
    AMX_STORE(2, out->of[1][0], 64);
    AMX_STORE(3, out->of[1][1], 64);
}

struct amx_scales { /* of a block: in registers while rows x take turns */
    __m512 d[SHEAF_HALVES], dmin[SHEAF_HALVES];
    __m512i offsets[SHEAF_HALVES][PRODUCT_GROUPS / 2];
};

ALWAYS_INLINE void amx_scales_of(const struct sheaf_kind *kind, const struct amx_block *halves,
                                 struct amx_scales *out)
{
    UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++)
    {
        out->d[h] = _mm512_load_ps(halves[h].of.d);
        if (!kind->has_dmin)
            continue;
        out->dmin[h] = _mm512_load_ps(halves[h].of.dmin);
        UNROLL for (uint32_t p = 0; p < PRODUCT_GROUPS / 2 / kind->step; p++) out->offsets[h][p] =
            _mm512_load_si512(halves[h].of.offsets[p]);
    }
}

ALWAYS_INLINE void amx_add_row(const struct sheaf_kind *kind, const struct amx_turn *turn,
                               const struct amx_scales *scales, const struct amx_block_sums *sums,
                               uint32_t k)
{
    const struct product_block *x = amx_blocks_of(&turn->side, k);
    union sheaf_sums x_sums;
    if (kind->has_dmin)
        sheaf_prepare_sums(kind, x, &x_sums);
    __m512i offsets[SHEAF_HALVES] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    UNROLL for (uint32_t p = 0; kind->has_dmin && p < PRODUCT_GROUPS / 2 / kind->step; p++)
    {
        const __m512i pair = _mm512_set1_epi32(x_sums.excess[p]);
        UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++) offsets[h] =
            _mm512_dpwssd_epi32(offsets[h], scales->offsets[h][p], pair);
    }
    UNROLL for (uint32_t h = 0; h < SHEAF_HALVES; h++)
    {
        const __m512i low = _mm512_load_si512(sums->of[h][0][k]),
                      high = _mm512_load_si512(sums->of[h][1][k]);
        const __m512i products = _mm512_add_epi32(low, _mm512_slli_epi32(high, 8));
        sheaf_add_sums(kind, scales->d[h], scales->dmin[h], products, offsets[h], x->scale,
                       &turn->y[k][h * SHEAF_ROWS]);
    }
}

/* Block b of both halves times all sides. */
ALWAYS_INLINE void amx_multiply_block(const struct sheaf_kind *kind, const struct amx_block *halves,
                                      const struct product_block *const *x, uint32_t b,
                                      const struct amx_sides *sides, const struct lanes_next *next,
                                      float (*y)[PRODUCT_SHEAF_MAX])
{
    static const struct lanes_next nothing;
    struct product_block copies[AMX_ROWS];
    struct amx_scales scales = {0};
    amx_scales_of(kind, halves, &scales);
    for (uint32_t i = 0; i < sides->n;
         i++, x += sides->n_rows, y += sides->n_rows, next = &nothing) {
        const struct amx_turn turn = {halves, amx_side_of(x, sides->n_rows, b, 1, copies),
                                      sides->n_rows, next, y};
        struct amx_block_sums sums;
        amx_dot(&turn, &sums);
        for (uint32_t k = 0; k < sides->n_rows; k++)
            amx_add_row(kind, &turn, &scales, &sums, k);
    }
}

#define AMX_BLOCK_ROWS(name)                                                                       \
    static __attribute__((noinline)) void amx_rows_##name(                                         \
        const uint8_t *const *rows, uint32_t n_blocks, const struct product_block *const *x,       \
        const struct amx_sides *sides, float(*y)[PRODUCT_SHEAF_MAX])                               \
    {                                                                                              \
        const size_t bytes = sheaf_##name.bytes;                                                   \
        memset(y, 0, (size_t)sides->n * sides->n_rows * sizeof *y);                                \
        for (uint32_t b = 0; b < n_blocks; b++) {                                                  \
            struct amx_block halves[SHEAF_HALVES];                                                 \
            struct lanes_next next;                                                                \
            lanes_set_next(rows, n_blocks *bytes, (b + SHEAF_AHEAD) * bytes, bytes, &next);        \
            for (uint32_t h = 0; h < SHEAF_HALVES; h++) {                                          \
                sheaf_unpack_##name(rows + h * SHEAF_ROWS, b * bytes, &halves[h].of);              \
                amx_block_fold(&sheaf_##name, &halves[h]);                                         \
            }                                                                                      \
            amx_multiply_block(&sheaf_##name, halves, x, b, sides, &next, y);                      \
        }                                                                                          \
    }
#define AMX_BLOCK_TYPE(type, form) AMX_BLOCK_ROWS(form)
BLOCK_TYPES(AMX_BLOCK_TYPE)
#define AMX_GRID_TYPE(type, name, n_bytes, bias, d) AMX_BLOCK_ROWS(name)
GRID_TYPES(AMX_GRID_TYPE)

static void product_amx_blocks(enum product_type type, const uint8_t *const *rows,
                               uint32_t n_blocks, const struct product_block *const *x, uint32_t n,
                               float (*y)[PRODUCT_SHEAF_MAX])
{
    const struct amx_sides sides = amx_sides_of(n);
    const struct product_block *filled[PRODUCT_TILE];
    amx_fill(&sides, x, n, filled);
#define AMX_CASE(name, form)                                                                       \
    if (type == PRODUCT_##name)                                                                    \
        amx_rows_##form(rows, n_blocks, filled, &sides, y);
    BLOCK_TYPES(AMX_CASE)
#undef AMX_CASE
#define AMX_CASE(type_name, name, n_bytes, bias, d)                                                \
    if (type == PRODUCT_##type_name)                                                               \
        amx_rows_##name(rows, n_blocks, filled, &sides, y);
    GRID_TYPES(AMX_CASE)
#undef AMX_CASE
}
