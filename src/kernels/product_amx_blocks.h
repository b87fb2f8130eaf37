/* Many rows x, K-quants and grids by AMX. A weight times its scale has at most 13 bits and a sign:
 * a low byte, and a high one with the sign. So the scales within a block are in the weights that
 * tiles are multiplied with, and a block has two sums of integers,
 *
 *     sum s[g] w q = sum low q + 256 sum high q
 *
 * which take the unit that multiplies tiles as long as one of each half of a tile would, and leave
 * little to do behind them. */
#pragma once

#include "kernels/product_amx.h"

struct amx_block {
    struct sheaf_block of; /* its weights are low bytes */
    uint8_t high[PRODUCT_BLOCK / 4][SHEAF_ROWS][4];
} __attribute__((aligned(64)));

/* Of a block and a pair of sides. */
struct amx_pair {
    const struct amx_block *block;
    struct amx_side sides[2];
    uint32_t n_rows;
    const struct lanes_next *next;
    float (*y)[PRODUCT_SHEAF_MAX];
    uint32_t column; /* of y: where the block's sixteen rows begin */
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

/* Low and high sums of the first side, then of the second. */
static void amx_dot_pair(const struct amx_pair *pair, struct amx_sums *out)
{
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (uint32_t i = 0; i < PRODUCT_BLOCK; i += 64) {
        AMX_LOAD(4, amx_blocks_of(&pair->sides[0], 0)->values + i, pair->sides[0].step);
        AMX_LOAD(5, amx_blocks_of(&pair->sides[1], 0)->values + i, pair->sides[1].step);
        AMX_LOAD(6, pair->block->of.weights[i / 4], 64);
        AMX_LOAD(7, pair->block->high[i / 4], 64);
        AMX_DOT_UNSIGNED(0, 4, 6);
        AMX_DOT_SIGNED(1, 4, 7);
        AMX_DOT_UNSIGNED(2, 5, 6);
        AMX_DOT_SIGNED(3, 5, 7);
        lanes_fetch(pair->next, i / 64, PRODUCT_BLOCK / 64);
    }
    AMX_STORE(0, out->of[0], 64);
    AMX_STORE(1, out->of[1], 64);
    AMX_STORE(2, out->of[2], 64);
    AMX_STORE(3, out->of[3], 64);
}

ALWAYS_INLINE void amx_add_row(const struct sheaf_kind *kind, const struct sheaf_block *block,
                               const struct product_block *x, __m512i products, float *y)
{
    union sheaf_sums sums;
    if (kind->has_dmin)
        sheaf_prepare_sums(kind, x, &sums);
    sheaf_add(kind, block, products, &sums, x->scale, y);
}

ALWAYS_INLINE void amx_add_pair(const struct sheaf_kind *kind, const struct amx_pair *pair,
                                const struct amx_sums *sums)
{
    for (uint32_t i = 0; i < 2 * pair->n_rows; i++) {
        const uint32_t s = i / pair->n_rows, k = i % pair->n_rows;
        const __m512i low = _mm512_load_si512(sums->of[2 * s][k]),
                      high = _mm512_load_si512(sums->of[2 * s + 1][k]);
        amx_add_row(kind, &pair->block->of, amx_blocks_of(&pair->sides[s], k),
                    _mm512_add_epi32(low, _mm512_slli_epi32(high, 8)), &pair->y[i][pair->column]);
    }
}

/* Block b times all sides: tiles of the next pair are multiplied while the sums of the last one are
 * scaled. Without `next` nothing is fetched. */
ALWAYS_INLINE void amx_multiply_block(const struct sheaf_kind *kind, const struct amx_block *block,
                                      const struct product_block *const *x, uint32_t b,
                                      const struct amx_sides *sides, const struct lanes_next *next,
                                      float (*y)[PRODUCT_SHEAF_MAX], uint32_t column)
{
    static const struct lanes_next nothing;
    struct product_block copies[2][2][AMX_ROWS];
    struct amx_pair pairs[2];
    struct amx_sums sums[2];
    const uint32_t n = sides->n_rows;
    for (uint32_t i = 0; i <= sides->n / 2; i++) {
        if (i < sides->n / 2) {
            struct amx_pair *pair = &pairs[i % 2];
            *pair = (struct amx_pair){
                .block = block, .n_rows = n, .y = y + 2 * i * n, .column = column};
            pair->next = i || !next ? &nothing : next;
            for (uint32_t s = 0; s < 2; s++)
                pair->sides[s] = amx_side_of(x + (2 * i + s) * n, n, b, 1, copies[i % 2][s]);
            amx_dot_pair(pair, &sums[i % 2]);
        }
        if (i)
            amx_add_pair(kind, &pairs[(i - 1) % 2], &sums[(i - 1) % 2]);
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
            struct amx_block block;                                                                \
            struct lanes_next next;                                                                \
            lanes_set_next(rows, n_blocks *bytes, (b + SHEAF_AHEAD) * bytes, bytes, &next);        \
            for (uint32_t h = 0; h < SHEAF_HALVES; h++) {                                          \
                sheaf_unpack_##name(rows + h * SHEAF_ROWS, b * bytes, &block.of);                  \
                amx_block_fold(&sheaf_##name, &block);                                             \
                amx_multiply_block(&sheaf_##name, &block, x, b, sides, h ? NULL : &next, y,        \
                                   h *SHEAF_ROWS);                                                 \
            }                                                                                      \
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
    const struct amx_sides sides = amx_sides_of(type, n);
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
