/* What stages share of their weights: a layer's tensors on a device, or those of one of the model's
 * ends.
 *
 * weight_unit_take() gives the unit that is loaded already, by any stage of the same model on the
 * same device, or a new one, declared and empty. A unit is loaded once, by who has taken it new,
 * who then shows it to the others; from then on it does not change, and it goes with its last user.
 * So what a placement and the next one have in common is loaded once, and takes its memory once.
 *
 * Threading: any; a lock guards who uses what. A unit that is not shown yet is its only user's. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "engine/stage.h"
#include "model/architecture.h"

#include <ggml-backend.h>
#include <ggml.h>

enum { WEIGHT_POOLS_MAX = 8 };

/* In the place of a layer's number. */
enum { WEIGHT_UNIT_ROPE = LIMIT_LAYERS, WEIGHT_UNIT_FIRST, WEIGHT_UNIT_LAST };

struct weight_pool { /* the tensors of one buffer type */
    ggml_backend_buffer_type_t type;
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
    uint64_t bytes; /* of that buffer */
};

struct weight_unit {
    struct device *device;
    const struct model *model;
    uint32_t layer;
    bool repack;
    bool is_loaded;
    bool is_streamed; /* it gets its buffers from a stream, is never loaded and never shown */
    uint64_t reserved_bytes; /* of the device, given back with the unit */
    struct ggml_tensor *tensors[TENSOR_ROLE_COUNT];
    struct ggml_tensor *head; /* of WEIGHT_UNIT_LAST: output.weight, or the embedding when tied */
    struct weight_pool pools[WEIGHT_POOLS_MAX];
    uint32_t n_pools;
    struct tensor_copy *sources; /* which tensor of the file each one comes from */
    uint32_t n_sources;
    /* under the lock */
    struct weight_unit *next; /* of those that are shown */
    uint32_t n_users;
    bool is_shown;
};

/* NULL: no memory. */
struct weight_unit *weight_unit_take(struct device *device, const struct model *model,
                                     uint32_t layer, bool repack);
struct weight_unit *weight_unit_again(struct weight_unit *unit); /* one user more */
void weight_unit_show(struct weight_unit *unit);
void weight_unit_drop(struct weight_unit *unit); /* NULL is fine */

/* On the device and, for a device that is not the host, beside it. */
void weight_unit_bytes(const struct weight_unit *unit, uint64_t *device_bytes,
                       uint64_t *host_bytes);
bool weights_on_host(const struct device *device);
/* Host memory that the CPU fallback of its device computes from. */
ggml_backend_buffer_type_t weight_unit_host_type(const struct weight_unit *unit);
/* The pool's tensors can be used as they are in the file: host memory, as stored, and aligned as
 * the CPU wants them. */
bool weight_unit_is_in_place(const struct weight_unit *unit, const struct weight_pool *pool);
/* Buffers for its tensors; what the CPU uses as stored stays in the mapped file. */
enum error_code weight_unit_alloc(struct weight_unit *unit, struct error *err);
