#include "kernels/product.h"

#include "kernels/product_kernel.h"

/* ---- kernels ---- */

static const struct product_kernel *const kernels[] = {
#if defined(__x86_64__)
    &product_kernel_avx512,
    &product_kernel_avx2,
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

/* ---- products ---- */

void product_round(const struct product_kernel *kernel, const float *x, uint32_t n_blocks,
                   struct product_block *out)
{
    kernel->round(x, n_blocks, out);
}

static uint32_t product_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Rows of the matrix from `first` on, fewer than a sheaf has at its end: the last one stands for
 * what is missing. */
static void compute_sheaf(const struct product_kernel *kernel, const struct product_matrix *matrix,
                          const struct product_block *const *x, float *const *y, uint32_t n,
                          uint32_t first, uint32_t end)
{
    const uint8_t *rows[PRODUCT_SHEAF_MAX];
    float results[PRODUCT_TILE][PRODUCT_SHEAF_MAX];
    const uint32_t n_rows = product_smaller(end - first, kernel->n_rows);
    for (uint32_t c = 0; c < kernel->n_rows; c++)
        rows[c] = (const uint8_t *)matrix->rows +
                  matrix->row_bytes * (first + product_smaller(c, n_rows - 1));
    kernel->sheaf(matrix->type, rows, matrix->n_blocks, x, n, results);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < n_rows; c++)
            y[i][first + c] = results[i][c];
    }
}

/* A few rows x: each row of the matrix from its begin to its end, as memory likes it. */
static void compute_rows(const struct product_kernel *kernel, const struct product_matrix *matrix,
                         const struct product_block *const *x, float *const *y, uint32_t n,
                         uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++) {
        const uint8_t *row = (const uint8_t *)matrix->rows + matrix->row_bytes * r;
        for (uint32_t i = 0; i < n; i++)
            y[i][r] = kernel->row(matrix->type, row, matrix->n_blocks, x[i]);
    }
}

enum { FEW = 3 }; /* for more a sheaf is worth its unpacking */

void product_compute(const struct product_kernel *kernel, const struct product_matrix *matrix,
                     const struct product_block *const *x, float *const *y, uint32_t n,
                     uint32_t first, uint32_t end)
{
    if (n <= FEW) {
        compute_rows(kernel, matrix, x, y, n, first, end);
        return;
    }
    for (uint32_t row = first; row < end; row += kernel->n_rows)
        compute_sheaf(kernel, matrix, x, y, n, row, end);
}
