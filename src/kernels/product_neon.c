/* The kernel for 64-bit ARM processors with DotProd. Compiled for these alone. */
#include "kernels/product_neon.h"
#include "kernels/arm_features.h"

static int product_neon_works(void)
{
    return arm_has_dotprod();
}

const struct product_kernel product_kernel_neon = {
    .name = "neon-dotprod",
    .few = 4,
    .few_of_parts = 3,
    .works = product_neon_works,
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
};
