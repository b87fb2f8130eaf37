/* The kernel for x86 processors with AVX-512 (F, BW and VL). Compiled for these alone. */
#include "kernels/product_avx512.h"

#include "kernels/product_grid_row_avx2.h"

static int product_avx512_works(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx512 = {
    .name = "avx512",
    .few = 3,
    .few_of_parts = 2,
    .few_of_grids = 3,
    .works = product_avx512_works,
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
    .grid_row = grid_avx2_row,
    .grid_sheaf = grid_kernel_sheaf,
};
