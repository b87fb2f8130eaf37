/* What multiplies matrices on a device, by name. Any thread. */
#pragma once

#include "gpu/gpu.h"

/* The kernel that does in ggml's place (kernels/product.h); "" where ggml does, as on GPUs,
 * and of simulated devices. */
const char *device_products_name(struct device *device);
