/* The weights of one stage on its device.
 *
 * weights_declare() makes a ggml tensor for every tensor that the stage needs and picks the buffer
 * type of each: the device's own, or on the CPU the fastest extra one (repacked, AMX) that supports
 * the operation, if it is not our own (kernels/product.h). Nothing is allocated, so weights_bytes()
 * can be asked first. weights_load() leaves what the CPU uses as stored in the mapped file, and
 * allocates and copies the rest, on several threads where the buffer is host memory. What another
 * stage of the same model has loaded on the same device is shared with it (weight_unit.h).
 *
 * weights_limit(), before they are loaded, lets some layers stream through a window instead
 * (weight_window.h, weight_stream.h). */
#pragma once

#include "engine/weight_unit.h"
#include "engine/weight_window.h"

struct weight_stream;

struct stage_weights {
    struct device *device;
    const struct model *model;
    uint32_t first_layer, n_layers;
    struct weight_unit **units; /* of the layers, then of the ends */
    uint32_t n_units;
    struct ggml_tensor *outside[TENSOR_ROLE_COUNT];
    struct ggml_tensor *(*layers)[TENSOR_ROLE_COUNT]; /* [n_layers], from first_layer on */
    struct weight_window_plan window;
    struct weight_unit **streamed; /* in the order of use */
    uint32_t n_streamed;
    const _Atomic bool *stop;     /* stage_options.stop */
    uint64_t reserved_bytes;      /* of the device, for the window */
    struct weight_stream *stream; /* NULL: every layer is loaded */
    struct ggml_tensor
        *head; /* the output matrix on this device: output.weight, or the embedding when tied */
};

enum error_code weights_declare(struct stage_weights *weights, struct device *device,
                                const struct model *model, const struct stage_options *options,
                                struct error *err);
/* At most `bytes` of the device's memory: the layers that are then streamed. ERROR_NO_MEMORY: the
 * ends and the smallest window take more; says how much. */
enum error_code weights_limit(struct stage_weights *weights, uint64_t bytes, struct error *err);
/* Bytes on the device and, for a device that is not the host, beside it; of all, or of what
 * weights_load() will take.
 */
void weights_bytes(const struct stage_weights *weights, bool only_new, uint64_t *device_bytes,
                   uint64_t *host_bytes);
enum error_code weights_reserve(struct stage_weights *weights,
                                struct error *err); /* device_reserve() for what is new */
enum error_code weights_load(struct stage_weights *weights, struct error *err);
void weights_deinit(struct stage_weights *weights);
