#include "engine/kv_gather.h"

#include "base/mem.h"
#include "base/random.h"
#include "engine/batch_shape.h"

#include <ggml-alloc.h>
#include <string.h>

enum { GATHER_TENSORS = 8, GATHER_BITS_SEED = 16 };

struct ggml_tensor *kv_view(struct ggml_context *ctx, struct ggml_tensor *rows, enum ggml_type type,
                            const int64_t ne[4], const size_t nb[4], size_t offset)
{
    struct ggml_tensor *view = ggml_view_1d(ctx, rows, ggml_blck_size(rows->type), offset);
    view->type = type;
    memcpy(view->ne, ne, sizeof view->ne);
    memcpy(view->nb, nb, sizeof view->nb);
    return view;
}

/* As F32, whatever the cache is: ggml_get_rows() makes F32 of any other type but I32, and of I32
 * ggml 0.27 on Vulkan copies half of what a row has beyond 512. */
struct ggml_tensor *kv_gather(struct ggml_context *ctx, struct ggml_tensor *cache,
                              struct ggml_tensor *extents)
{
    const size_t extent = KV_PADDING * cache->nb[1], n = (size_t)cache->ne[1] / KV_PADDING;
    const int64_t ne[] = {(int64_t)(extent / sizeof(float)), (int64_t)n, 1, 1};
    const size_t nb[] = {sizeof(float), extent, extent * n, extent * n};
    return ggml_get_rows(ctx, kv_view(ctx, cache, GGML_TYPE_F32, ne, nb, 0), extents);
}

bool kv_gather_is_supported(ggml_backend_dev_t device)
{
    struct ggml_init_params params = {.mem_size = GATHER_TENSORS * ggml_tensor_overhead(),
                                      .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *cache = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 128, 4 * KV_PADDING);
    struct ggml_tensor *extents = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 2);
    const bool is = ggml_backend_dev_supports_op(device, kv_gather(ctx, cache, extents));
    ggml_free(ctx);
    return is;
}

/* `bits`: an extent's, and room for as many. */
static enum error_code gather_bits(ggml_backend_t backend, struct ggml_context *ctx,
                                   struct ggml_tensor *cache, uint32_t *bits, struct error *err)
{
    const size_t size = KV_PADDING * cache->nb[1], n = size / sizeof *bits;
    const int32_t first = 0;
    struct ggml_tensor *extents = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1);
    struct ggml_tensor *rows = kv_gather(ctx, cache, extents);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, GATHER_TENSORS, false);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(
        ctx, ggml_backend_get_default_buffer_type(backend));
    if (!buffer)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to copy %zu bytes", size);
    for (size_t i = 0; i < n; i++) /* every other one no F32 that is computed with */
        bits[i] = (uint32_t)random_at(GATHER_BITS_SEED, i) & (i % 2 ? 0x807fffff : 0xffffffff);
    ggml_backend_tensor_set(cache, bits, 0, size);
    ggml_backend_tensor_set(extents, &first, 0, sizeof first);
    ggml_build_forward_expand(graph, rows);
    const enum ggml_status status = ggml_backend_graph_compute(backend, graph);
    ggml_backend_tensor_get(rows, bits + n, 0, size);
    ggml_backend_tensor_memset(cache, 0, 0, size);
    ggml_backend_buffer_free(buffer);
    return status == GGML_STATUS_SUCCESS && memcmp(bits, bits + n, size) == 0
               ? ERROR_NONE
               : error_set(
                     err, ERROR_DEVICE,
                     "its driver changes cache cells when it copies them, so sequences cannot "
                     "share them here; run this device with --slots 1");
}

enum error_code kv_gather_check(ggml_backend_t backend, struct ggml_tensor *cache,
                                struct error *err)
{
    struct ggml_init_params params = {.mem_size = GATHER_TENSORS * ggml_tensor_overhead() +
                                                  ggml_graph_overhead_custom(GATHER_TENSORS, false),
                                      .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    uint32_t *bits = mem_new(2 * KV_PADDING * cache->nb[1]);
    const enum error_code code =
        ctx && bits ? gather_bits(backend, ctx, cache, bits, err)
                    : error_set(err, ERROR_NO_MEMORY, "not enough memory to look at a copy");
    mem_free(bits);
    ggml_free(ctx);
    return code;
}
