/* The weights of one stage on its device.
 *
 * weights_declare() makes a ggml tensor for every tensor that the stage needs and picks the
 * buffer type of each: the device's own, or on the CPU the fastest extra one (repacked, AMX)
 * that supports the operation. Nothing is allocated, so weights_bytes() can be asked first.
 * weights_load() leaves what the CPU uses as stored in the mapped file, and allocates and
 * copies the rest, on several threads where the buffer is host memory. */
#pragma once

#include "base/error.h"
#include "engine/stage.h"
#include "model/architecture.h"

#include <ggml-backend.h>
#include <ggml.h>

enum { WEIGHT_POOLS_MAX = 8 };

struct weight_pool { /* the tensors of one buffer type */
    ggml_backend_buffer_type_t type;
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
};

struct weights {
    struct device *device;
    const struct model *model;
    uint32_t first_layer, n_layers;
    struct ggml_tensor *outside[TENSOR_ROLE_COUNT];
    struct ggml_tensor *(*layers)[TENSOR_ROLE_COUNT]; /* [n_layers], from first_layer on */
    struct ggml_tensor *head; /* the output matrix on this device: output.weight, or the embedding when tied */
    struct weight_pool pools[WEIGHT_POOLS_MAX];
    uint32_t n_pools;
    struct weight_source *sources; /* which tensor of the file each one comes from */
    uint32_t n_sources;
};

enum error_code weights_declare(struct weights *weights, struct device *device, const struct model *model,
                                const struct stage_options *options, struct error *err);
/* Bytes that weights_load() will take on the device and, for a device that is not the host, beside it. */
void weights_bytes(const struct weights *weights, uint64_t *device_bytes, uint64_t *host_bytes);
enum error_code weights_load(struct weights *weights, struct error *err);
void weights_deinit(struct weights *weights);
