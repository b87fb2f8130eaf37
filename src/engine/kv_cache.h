/* The KV cache of one stage: for each layer K and V of every slot, allocated when it opens.
 *
 * Layout: one tensor each for K and V per layer, [row width, cells x n_slots]; cell p of slot
 * s is row s * cells + p, so that a sequence is contiguous and a batch's new rows are
 * written by one set_rows. A slot's cells beyond its length hold old values that no mask lets
 * in. */
#pragma once

#include "base/error.h"
#include "engine/stage.h"
#include "model/architecture.h"

#include <ggml-backend.h>
#include <ggml.h>

struct kv_cache {
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
    ggml_backend_buffer_type_t type;
    struct ggml_tensor **k; /* [n_layers] */
    struct ggml_tensor **v; /* [n_layers]; each NULL where a value is the beginning of its key */
    uint32_t n_layers, n_slots, cells;
    uint32_t *lengths; /* [n_slots] */
};

enum ggml_type kv_ggml_type(enum kv_type type);

struct kv_heads {
    const struct layer_form *layers; /* [n_layers of the stage] */
    uint32_t dim_k, dim_v;
    bool v_in_k; /* latent attention */
};

/* ERROR_UNSUPPORTED when a head is not whole blocks of a quantised cache type. */
enum error_code kv_cache_declare(struct kv_cache *kv, ggml_backend_buffer_type_t type,
                                 struct kv_heads heads, const struct stage_options *options,
                                 struct error *err);
uint64_t kv_cache_bytes(const struct kv_cache *kv);
enum error_code kv_cache_alloc(struct kv_cache *kv, struct error *err);
void kv_cache_deinit(struct kv_cache *kv);

/* K and V of one cell of the layer that has most of them. */
uint64_t kv_cache_row_bytes(const struct kv_cache *kv);

/* Cells 0 .. length - 1 of a slot, as bytes: for each layer K rows, then V rows, then zeros where
 * other layers have wider rows. */
uint64_t kv_cache_slot_bytes(const struct kv_cache *kv, uint32_t length);
void kv_cache_export(const struct kv_cache *kv, uint32_t slot, uint32_t length, void *out);
void kv_cache_import(struct kv_cache *kv, uint32_t slot, uint32_t length, const void *in);
/* Cells of one layer, counted from this cache's first, in the same order. */
void kv_cache_read(const struct kv_cache *kv, uint32_t layer, const struct kv_run *run, void *out);
void kv_cache_write(struct kv_cache *kv, uint32_t layer, const struct kv_run *run, const void *in);
enum error_code kv_cache_copy(struct kv_cache *kv, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err);
