/* The kernel for 64-bit ARM processors with products of two by two rows (FEAT_I8MM), as most since
 * ARMv8.6 have them. Compiled for these alone. */
#define PRODUCT_OWN_SHEAF
#define PRODUCT_LACKS_GROUPS
#include "kernels/arm_features.h"
#include "kernels/product_neon.h"

#include "kernels/product_sheaf_i8mm.h"

static int product_i8mm_works(void)
{
    return arm_has_dotprod() && arm_has_i8mm();
}

const struct product_kernel product_kernel_neon_i8mm = {
    .name = "neon-i8mm",
    .few = 3,
    .few_of_parts = 3,
    .works = product_i8mm_works,
    .round = round_row,
    .norm_factor = input_norm_factor,
    .norm = input_norm,
    .gate = input_gate,
    .row = product_kernel_row,
    .n_rows = ROWS,
    .sheaf = product_i8mm_sheaf,
    .part_round = part_kernel_round,
    .part_row = part_kernel_row,
    .part_sheaf = part_kernel_sheaf,
};
