/* The table of ggml's devices; its family is a row of backends.h. For gpu.c and device_ggml*.c. */
#pragma once

#include "gpu/backends.h"
#include "gpu/device_impl.h"

extern const struct device_impl device_impl_ggml;

/* Fills *info with all that is known without starting the device. */
void device_ggml_describe(const struct backend *backend, ggml_backend_dev_t dev, uint32_t index,
                          struct device_info *info);

/* A driver that computes a GPU's work on the CPU (Mesa's llvmpipe, SwiftShader). */
bool device_ggml_is_software(ggml_backend_dev_t dev);

/* Reads from the device's tensor by letting the device write into `to` itself. False, with `to`
 * undefined, when that does not pay or the device cannot; ggml_backend_tensor_get() always can.
 * Only tried on software Vulkan. */
bool device_ggml_read_pages(ggml_backend_dev_t dev, struct ggml_tensor *from, uint64_t offset,
                            void *to, uint64_t size);
