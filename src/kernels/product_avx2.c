/* The kernel for x86 processors with AVX2 and FMA. Compiled for these alone. */
#include "kernels/product_avx2.h"

static int product_avx2_works(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx2 = {"avx2",
                                                   false,
                                                   4,
                                                   3,
                                                   product_avx2_works,
                                                   round_row,
                                                   product_kernel_row,
                                                   ROWS,
                                                   product_kernel_sheaf,
                                                   part_kernel_round,
                                                   part_kernel_row,
                                                   part_kernel_sheaf};
