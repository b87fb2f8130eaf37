/* Cells of a pool brought side by side, for attention that wants a sequence's cells so: a copy in
 * the graph, of whole extents. Pure, but for kv_gather_check(), which computes on the backend. */
#pragma once

#include "base/error.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <stdbool.h>
#include <stdint.h>

/* `rows` as these dimensions of `type`, from so many bytes on. ggml's own views refuse slots whose
 * cells overlap, as they do in a pool beyond what each has. */
struct ggml_tensor *kv_view(struct ggml_context *ctx, struct ggml_tensor *rows, enum ggml_type type,
                            const int64_t ne[4], const size_t nb[4], size_t offset);

/* Extents of `cache`, [row width, cells]. `extents`: I32 [n]. The result is their bytes, one behind
 * the other, as F32 [an extent's bytes / 4, n]; kv_view() tells it its type. */
struct ggml_tensor *kv_gather(struct ggml_context *ctx, struct ggml_tensor *cache,
                              struct ggml_tensor *extents);

bool kv_gather_is_supported(ggml_backend_dev_t device);

/* Copies arbitrary bits on the backend, over the first extent of the empty `cache`, and leaves
 * zeros. ERROR_DEVICE: they came out changed. */
enum error_code kv_gather_check(ggml_backend_t backend, struct ggml_tensor *cache,
                                struct error *err);
