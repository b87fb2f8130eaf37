/* The kernel for x86 processors with AVX2, FMA and AVX-VNNI, as desktops and laptops without
 * AVX-512 have it. Compiled for these alone. */
#define PRODUCT_OWN_SHEAF
#include "kernels/product_avx2.h"

#include "kernels/product_grid_row_avx2.h"
#include "kernels/product_sheaf_avx_vnni.h"

static int product_avx_vnni_works(void)
{
    return __builtin_cpu_supports("avxvnni") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx_vnni = {
    .name = "avx-vnni",
    .beats_repacked = true,
    .few = 3,
    .few_of_parts = 3,
    .few_of_grids = 3,
    .works = product_avx_vnni_works,
    .round = round_row,
    .norm_factor = input_norm_factor,
    .norm = input_norm,
    .gate = input_gate,
    .row = product_kernel_row,
    .n_rows = ROWS,
    .sheaf = product_avx_vnni_sheaf,
    .part_round = part_kernel_round,
    .part_row = part_kernel_row,
    .part_sheaf = part_kernel_sheaf,
    .grid_row = grid_avx2_row,
    .grid_sheaf = product_avx_vnni_grid_sheaf,
};
