/* What the engine needs of a device beyond gpu.h: ggml's own objects. All are owned by the
 * device and live as long as it does. Use them on the device's thread only. */
#pragma once

#include "gpu/gpu.h"
#include "kernels/product.h"

#include <ggml-backend.h>

ggml_backend_t device_ggml_backend(struct device *device);
ggml_backend_dev_t device_ggml_dev(struct device *device);

/* The CPU backend that runs what a GPU does not support; the device's own backend when it is the
 * CPU. */
ggml_backend_t device_ggml_fallback(struct device *device);

/* The CPU's extra buffer types (repacked weights, AMX …), NULL-terminated; NULL when there are
 * none. */
ggml_backend_buffer_type_t *device_ggml_extra_buffer_types(struct device *device);

/* What multiplies matrices of K-quants on this device, as they are stored, in ggml's place; NULL:
 * ggml does. */
const struct product_kernel *device_ggml_products(struct device *device);

/* Accelerators that ride with the CPU device (BLAS …): at most `max` of them; the count. 0
 * elsewhere. */
uint32_t device_ggml_accelerators(struct device *device, ggml_backend_t *out, uint32_t max);

/* Asked between two operations that the CPU computes, a CPU device's or what falls back to it, on
 * the thread that computes: true ends the graph with GGML_STATUS_ABORTED. Until it is NULL again.
 */
void device_ggml_ask(struct device *device, ggml_abort_callback stops, void *arg);

/* Makes `n_threads` the thread count of a CPU device; no-op elsewhere. */
void device_set_threads(struct device *device, uint32_t n_threads);
/* The most that it computes with, and the cores that they are of; both are what was asked for where
 * somebody did. 0 where they have no meaning. */
uint32_t device_threads(const struct device *device);
uint32_t device_cores(const struct device *device);

/* What a CPU device computes next with: `n_threads` of its threads, or, 0, one for each core.
 * No-op elsewhere. */
void device_compute_with(struct device *device, uint32_t n_threads);
