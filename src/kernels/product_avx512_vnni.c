/* The kernel for x86 processors with AVX-512 (F, BW, VL) and its VNNI. Compiled for these alone. */
#define PRODUCT_OWN_BODIES
#if !defined(PRODUCT_IS_INTEL) /* tests have it either way */
#define PRODUCT_IS_INTEL __builtin_cpu_is("intel")
#endif
#include "kernels/product_avx512.h"

#include "kernels/product_few_vnni.h"
#include "kernels/product_grid_vnni.h"
#include "kernels/product_panel_vnni.h"
#include "kernels/product_round_vnni.h"
#include "kernels/product_row_vnni.h"
#include "kernels/product_sheaf_vnni.h"
#include "kernels/product_square_blocks_vnni.h"
#include "kernels/product_square_vnni.h"
#include "kernels/product_strip_vnni.h"

static int product_vnni_works(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

static bool product_vnni_some_parts(const struct product_matrix *matrix,
                                    const struct product_block *const *x, float *const *y,
                                    uint32_t n, uint32_t first, uint32_t end)
{
    return product_vnni_strips(matrix, x, y, n, first, end) ||
           product_vnni_squares(matrix, x, y, n, first, end);
}

static bool product_vnni_some_blocks(const struct product_matrix *matrix,
                                     const struct product_block *const *x, float *const *y,
                                     uint32_t n, uint32_t first, uint32_t end)
{
    return product_vnni_quartets(matrix, x, y, n, first, end) ||
           product_vnni_few_blocks(matrix, x, y, n, first, end);
}

/* By whole vectors: rows y lie pages apart, so that each store waits for a line, and only so many
 * stores wait at a time. */
static void product_vnni_put(float (*results)[PRODUCT_SHEAF_MAX], float *const *y, uint32_t n,
                             uint32_t first, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < n_rows; c += 16) {
            const uint32_t left = n_rows - c;
            const __mmask16 there = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffff);
            _mm512_mask_storeu_ps(y[i] + first + c, there, _mm512_loadu_ps(results[i] + c));
        }
    }
}

const struct product_kernel product_kernel_avx512_vnni = {
    .name = "avx512-vnni",
    .beats_repacked = true,
    .few = 1,
    .few_of_grids = 2,
    .works = product_vnni_works,
    .round = round_vnni_row,
    .norm_factor = input_norm_factor,
    .norm = input_norm,
    .gate = input_gate,
    .row = product_vnni_row,
    .n_rows = PRODUCT_SHEAF_MAX,
    .sheaf = product_vnni_sheaf,
    .put = product_vnni_put,
    .part_round = round_vnni_parts,
    .part_sheaf = product_vnni_panels,
    .block_rows = product_vnni_some_blocks,
    .part_rows = product_vnni_some_parts,
    .grid_row = grid_vnni_row,
    .grid_sheaf = grid_vnni_sheaf,
};
