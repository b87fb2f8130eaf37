/* The arithmetic of product.h for types of floats. A kernel's file defines first:
 *
 *     FLOAT_LANES                               floats in a vector: 1, 8 or 16
 *     float_lanes                               a vector of them
 *     float_lanes float_load(const float *), void float_store(float *, float_lanes)
 *     float_lanes float_from_f16(const uint8_t *), float_from_bf16
 *     float_lanes float_add(float_lanes y, float_lanes a, float_lanes b)
 *                                               y + a b, rounded once
 *     FLOAT_ROWS, FLOAT_SIDE                    rows of the matrix and rows x whose sums registers
 *                                               hold */
#include "kernels/product_kernel.h"

#include <stdbool.h>
#include <string.h>

enum {
    FLOAT_SUMS = 16,    /* of a row: element i adds to sum i mod 16 */
    FLOAT_PIECE = 512,  /* columns whose x stay in the first cache while rows pass */
    FLOAT_GROUP = 16,   /* rows of the matrix that stay there, as F32, while rows x pass */
    FLOAT_FEW = 2,      /* rows x, at most, for which rows of the matrix pass one by one */
    FLOAT_DIRECT = 24,  /* rows x, at most, that do not pay for writing weights as F32 */
    FLOAT_LINE = 32,    /* weights in a line of the cache */
    FLOAT_AHEAD = 8192, /* bytes that one row is fetched early */
    FLOAT_VECTORS = FLOAT_SUMS / FLOAT_LANES,
};

enum float_type { FLOAT_F16, FLOAT_BF16, FLOAT_F32 };

struct float_sums {
    float of[FLOAT_SUMS];
} __attribute__((aligned(64)));

struct float_piece { /* some columns of some rows; pointers are to the first of them */
    const uint8_t *rows[FLOAT_ROWS];
    const float *x[FLOAT_SIDE];
    uint32_t n_columns;
    size_t ahead;           /* where what is fetched early begins; 0: nothing is */
    bool is_first, is_last; /* of whole rows */
};

struct float_shape { /* constants where code is made for it */
    enum float_type type;
    uint32_t n_rows, n; /* of the matrix, x */
};

struct float_group { /* weights of a piece */
    float of[FLOAT_GROUP][FLOAT_PIECE];
} __attribute__((aligned(64)));

typedef float_lanes float_registers[FLOAT_ROWS][FLOAT_SIDE][FLOAT_VECTORS];

typedef float float_eight __attribute__((vector_size(32), may_alias));
typedef float float_four __attribute__((vector_size(16)));

/* Sums 8 to 15 are added to sums 0 to 7. */
ALWAYS_INLINE void float_halve(const float_lanes *sums, float_eight *out)
{
    struct float_sums all;
    UNROLL for (uint32_t v = 0; v < FLOAT_VECTORS; v++)
        float_store(all.of + v * FLOAT_LANES, sums[v]);
    const float_eight *both = (const float_eight *)all.of;
    *out = both[0] + both[1];
}

ALWAYS_INLINE float float_total(const float_lanes *sums)
{
    float_eight eight;
    float_halve(sums, &eight);
    const float_four four = (float_four){eight[0], eight[1], eight[2], eight[3]} +
                            (float_four){eight[4], eight[5], eight[6], eight[7]};
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* The totals of eight at once: a lane of 16 bytes has four sums of one, then two each of two, then
 * one each of four. */
ALWAYS_INLINE void float_totals(const float_eight *halves, float_eight *out)
{
    float_eight fours[4], twos[2];
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        const float_eight a = halves[i], b = halves[4 + i];
        fours[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
                   __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        const float_eight a = fours[2 * i], b = fours[2 * i + 1];
        twos[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
                  __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    *out = __builtin_shufflevector(twos[0], twos[1], 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(twos[0], twos[1], 1, 3, 9, 11, 5, 7, 13, 15);
}

ALWAYS_INLINE uint32_t float_bytes(enum float_type type)
{
    return type == FLOAT_F32 ? sizeof(float) : sizeof(uint16_t);
}

ALWAYS_INLINE float_lanes float_weights(enum float_type type, const uint8_t *from)
{
    return type == FLOAT_F32    ? float_load((const float *)(const void *)from)
           : type == FLOAT_BF16 ? float_from_bf16(from)
                                : float_from_f16(from);
}

/* A column more for each sum. */
ALWAYS_INLINE void float_multiply(const struct float_shape *shape, const uint8_t *const *rows,
                                  const float *const *x, uint32_t k, float_registers sums)
{
    UNROLL for (uint32_t v = 0; v < FLOAT_VECTORS; v++)
    {
        const uint32_t at = k + v * FLOAT_LANES;
        float_lanes w[FLOAT_ROWS];
        UNROLL for (uint32_t r = 0; r < shape->n_rows; r++) w[r] =
            float_weights(shape->type, rows[r] + (size_t)float_bytes(shape->type) * at);
        UNROLL for (uint32_t i = 0; i < shape->n; i++)
        {
            const float_lanes values = float_load(x[i] + at);
            UNROLL for (uint32_t r = 0; r < shape->n_rows; r++) sums[r][i][v] =
                float_add(sums[r][i][v], w[r], values);
        }
    }
}

/* The columns from k on, fewer than FLOAT_SUMS: they are filled up with zeros. */
ALWAYS_INLINE void float_multiply_last(const struct float_shape *shape,
                                       const struct float_piece *piece, uint32_t k,
                                       float_registers sums)
{
    uint8_t weights[FLOAT_ROWS][sizeof(float) * FLOAT_SUMS] __attribute__((aligned(64))) = {{0}};
    float values[FLOAT_SIDE][FLOAT_SUMS] = {0};
    const uint8_t *rows[FLOAT_ROWS];
    const float *x[FLOAT_SIDE];
    const uint32_t left = piece->n_columns - k, bytes = float_bytes(shape->type);
    for (uint32_t r = 0; r < shape->n_rows; r++)
        rows[r] = memcpy(weights[r], piece->rows[r] + (size_t)bytes * k, (size_t)bytes * left);
    for (uint32_t i = 0; i < shape->n; i++)
        x[i] = memcpy(values[i], piece->x[i] + k, sizeof(float) * left);
    float_multiply(shape, rows, x, 0, sums);
}

/* ---- a few rows x ---- */

/* Row r alone, from its begin to its end: a function of its own for all of a sheaf's rows, so that
 * the next one's sums are under way while this one's wait for each other. Lines are fetched early
 * to the first cache. */
ALWAYS_INLINE void float_whole_row(const struct float_shape *shape, const struct float_piece *piece,
                                   uint32_t r, float (*y)[PRODUCT_SHEAF_MAX])
{
    float_registers sums = {0};
    uint32_t k = 0;
    for (; k + FLOAT_LINE <= piece->n_columns; k += FLOAT_LINE) {
        __builtin_prefetch(piece->rows[0] + sizeof(uint16_t) * k + FLOAT_AHEAD);
        UNROLL for (uint32_t i = 0; i < FLOAT_LINE; i += FLOAT_SUMS)
            float_multiply(shape, piece->rows, piece->x, k + i, sums);
    }
    for (; k + FLOAT_SUMS <= piece->n_columns; k += FLOAT_SUMS)
        float_multiply(shape, piece->rows, piece->x, k, sums);
    if (k < piece->n_columns)
        float_multiply_last(shape, piece, k, sums);
    UNROLL for (uint32_t i = 0; i < shape->n; i++) y[i][r] = float_total(sums[0][i]);
}

#define FLOAT_FEW_ROWS(name, type, n)                                                              \
    static __attribute__((noinline)) void float_few_##name##_##n(                                  \
        const uint8_t *const *rows, uint32_t n_rows, uint32_t n_columns, const float *const *x,    \
        float(*y)[PRODUCT_SHEAF_MAX])                                                              \
    {                                                                                              \
        static const struct float_shape shape = {FLOAT_##type, 1, n};                              \
        for (uint32_t r = 0; r < n_rows; r++) {                                                    \
            const struct float_piece piece = {                                                     \
                .rows = {rows[r]}, .x = {x[0], x[n - 1]}, .n_columns = n_columns};                 \
            float_whole_row(&shape, &piece, r, y);                                                 \
        }                                                                                          \
    }
FLOAT_FEW_ROWS(f16, F16, 1)
FLOAT_FEW_ROWS(f16, F16, 2)
FLOAT_FEW_ROWS(bf16, BF16, 1)
FLOAT_FEW_ROWS(bf16, BF16, 2)

/* Whole rows of the matrix, one after the other: memory likes one stream better than several. */
static void float_few(enum float_type type, const uint8_t *const *rows, uint32_t n_rows,
                      uint32_t n_columns, const float *const *x, uint32_t n,
                      float (*y)[PRODUCT_SHEAF_MAX])
{
    if (type == FLOAT_BF16)
        (n == 1 ? float_few_bf16_1 : float_few_bf16_2)(rows, n_rows, n_columns, x, y);
    else
        (n == 1 ? float_few_f16_1 : float_few_f16_2)(rows, n_rows, n_columns, x, y);
}

/* ---- more rows x ---- */

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

/* Writes the totals of rows times x[i] to y[i]. */
ALWAYS_INLINE void float_put_totals(const struct float_shape *shape, float_registers sums,
                                    float (*y)[PRODUCT_SHEAF_MAX])
{
    enum { AT_ONCE = 8 / FLOAT_ROWS }; /* rows x; the last ones may be copies */
    UNROLL for (uint32_t first = 0; first < shape->n; first += AT_ONCE)
    {
        float_eight halves[AT_ONCE * FLOAT_ROWS];
        UNROLL for (uint32_t k = 0; k < AT_ONCE; k++)
        {
            const uint32_t i = first + k < shape->n ? first + k : first;
            UNROLL for (uint32_t r = 0; r < FLOAT_ROWS; r++)
                float_halve(sums[r][i], &halves[k * FLOAT_ROWS + r]);
        }
        float_eight totals;
        float_totals(halves, &totals);
        UNROLL for (uint32_t k = 0; k < AT_ONCE && first + k < shape->n; k++) memcpy(
            y[first + k], (const float *)&totals + k * FLOAT_ROWS, sizeof(float) * FLOAT_ROWS);
    }
}

/* Adds to sums[i][r], of row r times x[i]. The last piece's totals go to y. */
ALWAYS_INLINE void float_block(const struct float_shape *shape, const struct float_piece *piece,
                               struct float_sums (*to)[PRODUCT_SHEAF_MAX],
                               float (*y)[PRODUCT_SHEAF_MAX])
{
    float_registers sums = {0};
    uint32_t k = 0;
    if (!piece->is_first)
        float_load_sums(shape, to, sums);
    for (; k + FLOAT_SUMS <= piece->n_columns; k += FLOAT_SUMS) {
        UNROLL for (uint32_t r = 0; shape->type != FLOAT_F32 && r < shape->n_rows; r++)
        {
            const uint8_t *row = piece->rows[r] + sizeof(uint16_t) * k;
            if (piece->ahead)
                __builtin_prefetch((const void *)((uintptr_t)row + piece->ahead), 0, 2);
        }
        float_multiply(shape, piece->rows, piece->x, k, sums);
    }
    if (k < piece->n_columns)
        float_multiply_last(shape, piece, k, sums);
    if (piece->is_last)
        float_put_totals(shape, sums, y);
    else
        float_store_sums(shape, sums, to);
}

/* For each type and number of rows x, so that registers hold the sums. */
typedef void float_block_of(const struct float_piece *piece,
                            struct float_sums (*sums)[PRODUCT_SHEAF_MAX],
                            float (*y)[PRODUCT_SHEAF_MAX]);
#define FLOAT_BLOCK(type, n)                                                                       \
    static __attribute__((noinline)) void float_block_##type##_##n(                                \
        const struct float_piece *piece, struct float_sums(*sums)[PRODUCT_SHEAF_MAX],              \
        float(*y)[PRODUCT_SHEAF_MAX])                                                              \
    {                                                                                              \
        static const struct float_shape shape = {FLOAT_##type, FLOAT_ROWS,                         \
                                                 n <= FLOAT_SIDE ? n : 1};                         \
        float_block(&shape, piece, sums, y);                                                       \
    }
#define FLOAT_BLOCKS(type)                                                                         \
    FLOAT_BLOCK(type, 1)                                                                           \
    FLOAT_BLOCK(type, 2)                                                                           \
    FLOAT_BLOCK(type, 3)                                                                           \
    FLOAT_BLOCK(type, 4)                                                                           \
    FLOAT_BLOCK(type, 5)                                                                           \
    FLOAT_BLOCK(type, 6)
FLOAT_BLOCKS(F16)
FLOAT_BLOCKS(BF16)
FLOAT_BLOCKS(F32)
#define FLOAT_BLOCKS_OF(type)                                                                      \
    {float_block_##type##_1, float_block_##type##_2, float_block_##type##_3,                       \
     float_block_##type##_4, float_block_##type##_5, float_block_##type##_6}
static float_block_of *const float_blocks[][6] = {[FLOAT_F16] = FLOAT_BLOCKS_OF(F16),
                                                  [FLOAT_BF16] = FLOAT_BLOCKS_OF(BF16),
                                                  [FLOAT_F32] = FLOAT_BLOCKS_OF(F32)};

/* What comes next is fetched early, to the second cache. */
ALWAYS_INLINE void float_write_rows(enum float_type type, const uint8_t *const *rows,
                                    const struct float_piece *piece, struct float_group *out)
{
    for (uint32_t r = 0; r < FLOAT_GROUP; r++) {
        const uint8_t *row = rows[r];
        uint32_t k = 0;
        for (; k + FLOAT_LANES <= piece->n_columns; k += FLOAT_LANES) {
            __builtin_prefetch((const void *)((uintptr_t)row + piece->ahead), 0, 2);
            float_store(out->of[r] + k, float_weights(type, row));
            row += sizeof(uint16_t) * FLOAT_LANES;
        }
        if (k < piece->n_columns) {
            uint8_t last[sizeof(uint16_t) * FLOAT_LANES] = {0};
            memcpy(last, row, sizeof(uint16_t) * (piece->n_columns - k));
            float_store(out->of[r] + k, float_weights(type, last));
        }
    }
}

/* `rows` are those written then. */
static void float_write_group(enum float_type type, const uint8_t **rows,
                              const struct float_piece *piece, struct float_group *out)
{
    if (type == FLOAT_BF16)
        float_write_rows(FLOAT_BF16, rows, piece, out);
    else
        float_write_rows(FLOAT_F16, rows, piece, out);
    for (uint32_t r = 0; r < FLOAT_GROUP; r++)
        rows[r] = (const uint8_t *)out->of[r];
}

static uint32_t float_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A piece of a group of rows, times all rows x. */
static void float_multiply_group(enum float_type type, const uint8_t *const *rows,
                                 struct float_piece *piece, const float *const *x, uint32_t n,
                                 struct float_sums (*sums)[PRODUCT_SHEAF_MAX],
                                 float (*y)[PRODUCT_SHEAF_MAX])
{
    for (uint32_t i = 0; i < n; i += FLOAT_SIDE) {
        const uint32_t side = float_smaller(n - i, FLOAT_SIDE);
        memcpy(piece->x, x + i, side * sizeof *x);
        for (uint32_t r = 0; r < FLOAT_GROUP; r += FLOAT_ROWS) {
            memcpy(piece->rows, rows + r, sizeof piece->rows);
            float_blocks[type][side - 1](piece, (void *)&sums[i][r], (void *)&y[i][r]);
        }
        piece->ahead = 0;
    }
}

static void float_many(enum float_type type, const uint8_t *const *rows, uint32_t n_rows,
                       uint32_t n_columns, const float *const *x, uint32_t n,
                       float (*y)[PRODUCT_SHEAF_MAX])
{
    struct float_sums sums[PRODUCT_TILE][PRODUCT_SHEAF_MAX];
    const size_t ahead = FLOAT_GROUP * (size_t)(rows[1] - rows[0]);
    for (uint32_t at = 0; at < n_columns; at += FLOAT_PIECE) {
        const float *x_at[PRODUCT_TILE];
        for (uint32_t i = 0; i < n; i++)
            x_at[i] = x[i] + at;
        for (uint32_t first = 0; first < n_rows; first += FLOAT_GROUP) {
            struct float_piece piece = {.n_columns = float_smaller(n_columns - at, FLOAT_PIECE),
                                        .ahead = ahead,
                                        .is_first = !at,
                                        .is_last = n_columns - at <= FLOAT_PIECE};
            struct float_group written;
            const uint8_t *group[FLOAT_GROUP];
            for (uint32_t r = 0; r < FLOAT_GROUP; r++)
                group[r] = rows[first + r] + sizeof(uint16_t) * at;
            if (n > FLOAT_DIRECT)
                float_write_group(type, group, &piece, &written);
            float_multiply_group(n > FLOAT_DIRECT ? FLOAT_F32 : type, group, &piece, x_at, n,
                                 (void *)&sums[0][first], (void *)&y[0][first]);
        }
    }
}

static void float_rows(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                       uint32_t n_columns, const float *const *x, uint32_t n,
                       float (*y)[PRODUCT_SHEAF_MAX])
{
    const enum float_type stored = type == PRODUCT_BF16 ? FLOAT_BF16 : FLOAT_F16;
    (n <= FLOAT_FEW ? float_few : float_many)(stored, rows, n_rows, n_columns, x, n, y);
}
