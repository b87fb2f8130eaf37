#include "engine/kv_cache.h"

#include "base/mem.h"
#include "engine/batch_shape.h"
#include "engine/weights_load.h"

#include <ggml-alloc.h>
#include <string.h>

enum ggml_type kv_ggml_type(enum kv_type type)
{
    switch (type) {
    case KV_F16:
        return GGML_TYPE_F16;
    case KV_F32:
        return GGML_TYPE_F32;
    case KV_Q8_0:
        return GGML_TYPE_Q8_0;
    }
    return GGML_TYPE_F16;
}

enum error_code kv_cache_declare(struct kv_cache *kv, ggml_backend_buffer_type_t type,
                                 struct kv_heads heads, const struct stage_options *options,
                                 struct error *err)
{
    enum ggml_type ggml_type = kv_ggml_type(options->kv_type);
    int64_t block = ggml_blck_size(ggml_type);
    if (heads.dim_k % block || heads.dim_v % block)
        return error_set(err, ERROR_UNSUPPORTED,
                         "a %s KV cache needs heads of a multiple of %lld values, and this model's "
                         "have %u (K) and %u (V); use --kv f16",
                         ggml_type_name(ggml_type), (long long)block, heads.dim_k, heads.dim_v);
    *kv = (struct kv_cache){.type = type,
                            .n_layers = options->n_layers,
                            .n_slots = options->n_slots,
                            .cells = kv_cells(options->context)};
    kv->k = mem_new_array(kv->n_layers, sizeof *kv->k);
    kv->v = mem_new_array(kv->n_layers, sizeof *kv->v);
    kv->lengths = mem_new_array(kv->n_slots, sizeof *kv->lengths);
    if (!kv->k || !kv->v || !kv->lengths) {
        kv_cache_deinit(kv);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the KV cache's index");
    }
    struct ggml_init_params params = {.mem_size = 2 * (size_t)kv->n_layers * ggml_tensor_overhead(),
                                      .no_alloc = true};
    kv->context = ggml_init(params);
    int64_t n_cells = (int64_t)kv->cells * kv->n_slots;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        const int64_t n_heads = heads.layers[i].n_head_kv;
        kv->k[i] = ggml_new_tensor_2d(kv->context, ggml_type, n_heads * heads.dim_k, n_cells);
        ggml_format_name(kv->k[i], "kv_k.%u", i);
        if (heads.v_in_k)
            continue;
        kv->v[i] = ggml_new_tensor_2d(kv->context, ggml_type, n_heads * heads.dim_v, n_cells);
        ggml_format_name(kv->v[i], "kv_v.%u", i);
    }
    return ERROR_NONE;
}

uint64_t kv_cache_bytes(const struct kv_cache *kv)
{
    return ggml_backend_alloc_ctx_tensors_from_buft_size(kv->context, kv->type);
}

enum error_code kv_cache_alloc(struct kv_cache *kv, struct error *err)
{
    kv->buffer = ggml_backend_alloc_ctx_tensors_from_buft(kv->context, kv->type);
    if (!kv->buffer)
        return error_set(err, ERROR_NO_MEMORY,
                         "not enough memory for a KV cache of %u slots of %u tokens", kv->n_slots,
                         kv->cells);
    weights_advise_huge_pages(kv->buffer);
    /* masked cells are multiplied by zero, and zero times a stray NaN would not be zero */
    ggml_backend_buffer_clear(kv->buffer, 0);
    return ERROR_NONE;
}

void kv_cache_deinit(struct kv_cache *kv)
{
    if (!kv)
        return;
    ggml_backend_buffer_free(kv->buffer);
    ggml_free(kv->context);
    mem_free(kv->k);
    mem_free(kv->v);
    mem_free(kv->lengths);
    *kv = (struct kv_cache){0};
}

static size_t kv_row_bytes(const struct ggml_tensor *rows) /* NULL: none */
{
    return rows ? rows->nb[1] : 0;
}

uint64_t kv_cache_row_bytes(const struct kv_cache *kv)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        const uint64_t bytes = kv_row_bytes(kv->k[i]) + kv_row_bytes(kv->v[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t kv_cache_slot_bytes(const struct kv_cache *kv, uint32_t length)
{
    return (uint64_t)kv->n_layers * length * kv_cache_row_bytes(kv);
}

void kv_cache_export(const struct kv_cache *kv, uint32_t slot, uint32_t length, void *out)
{
    const struct kv_run run = {.slot = slot, .n_rows = length};
    for (uint32_t i = 0; i < kv->n_layers; i++)
        kv_cache_read(kv, i, &run, (char *)out + i * length * kv_cache_row_bytes(kv));
}

void kv_cache_import(struct kv_cache *kv, uint32_t slot, uint32_t length, const void *in)
{
    const struct kv_run run = {.slot = slot, .n_rows = length};
    for (uint32_t i = 0; i < kv->n_layers; i++)
        kv_cache_write(kv, i, &run, (const char *)in + i * length * kv_cache_row_bytes(kv));
}

void kv_cache_read(const struct kv_cache *kv, uint32_t layer, const struct kv_run *run, void *out)
{
    const size_t k = kv_row_bytes(kv->k[layer]), v = kv_row_bytes(kv->v[layer]);
    const size_t cell = (size_t)run->slot * kv->cells + run->first, n = run->n_rows;
    char *to = out;
    ggml_backend_tensor_get(kv->k[layer], to, cell * k, n * k);
    if (v)
        ggml_backend_tensor_get(kv->v[layer], to + n * k, cell * v, n * v);
    memset(to + n * (k + v), 0, n * (kv_cache_row_bytes(kv) - k - v));
}

void kv_cache_write(struct kv_cache *kv, uint32_t layer, const struct kv_run *run, const void *in)
{
    const size_t k = kv_row_bytes(kv->k[layer]), v = kv_row_bytes(kv->v[layer]);
    const size_t cell = (size_t)run->slot * kv->cells + run->first, n = run->n_rows;
    ggml_backend_tensor_set(kv->k[layer], in, cell * k, n * k);
    if (v)
        ggml_backend_tensor_set(kv->v[layer], (const char *)in + n * k, cell * v, n * v);
}

enum error_code kv_cache_copy(struct kv_cache *kv, uint32_t from, uint32_t to, uint32_t length,
                              struct error *err)
{
    uint64_t size = kv_cache_slot_bytes(kv, length);
    void *bytes = mem_new(size);
    if (!bytes)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to copy %u tokens of KV cache",
                         length);
    kv_cache_export(kv, from, length, bytes);
    kv_cache_import(kv, to, length, bytes);
    mem_free(bytes);
    return ERROR_NONE;
}
