#include "engine/kv_cache.h"

#include "base/mem.h"
#include "engine/batch_shape.h"
#include "engine/weights_load.h"

#include <ggml-alloc.h>

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
                         "have %u; use --kv f16",
                         ggml_type_name(ggml_type), (long long)block, heads.dim_k);
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
        kv->k[i] =
            ggml_new_tensor_2d(kv->context, ggml_type, (int64_t)heads.n * heads.dim_k, n_cells);
        kv->v[i] =
            ggml_new_tensor_2d(kv->context, ggml_type, (int64_t)heads.n * heads.dim_v, n_cells);
        ggml_format_name(kv->k[i], "kv_k.%u", i);
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

uint64_t kv_cache_slot_bytes(const struct kv_cache *kv, uint32_t length)
{
    return (uint64_t)kv->n_layers * length * (kv->k[0]->nb[1] + kv->v[0]->nb[1]);
}

void kv_cache_export(const struct kv_cache *kv, uint32_t slot, uint32_t length, void *out)
{
    char *to = out;
    for (uint32_t i = 0; i < 2 * kv->n_layers; i++) {
        struct ggml_tensor *tensor = i % 2 ? kv->v[i / 2] : kv->k[i / 2];
        size_t row = tensor->nb[1];
        ggml_backend_tensor_get(tensor, to, (size_t)slot * kv->cells * row, length * row);
        to += length * row;
    }
}

void kv_cache_import(struct kv_cache *kv, uint32_t slot, uint32_t length, const void *in)
{
    const char *from = in;
    for (uint32_t i = 0; i < 2 * kv->n_layers; i++) {
        struct ggml_tensor *tensor = i % 2 ? kv->v[i / 2] : kv->k[i / 2];
        size_t row = tensor->nb[1];
        ggml_backend_tensor_set(tensor, from, (size_t)slot * kv->cells * row, length * row);
        from += length * row;
    }
}

void kv_cache_read(const struct kv_cache *kv, uint32_t layer, const struct kv_run *run, void *out)
{
    const size_t k = kv->k[layer]->nb[1], v = kv->v[layer]->nb[1];
    const size_t cell = (size_t)run->slot * kv->cells + run->first;
    ggml_backend_tensor_get(kv->k[layer], out, cell * k, run->n_rows * k);
    ggml_backend_tensor_get(kv->v[layer], (char *)out + run->n_rows * k, cell * v, run->n_rows * v);
}

void kv_cache_write(struct kv_cache *kv, uint32_t layer, const struct kv_run *run, const void *in)
{
    const size_t k = kv->k[layer]->nb[1], v = kv->v[layer]->nb[1];
    const size_t cell = (size_t)run->slot * kv->cells + run->first;
    ggml_backend_tensor_set(kv->k[layer], in, cell * k, run->n_rows * k);
    ggml_backend_tensor_set(kv->v[layer], (const char *)in + run->n_rows * k, cell * v,
                            run->n_rows * v);
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
