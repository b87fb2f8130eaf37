/* The kernel for x86 processors with AVX-512 (F, BW and VL). Compiled for these alone. */
#include "kernels/product_avx512.h"

static int product_avx512_works(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx512 = {"avx512",
                                                     false,
                                                     3,
                                                     2,
                                                     product_avx512_works,
                                                     round_row,
                                                     product_kernel_row,
                                                     ROWS,
                                                     product_kernel_sheaf,
                                                     part_kernel_round,
                                                     part_kernel_row,
                                                     part_kernel_sheaf};
