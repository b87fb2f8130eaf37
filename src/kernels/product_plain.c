/* The kernel for any processor: a group at a time. What the others are compared with; see
 * product_kernel_best(). */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/product_kernel.h"

enum { STEP = 16, ROWS = 8, WIDE_IS_SIGNED = 0 };

typedef int32_t ints;
typedef eight_ints row_ints;
typedef float row_floats __attribute__((vector_size(32), aligned(4), may_alias));

static inline ints ints_zero(void)
{
    return 0;
}

static inline ints ints_dot(ints sum, const uint8_t *w, const int8_t *q, const int16_t *scale)
{
    int32_t products = 0;
    for (uint32_t i = 0; i < STEP; i++)
        products += w[i] * q[i];
    return sum + scale[0] * products;
}

static inline ints ints_dot_sums(const int16_t *m, const int16_t *sums)
{
    int32_t sum = 0;
    for (uint32_t i = 0; i < 16; i++)
        sum += m[i] * sums[i];
    return sum;
}

static inline void turn_column(const uint8_t *rows, size_t row_step, uint8_t *to, size_t step)
{
    for (size_t i = 0; i < 8; i++) {
        for (size_t c = 0; c < 8; c++)
            memcpy(to + i * step + 4 * c, rows + c * row_step + 4 * i, 4);
    }
}

static inline void rows_add_group(const uint8_t w[4][8][4], const int8_t *q,
                                  const int16_t scale[8][2], uint32_t bits, row_ints *to)
{
    for (uint32_t c = 0; c < 8; c++) {
        int32_t products = 0;
        for (uint32_t i = 0; i < 16; i++)
            products += w[i / 4][c][i % 4] * q[i];
        (*to)[c] += scale[c][0] * products;
    }
}

static inline void rows_add_pairs(const int16_t m[8][2], const int16_t sums[2], row_ints *to)
{
    for (uint32_t i = 0; i < 8; i++)
        (*to)[i] += m[i][0] * sums[0] + m[i][1] * sums[1];
}

static inline void ints_add_up(const ints sums[8], eight_ints *all)
{
    for (uint32_t i = 0; i < 8; i++)
        (*all)[i] = sums[i];
}

/* ---- parts ---- */

typedef int32_t part_ints;

static inline part_ints part_zero(void)
{
    return 0;
}

static inline part_ints part_dot(const uint8_t *w, const int8_t *q, bool is_wide)
{
    (void)is_wide;
    int32_t sum = 0;
    for (uint32_t i = 0; i < PRODUCT_PART; i++)
        sum += w[i] * q[i];
    return sum;
}

static inline void part_add_up(const part_ints sums[8], eight_ints *all)
{
    ints_add_up(sums, all);
}

static inline void part_rows_dot(const uint8_t w[8][8][4], const int8_t *const *q, bool is_wide,
                                 uint32_t n, row_ints *sums)
{
    (void)is_wide;
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < PRODUCT_PART; i++) {
            for (uint32_t c = 0; c < 8; c++)
                sums[k][c] += w[i / 4][c][i % 4] * q[k][i];
        }
    }
}

#include "kernels/product_part_unpack.h"
#include "kernels/product_unpack.h"

static inline void halves_of(const uint8_t *at, size_t step, float out[8])
{
    for (uint32_t i = 0; i < 8; i++)
        out[i] = half(at + i * step);
}

#include "kernels/product_kernel_body.h"

#include "kernels/product_part_body.h"

#include "kernels/product_grid_body.h"

static int product_plain_works(void)
{
    return 1;
}

const struct product_kernel product_kernel_plain = {
    .name = "plain",
    .few = 3,
    .few_of_parts = 2,
    .few_of_grids = 3,
    .works = product_plain_works,
    .round = round_row,
    .norm_factor = input_norm_factor,
    .norm = input_norm,
    .gate = input_gate,
    .row = product_kernel_row,
    .n_rows = ROWS,
    .sheaf = product_kernel_sheaf,
    .part_round = part_kernel_round,
    .part_row = part_kernel_row,
    .part_sheaf = part_kernel_sheaf,
    .grid_row = grid_kernel_row,
    .grid_sheaf = grid_kernel_sheaf,
};
