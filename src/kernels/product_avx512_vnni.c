/* The kernel for x86 processors with AVX-512 (F, BW, VL) and its VNNI. Compiled for these alone. */
#define PRODUCT_OWN_BODIES
#include "kernels/product_avx512.h"

#include "kernels/product_few_vnni.h"
#include "kernels/product_panel_vnni.h"
#include "kernels/product_row_vnni.h"
#include "kernels/product_sheaf_vnni.h"

static int product_vnni_works(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx512_vnni = {"avx512-vnni",
                                                          true,
                                                          4,
                                                          8,
                                                          product_vnni_works,
                                                          round_row,
                                                          product_vnni_row,
                                                          ROWS,
                                                          product_vnni_sheaf,
                                                          part_kernel_round,
                                                          part_kernel_row,
                                                          product_vnni_panels,
                                                          product_vnni_few};
