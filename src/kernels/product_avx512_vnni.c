/* The kernel for x86 processors with AVX-512 (F, BW, VL) and its VNNI. Compiled for these alone. */
#define PRODUCT_OWN_BODIES
#include "kernels/product_avx512.h"

#include "kernels/product_few_vnni.h"
#include "kernels/product_grid_vnni.h"
#include "kernels/product_panel_vnni.h"
#include "kernels/product_round_vnni.h"
#include "kernels/product_row_vnni.h"
#include "kernels/product_sheaf_vnni.h"
#include "kernels/product_square_vnni.h"

static int product_vnni_works(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx512_vnni = {
    .name = "avx512-vnni",
    .beats_repacked = true,
    .few = 4,
    .few_of_parts = 1,
    .few_of_grids = 2,
    .works = product_vnni_works,
    .round = round_vnni_row,
    .row = product_vnni_row,
    .n_rows = PRODUCT_SHEAF_MAX,
    .sheaf = product_vnni_sheaf,
    .part_round = round_vnni_parts,
    .part_row = part_kernel_row,
    .part_sheaf = product_vnni_panels,
    .few_rows = product_vnni_few_blocks,
    .part_rows = product_vnni_squares,
    .grid_row = grid_vnni_row,
    .grid_sheaf = grid_vnni_sheaf,
};
