/* The AVX-512 VNNI kernel as it is on Intel's processors. */
#define PRODUCT_IS_INTEL true
#define product_kernel_avx512_vnni product_kernel_vnni_intel

#include "../../src/kernels/product_avx512_vnni.c"
