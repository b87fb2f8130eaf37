/* The AMX kernel as it is, but for its tile instructions. */
#include "amx_standin.h"

#define product_kernel_amx product_kernel_amx_standin

#include "../../src/kernels/product_amx.c"
