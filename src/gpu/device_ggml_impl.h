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
