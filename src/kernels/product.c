#include "kernels/product.h"

#include "kernels/product_grid.h"
#include "kernels/product_kernel.h"

#include <assert.h>
#include <string.h>

/* ---- kernels ---- */

static const struct product_kernel *const kernels[] = {
#if defined(__x86_64__) && defined(__linux__)
    &product_kernel_amx,
#endif
#if defined(__x86_64__)
    &product_kernel_avx512_vnni, &product_kernel_avx_vnni,
    &product_kernel_avx512,      &product_kernel_avx2,
#elif defined(__aarch64__) && defined(__linux__)
    &product_kernel_neon_i8mm,
    &product_kernel_neon,
#endif
    &product_kernel_plain,
};

const struct product_kernel *product_kernel_at(uint32_t index)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (kernels[i]->works() && index-- == 0)
            return kernels[i];
    }
    return NULL;
}

const struct product_kernel *product_kernel_best(void)
{
    const struct product_kernel *best = product_kernel_at(0);
    return best != &product_kernel_plain ? best : NULL;
}

const char *product_kernel_name(const struct product_kernel *kernel)
{
    return kernel->name;
}

/* The kernel that has what this one lacks. */
static const struct product_kernel *product_fewer_of(const struct product_kernel *kernel)
{
    return kernel->fewer ? kernel->fewer : kernel;
}

static product_float_rows *floats_of(const struct product_kernel *kernel)
{
    kernel = product_fewer_of(kernel);
#if defined(__x86_64__)
    if (kernel != &product_kernel_plain)
        return kernel == &product_kernel_avx512 || kernel == &product_kernel_avx512_vnni
                   ? product_float_avx512
                   : product_float_avx2;
#endif
    (void)kernel;
    return product_float_plain;
}

bool product_kernel_multiplies_grids(const struct product_kernel *kernel)
{
    return product_fewer_of(kernel)->grid_row && product_grids.is_filled;
}

bool product_kernel_multiplies_floats(const struct product_kernel *kernel)
{
    return floats_of(kernel) != product_float_plain;
}

bool product_kernel_beats_repacked(const struct product_kernel *kernel, enum product_type type)
{
    kernel = product_fewer_of(kernel);
    return kernel->beats_repacked || (kernel->beats_repacked_fives && type != PRODUCT_IQ4_NL);
}

/* ---- products ---- */

static bool is_of_grids(enum product_type type)
{
    return type >= PRODUCT_IQ1_S && type <= PRODUCT_IQ3_S;
}

static bool is_of_floats(enum product_type type)
{
    return type >= PRODUCT_F16;
}

static bool is_of_parts(enum product_type type)
{
    return type >= PRODUCT_Q4_0 && !is_of_floats(type);
}

uint32_t product_columns_of(enum product_type type)
{
    return is_of_floats(type)                            ? 1
           : is_of_parts(type) && type != PRODUCT_IQ4_XS ? PRODUCT_PART
                                                         : PRODUCT_BLOCK;
}

enum product_rounding product_rounding_of(enum product_type type)
{
    if (is_of_floats(type))
        return PRODUCT_ROUND_NOTHING;
    if (!is_of_parts(type))
        return PRODUCT_ROUND_BLOCKS;
    if (type == PRODUCT_Q4_1 || type == PRODUCT_Q5_1)
        return PRODUCT_ROUND_PARTS_SUMMED;
    return type == PRODUCT_IQ4_XS ? PRODUCT_ROUND_PARTS_ALIKE : PRODUCT_ROUND_PARTS;
}

static uint32_t product_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void product_round(const struct product_kernel *kernel, enum product_rounding rounding,
                   const float *x, uint32_t n, struct product_block *out)
{
    kernel = product_fewer_of(kernel);
    assert(rounding != PRODUCT_ROUND_NOTHING);
    assert(n % (rounding == PRODUCT_ROUND_PARTS || rounding == PRODUCT_ROUND_PARTS_SUMMED
                    ? PRODUCT_PART
                    : PRODUCT_BLOCK) ==
           0);
    if (rounding == PRODUCT_ROUND_BLOCKS)
        kernel->round(x, n / PRODUCT_BLOCK, out);
    else
        kernel->part_round(x, n / PRODUCT_PART, rounding, out);
}

float product_norm_factor(const struct product_kernel *kernel, const float *x, uint32_t n,
                          float epsilon)
{
    return product_fewer_of(kernel)->norm_factor(x, n, epsilon);
}

enum { ROUNDED_AT_ONCE = 4 * PRODUCT_BLOCK }; /* values that the first cache holds meanwhile */

void product_round_norm(const struct product_kernel *kernel, enum product_rounding rounding,
                        const float *x, const float *weight, float f, uint32_t n,
                        struct product_block *out)
{
    float y[ROUNDED_AT_ONCE];
    for (uint32_t i = 0; i < n; i += ROUNDED_AT_ONCE) {
        const uint32_t n_here = product_smaller(n - i, ROUNDED_AT_ONCE);
        product_fewer_of(kernel)->norm(x + i, weight + i, f, n_here, y);
        product_round(kernel, rounding, y, n_here, out + i / PRODUCT_BLOCK);
    }
}

void product_round_gate(const struct product_kernel *kernel, enum product_rounding rounding,
                        const float *gate, const float *up, uint32_t n, struct product_block *out)
{
    float y[ROUNDED_AT_ONCE];
    for (uint32_t i = 0; i < n; i += ROUNDED_AT_ONCE) {
        const uint32_t n_here = product_smaller(n - i, ROUNDED_AT_ONCE);
        product_fewer_of(kernel)->gate(gate + i, up + i, n_here, y);
        product_round(kernel, rounding, y, n_here, out + i / PRODUCT_BLOCK);
    }
}

/* n rows of the matrix from `first` on, fewer at its end: the last one stands for what is missing.
 * How many there are. */
static uint32_t product_rows_of(const struct product_matrix *matrix, uint32_t n, uint32_t first,
                                uint32_t end, const uint8_t **rows)
{
    const uint32_t n_rows = product_smaller(end - first, n);
    for (uint32_t c = 0; c < n; c++)
        rows[c] = (const uint8_t *)matrix->rows +
                  matrix->row_bytes * (first + product_smaller(c, n_rows - 1));
    return n_rows;
}

static void put_results(const struct product_kernel *kernel, float (*results)[PRODUCT_SHEAF_MAX],
                        float *const *y, uint32_t n, uint32_t first, uint32_t n_rows)
{
    kernel = product_fewer_of(kernel);
    if (kernel->put) {
        kernel->put(results, y, n, first, n_rows);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < n_rows; c++)
            y[i][first + c] = results[i][c];
    }
}

static void compute_sheaf(const struct product_kernel *kernel, const struct product_matrix *matrix,
                          const struct product_block *const *x, float *const *y, uint32_t n,
                          uint32_t first, uint32_t end)
{
    const uint8_t *rows[PRODUCT_SHEAF_MAX];
    /* Aligned, so that vectors of it do not lie across lines of the cache. */
    float results[PRODUCT_TILE][PRODUCT_SHEAF_MAX] __attribute__((aligned(64)));
    const uint32_t n_rows = product_rows_of(matrix, kernel->n_rows, first, end, rows);
    (is_of_grids(matrix->type) ? kernel->grid_sheaf : kernel->sheaf)(
        matrix->type, rows, matrix->n_columns / PRODUCT_BLOCK, x, n, results);
    put_results(kernel, results, y, n, first, n_rows);
}

/* A whole sheaf's results go straight to where they belong, a few while the next are multiplied:
 * rows y lie pages apart, and all at once the processor waited for each. */
static void compute_part_sheaf(const struct product_kernel *kernel,
                               const struct product_matrix *matrix,
                               const struct product_block *const *x, float *const *y, uint32_t n,
                               uint32_t first, uint32_t end)
{
    const uint8_t *rows[PRODUCT_SHEAF_MAX];
    float results[PRODUCT_TILE][PRODUCT_SHEAF_MAX], *to[PRODUCT_TILE];
    const uint32_t n_rows = product_rows_of(matrix, kernel->n_rows, first, end, rows);
    const bool is_whole = n_rows == kernel->n_rows;
    for (uint32_t i = 0; i < n || i % PRODUCT_FILLED; i++)
        to[i] = is_whole && i < n ? y[i] + first : results[i];
    kernel->part_sheaf(matrix->type, rows, matrix->n_columns / PRODUCT_PART, x, n, to);
    if (!is_whole)
        put_results(kernel, results, y, n, first, n_rows);
}

/* A few rows x: rows of the matrix from their begin to their end, as memory likes it. */
static void compute_rows(const struct product_kernel *kernel, const struct product_matrix *matrix,
                         const struct product_block *const *x, float *const *y, uint32_t n,
                         uint32_t first, uint32_t end)
{
    const uint8_t *rows[PRODUCT_SHEAF_MAX];
    const uint32_t n_rows = product_rows_of(matrix, PRODUCT_SHEAF_MAX, first, end, rows);
    for (uint32_t i = 0; i < n; i++) {
        if (is_of_parts(matrix->type))
            kernel->part_row(matrix->type, rows, n_rows, matrix->n_columns / PRODUCT_PART, x[i],
                             y[i] + first);
        else if (is_of_grids(matrix->type))
            kernel->grid_row(matrix->type, rows, n_rows, matrix->n_columns / PRODUCT_BLOCK, x[i],
                             y[i] + first);
        else
            kernel->row(matrix->type, rows, n_rows, matrix->n_columns / PRODUCT_BLOCK, x[i],
                        y[i] + first);
    }
}

void product_compute(const struct product_kernel *kernel, const struct product_matrix *matrix,
                     const struct product_block *const *x, float *const *y, uint32_t n,
                     uint32_t first, uint32_t end)
{
    assert(n <= PRODUCT_TILE && matrix->n_columns % product_columns_of(matrix->type) == 0);
    assert(!is_of_floats(matrix->type));
    if (n < kernel->many)
        kernel = kernel->fewer;
    const bool is_grid = is_of_grids(matrix->type), has_parts = is_of_parts(matrix->type);
    const bool are_few = n <= (has_parts ? kernel->few_of_parts
                               : is_grid ? kernel->few_of_grids
                                         : kernel->few);
    if (has_parts && kernel->part_rows && kernel->part_rows(matrix, x, y, n, first, end))
        return;
    if (!has_parts && !is_grid && kernel->block_rows &&
        kernel->block_rows(matrix, x, y, n, first, end))
        return;
    if (are_few) {
        for (uint32_t row = first; row < end; row += PRODUCT_SHEAF_MAX)
            compute_rows(kernel, matrix, x, y, n, row, end);
        return;
    }
    if (kernel->begin)
        kernel->begin(matrix->type, n);
    for (uint32_t row = first; row < end; row += kernel->n_rows)
        (has_parts ? compute_part_sheaf : compute_sheaf)(kernel, matrix, x, y, n, row, end);
    if (kernel->end)
        kernel->end();
}

void product_compute_floats(const struct product_kernel *kernel,
                            const struct product_matrix *matrix, const float *const *x,
                            float *const *y, uint32_t n, uint32_t first, uint32_t end)
{
    assert(n <= PRODUCT_TILE && is_of_floats(matrix->type));
    for (uint32_t row = first; row < end; row += PRODUCT_SHEAF_MAX) {
        const uint8_t *rows[PRODUCT_SHEAF_MAX];
        float results[PRODUCT_TILE][PRODUCT_SHEAF_MAX];
        const uint32_t n_rows = product_rows_of(matrix, PRODUCT_SHEAF_MAX, row, end, rows);
        floats_of(kernel)(matrix->type, rows, n_rows, matrix->n_columns, x, n, results);
        for (uint32_t i = 0; i < n; i++)
            memcpy(y[i] + row, results[i], sizeof(float) * n_rows);
    }
}
