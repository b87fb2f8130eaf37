/* The kernels of products that a test goes over: all that the processor has, and behind them the
 * AMX kernel with a stand-in of its tile instructions, where its other ones are there. */
#pragma once

#include "kernels/product_kernel.h"

#if defined(__x86_64__) && defined(__linux__)
extern const struct product_kernel product_kernel_amx_standin;
#endif

/* NULL behind the last. */
static inline const struct product_kernel *tested_kernel_at(uint32_t index)
{
    if (product_kernel_at(index))
        return product_kernel_at(index);
#if defined(__x86_64__) && defined(__linux__)
    if ((index == 0 || product_kernel_at(index - 1)) && product_kernel_amx_standin.works())
        return &product_kernel_amx_standin;
#endif
    return NULL;
}
