/* The arithmetic of product.h for types of floats. A kernel's file defines first:
 *
 *     FLOAT_LANES                               floats in a vector: 8 or 16
 *     float_lanes                               a vector of them
 *     float_lanes float_load(const float *), void float_store(float *, float_lanes)
 *     float_lanes float_from_f16(const uint8_t *), float_from_bf16
 *     float_lanes float_add(float_lanes y, float_lanes a, float_lanes b)
 *                                               y + a b, rounded once
 *     FLOAT_ROWS, FLOAT_SIDE                    rows of the matrix and rows x whose sums registers
 *                                               hold */
#include "kernels/product_kernel.h"

#include <string.h>

enum {
    FLOAT_BYTES = 2,    /* of a weight */
    FLOAT_SUMS = 16,    /* of a row: element i adds to sum i mod 16 */
    FLOAT_PIECE = 512,  /* columns whose x stay in the first cache while rows pass */
    FLOAT_TURN = 48,    /* rows x whose sums are kept in between: at most 48 KiB */
    FLOAT_FEW = 2,      /* rows x, at most, for which rows of the matrix pass one by one */
    FLOAT_LINE = 32,    /* weights in a line of the cache */
    FLOAT_AHEAD = 8192, /* bytes that one row is fetched early */
    FLOAT_VECTORS = FLOAT_SUMS / FLOAT_LANES,
};

struct float_sums {
    float of[FLOAT_SUMS];
} __attribute__((aligned(64)));

struct float_piece { /* some columns of some rows */
    const uint8_t *const *rows;
    const float *const *x;
    uint32_t first, end; /* `first` is a multiple of FLOAT_SUMS */
    size_t ahead;        /* where what is fetched early begins; 0: nothing is */
};

struct float_shape { /* constants where code is made for it */
    enum product_type type;
    uint32_t n_rows, n; /* of the matrix, x */
};

typedef float_lanes float_registers[FLOAT_ROWS][FLOAT_SIDE][FLOAT_VECTORS];

typedef float float_eight __attribute__((vector_size(32), may_alias));
typedef float float_four __attribute__((vector_size(16)));

ALWAYS_INLINE float float_total(const struct float_sums *sums)
{
    const float_eight *all = (const float_eight *)sums->of;
    const float_eight eight = all[0] + all[1];
    const float_four four = (float_four){eight[0], eight[1], eight[2], eight[3]} +
                            (float_four){eight[4], eight[5], eight[6], eight[7]};
    return (four[0] + four[2]) + (four[1] + four[3]);
}

ALWAYS_INLINE float_lanes float_weights(enum product_type type, const uint8_t *from)
{
    return type == PRODUCT_BF16 ? float_from_bf16(from) : float_from_f16(from);
}

/* A column more for each sum. */
ALWAYS_INLINE void float_multiply(const struct float_shape *shape, const uint8_t *const *rows,
                                  const float *const *x, float_registers sums)
{
    UNROLL for (uint32_t v = 0; v < FLOAT_VECTORS; v++)
    {
        float_lanes w[FLOAT_ROWS];
        UNROLL for (uint32_t r = 0; r < shape->n_rows; r++) w[r] =
            float_weights(shape->type, rows[r] + FLOAT_BYTES * v * FLOAT_LANES);
        UNROLL for (uint32_t i = 0; i < shape->n; i++)
        {
            const float_lanes values = float_load(x[i] + v * FLOAT_LANES);
            UNROLL for (uint32_t r = 0; r < shape->n_rows; r++) sums[r][i][v] =
                float_add(sums[r][i][v], w[r], values);
        }
    }
}

/* The columns from `at` on, FLOAT_SUMS at most: they are filled up with zeros. */
ALWAYS_INLINE void float_multiply_last(const struct float_shape *shape,
                                       const struct float_piece *piece, uint32_t at,
                                       float_registers sums)
{
    uint8_t weights[FLOAT_ROWS][FLOAT_BYTES * FLOAT_SUMS] = {0};
    float values[FLOAT_SIDE][FLOAT_SUMS] = {0};
    const uint8_t *rows[FLOAT_ROWS];
    const float *x[FLOAT_SIDE];
    const uint32_t left = piece->end - at < FLOAT_SUMS ? piece->end - at : FLOAT_SUMS;
    for (uint32_t r = 0; r < shape->n_rows; r++)
        rows[r] = memcpy(weights[r], piece->rows[r] + FLOAT_BYTES * at, FLOAT_BYTES * left);
    for (uint32_t i = 0; i < shape->n; i++)
        x[i] = memcpy(values[i], piece->x[i] + at, sizeof(float) * left);
    float_multiply(shape, rows, x, sums);
}

ALWAYS_INLINE void float_load_sums(const struct float_shape *shape,
                                   struct float_sums (*y)[PRODUCT_SHEAF_MAX], float_registers sums)
{
    UNROLL for (uint32_t r = 0; r < shape->n_rows; r++)
    {
        UNROLL for (uint32_t i = 0; i < shape->n; i++)
        {
            UNROLL for (uint32_t v = 0; v < FLOAT_VECTORS; v++) sums[r][i][v] =
                float_load(y[i][r].of + v * FLOAT_LANES);
        }
    }
}

ALWAYS_INLINE void float_store_sums(const struct float_shape *shape, float_registers sums,
                                    struct float_sums (*y)[PRODUCT_SHEAF_MAX])
{
    UNROLL for (uint32_t r = 0; r < shape->n_rows; r++)
    {
        UNROLL for (uint32_t i = 0; i < shape->n; i++)
        {
            UNROLL for (uint32_t v = 0; v < FLOAT_VECTORS; v++)
                float_store(y[i][r].of + v * FLOAT_LANES, sums[r][i][v]);
        }
    }
}

/* One row's whole lines, from column `at` on, each of which is fetched early to the first cache.
 * Where they end. */
ALWAYS_INLINE uint32_t float_multiply_lines(const struct float_shape *shape,
                                            const struct float_piece *piece, uint32_t at,
                                            float_registers sums)
{
    for (; at + FLOAT_LINE <= piece->end; at += FLOAT_LINE) {
        __builtin_prefetch(piece->rows[0] + FLOAT_BYTES * at + FLOAT_AHEAD);
        UNROLL for (uint32_t k = at; k < at + FLOAT_LINE; k += FLOAT_SUMS)
        {
            const uint8_t *row = piece->rows[0] + FLOAT_BYTES * k;
            const float *x[FLOAT_SIDE];
            UNROLL for (uint32_t i = 0; i < shape->n; i++) x[i] = piece->x[i] + k;
            float_multiply(shape, &row, x, sums);
        }
    }
    return at;
}

/* Row r alone, from its begin to its end: a function of its own for all of a sheaf's rows, so that
 * the next one's sums are under way while this one's wait for each other. */
ALWAYS_INLINE void float_whole_row(const struct float_shape *shape, const struct float_piece *piece,
                                   uint32_t r, float (*y)[PRODUCT_SHEAF_MAX])
{
    static const struct float_sums nothing;
    float_registers sums;
    UNROLL for (uint32_t i = 0; i < shape->n; i++)
    {
        UNROLL for (uint32_t v = 0; v < FLOAT_VECTORS; v++) sums[0][i][v] =
            float_load(nothing.of + v * FLOAT_LANES);
    }
    uint32_t at = float_multiply_lines(shape, piece, 0, sums);
    for (; at < piece->end; at += FLOAT_SUMS)
        float_multiply_last(shape, piece, at, sums);
    UNROLL for (uint32_t i = 0; i < shape->n; i++)
    {
        struct float_sums all;
        UNROLL for (uint32_t v = 0; v < FLOAT_VECTORS; v++)
            float_store(all.of + v * FLOAT_LANES, sums[0][i][v]);
        y[i][r] = float_total(&all);
    }
}

/* Adds to y[i][r], sums of row r times x[i]. */
ALWAYS_INLINE void float_block(const struct float_shape *shape, const struct float_piece *piece,
                               struct float_sums (*y)[PRODUCT_SHEAF_MAX])
{
    float_registers sums;
    const uint8_t *rows[FLOAT_ROWS];
    const float *x[FLOAT_SIDE];
    uint32_t at = piece->first;
    float_load_sums(shape, y, sums);
    for (; at + FLOAT_SUMS <= piece->end; at += FLOAT_SUMS) {
        UNROLL for (uint32_t i = 0; i < shape->n; i++) x[i] = piece->x[i] + at;
        UNROLL for (uint32_t r = 0; r < shape->n_rows; r++)
        {
            rows[r] = piece->rows[r] + FLOAT_BYTES * at;
            if (piece->ahead)
                __builtin_prefetch((const void *)((uintptr_t)rows[r] + piece->ahead), 0, 2);
        }
        float_multiply(shape, rows, x, sums);
    }
    if (at < piece->end)
        float_multiply_last(shape, piece, at, sums);
    float_store_sums(shape, sums, y);
}

/* ---- for each type and number of rows x, so that registers hold the sums ---- */

typedef void float_block_of(const struct float_piece *piece,
                            struct float_sums (*y)[PRODUCT_SHEAF_MAX]);

#define FLOAT_BLOCK(name, type, n_rows, n)                                                         \
    static __attribute__((noinline)) void float_##name##_##n(                                      \
        const struct float_piece *piece, struct float_sums(*y)[PRODUCT_SHEAF_MAX])                 \
    {                                                                                              \
        static const struct float_shape shape = {PRODUCT_##type, n_rows, n <= FLOAT_SIDE ? n : 1}; \
        float_block(&shape, piece, y);                                                             \
    }
#define FLOAT_FEW(name, type, n)                                                                   \
    static __attribute__((noinline)) void float_few_##name##_##n(                                  \
        const uint8_t *const *rows, uint32_t n_rows, uint32_t n_columns, const float *const *x,    \
        float(*y)[PRODUCT_SHEAF_MAX])                                                              \
    {                                                                                              \
        static const struct float_shape shape = {PRODUCT_##type, 1, n};                            \
        for (uint32_t r = 0; r < n_rows; r++) {                                                    \
            const struct float_piece piece = {rows + r, x, 0, n_columns, 0};                       \
            float_whole_row(&shape, &piece, r, y);                                                 \
        }                                                                                          \
    }
#define FLOAT_BLOCKS(name, type)                                                                   \
    FLOAT_FEW(name, type, 1)                                                                       \
    FLOAT_FEW(name, type, 2)                                                                       \
    FLOAT_BLOCK(many_##name, type, FLOAT_ROWS, 1)                                                  \
    FLOAT_BLOCK(many_##name, type, FLOAT_ROWS, 2)                                                  \
    FLOAT_BLOCK(many_##name, type, FLOAT_ROWS, 3)                                                  \
    FLOAT_BLOCK(many_##name, type, FLOAT_ROWS, 4)                                                  \
    FLOAT_BLOCK(many_##name, type, FLOAT_ROWS, 5)                                                  \
    FLOAT_BLOCK(many_##name, type, FLOAT_ROWS, 6)                                                  \
    static float_block_of *const float_many_##name[] = {                                           \
        float_many_##name##_1, float_many_##name##_2, float_many_##name##_3,                       \
        float_many_##name##_4, float_many_##name##_5, float_many_##name##_6};
FLOAT_BLOCKS(f16, F16)
FLOAT_BLOCKS(bf16, BF16)

static uint32_t float_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Whole rows of the matrix, one after the other: memory likes one stream better than several. */
static void float_few(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                      uint32_t n_columns, const float *const *x, uint32_t n,
                      float (*y)[PRODUCT_SHEAF_MAX])
{
    if (type == PRODUCT_BF16)
        (n == 1 ? float_few_bf16_1 : float_few_bf16_2)(rows, n_rows, n_columns, x, y);
    else
        (n == 1 ? float_few_f16_1 : float_few_f16_2)(rows, n_rows, n_columns, x, y);
}

/* n <= FLOAT_TURN rows x. */
static void float_many(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                       uint32_t n_columns, const float *const *x, uint32_t n,
                       struct float_sums (*y)[PRODUCT_SHEAF_MAX])
{
    float_block_of *const *blocks = type == PRODUCT_BF16 ? float_many_bf16 : float_many_f16;
    const size_t next = FLOAT_ROWS * (size_t)(rows[1] - rows[0]);
    for (uint32_t at = 0; at < n_columns; at += FLOAT_PIECE) {
        const uint32_t end = float_smaller(n_columns, at + FLOAT_PIECE);
        for (uint32_t i = 0; i < n; i += FLOAT_SIDE) {
            float_block_of *block = blocks[float_smaller(n - i, FLOAT_SIDE) - 1];
            for (uint32_t r = 0; r < n_rows; r += FLOAT_ROWS) {
                struct float_sums(*to)[PRODUCT_SHEAF_MAX] = (void *)&y[i][r];
                const struct float_piece piece = {rows + r, x + i, at, end, i ? 0 : next};
                block(&piece, to);
            }
        }
    }
}

static void float_rows(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                       uint32_t n_columns, const float *const *x, uint32_t n,
                       float (*y)[PRODUCT_SHEAF_MAX])
{
    struct float_sums sums[FLOAT_TURN][PRODUCT_SHEAF_MAX];
    for (uint32_t first = 0; first < n; first += FLOAT_TURN) {
        const uint32_t turn = float_smaller(n - first, FLOAT_TURN);
        if (turn <= FLOAT_FEW) {
            float_few(type, rows, n_rows, n_columns, x + first, turn, y + first);
            continue;
        }
        memset(sums, 0, turn * sizeof *sums);
        float_many(type, rows, n_rows, n_columns, x + first, turn, sums);
        for (uint32_t i = 0; i < turn; i++) {
            for (uint32_t r = 0; r < n_rows; r++)
                y[first + i][r] = float_total(&sums[i][r]);
        }
    }
}
