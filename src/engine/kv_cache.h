/* The KV cache of one stage: for each layer K and V of every slot, allocated when it opens.
 *
 * Layout: one tensor each for K and V per layer, [row width, cells x n_slots]; cell p of slot
 * s is row s * cells + p, so that a sequence is contiguous and a batch's new rows are
 * written by one set_rows. A slot's cells beyond its length hold old values that no mask lets
 * in. */
#pragma once

#include "base/error.h"
#include "engine/stage.h"

#include <ggml-backend.h>
#include <ggml.h>

struct kv_cache {
    struct ggml_context *context;
    ggml_backend_buffer_t buffer;
    ggml_backend_buffer_type_t type;
    struct ggml_tensor **k, **v; /* [n_layers] */
    uint32_t n_layers, n_slots, cells;
    uint32_t *lengths; /* [n_slots] */
};

enum ggml_type kv_ggml_type(enum kv_type type);

struct kv_heads {
    uint32_t n, dim_k, dim_v;
};

/* ERROR_UNSUPPORTED when a head is not whole blocks of a quantised cache type. */
enum error_code kv_cache_declare(struct kv_cache *kv, ggml_backend_buffer_type_t type,
                                 struct kv_heads heads, const struct stage_options *options,
                                 struct error *err);
uint64_t kv_cache_bytes(const struct kv_cache *kv);
enum error_code kv_cache_alloc(struct kv_cache *kv, struct error *err);
void kv_cache_deinit(struct kv_cache *kv);

/* Cells 0 .. length - 1 of a slot, as bytes: for each layer K rows, then V rows. */
uint64_t kv_cache_slot_bytes(const struct kv_cache *kv, uint32_t length);
void kv_cache_export(const struct kv_cache *kv, uint32_t slot, uint32_t length, void *out);
void kv_cache_import(struct kv_cache *kv, uint32_t slot, uint32_t length, const void *in);
/* Cells of one layer, counted from this cache's first: K rows, then V rows. */
void kv_cache_read(const struct kv_cache *kv, uint32_t layer, const struct kv_run *run, void *out);
void kv_cache_write(struct kv_cache *kv, uint32_t layer, const struct kv_run *run, const void *in);
enum error_code kv_cache_copy(struct kv_cache *kv, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err);
