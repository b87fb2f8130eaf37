/* The AVX-512 VNNI kernel as it is on processors of other makers. */
#define PRODUCT_IS_INTEL false
#define product_kernel_avx512_vnni product_kernel_vnni_others

#include "../../src/kernels/product_avx512_vnni.c"
