/* The kernels of products that a test goes over: all that the processor has, and behind them, where
 * what they need is there, the AMX kernel with a stand-in of its tile instructions and that of
 * AVX-512 VNNI as it is on the processors of each maker. */
#pragma once

#include "kernels/product_kernel.h"

#if defined(__x86_64__) && defined(__linux__)
extern const struct product_kernel product_kernel_amx_standin, product_kernel_vnni_intel,
    product_kernel_vnni_others;

/* All of them need the same. NULL behind the last. */
static inline const struct product_kernel *other_kernel_at(uint32_t index)
{
    const struct product_kernel *const all[] = {
        &product_kernel_amx_standin, &product_kernel_vnni_intel, &product_kernel_vnni_others};
    return index < sizeof all / sizeof *all && all[index]->works() ? all[index] : NULL;
}
#else
static inline const struct product_kernel *other_kernel_at(uint32_t index)
{
    (void)index;
    return NULL;
}
#endif

/* NULL behind the last. */
static inline const struct product_kernel *tested_kernel_at(uint32_t index)
{
    uint32_t n_own = 0;
    while (product_kernel_at(n_own))
        n_own++;
    return index < n_own ? product_kernel_at(index) : other_kernel_at(index - n_own);
}
