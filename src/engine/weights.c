#include "engine/weights.h"

#include "base/mem.h"
#include "engine/weights_load.h"
#include "gpu/device_ggml.h"
#include "model/model.h"

#include <assert.h>
#include <ggml-alloc.h>
#include <stdio.h>

/* The operation that a role's tensor is an operand of: it decides which buffers are possible. */
static enum ggml_op operation_of(enum tensor_role role, uint32_t n_dims)
{
    switch ((int)role) {
    case TENSOR_TOKEN_EMBEDDING:
        return GGML_OP_GET_ROWS;
    case TENSOR_ROPE_FREQS:
    case TENSOR_ROPE_FACTORS_LONG:
    case TENSOR_ROPE_FACTORS_SHORT:
        return GGML_OP_ROPE;
    case TENSOR_EXPERTS_GATE_BIAS:
    case TENSOR_EXPERTS_UP_BIAS:
    case TENSOR_EXPERTS_DOWN_BIAS:
        return GGML_OP_ADD_ID;
    default:
        return n_dims == 3 ? GGML_OP_MUL_MAT_ID : n_dims == 2 ? GGML_OP_MUL_MAT : GGML_OP_MUL;
    }
}

/* Asks the device whether it can run `op` on `weight` when that lives in a buffer of `type`. */
static bool supported(const struct weights *weights, enum ggml_op op, struct ggml_tensor *weight,
                      ggml_backend_buffer_type_t type)
{
    enum { ROWS = 512 };
    struct ggml_init_params params = {.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    int64_t n_used = model_hyperparameters(weights->model)->n_experts_used;
    struct ggml_tensor *result, *ids, *rows;
    if (op == GGML_OP_MUL_MAT) {
        rows = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, weight->ne[0], ROWS);
        result = ggml_mul_mat(ctx, weight, rows);
    } else if (op == GGML_OP_MUL_MAT_ID) {
        rows = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, weight->ne[0], n_used, ROWS);
        ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, n_used, ROWS);
        result = ggml_mul_mat_id(ctx, weight, rows, ids);
    } else if (op == GGML_OP_GET_ROWS) {
        ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, ROWS);
        result = ggml_get_rows(ctx, weight, ids);
    } else {
        ggml_free(ctx);
        return true; /* vectors: every device has them */
    }
    weight->buffer = ggml_backend_buft_alloc_buffer(type, 0);
    bool yes = ggml_backend_dev_supports_op(device_ggml_dev(weights->device), result);
    ggml_backend_buffer_free(weight->buffer);
    weight->buffer = NULL;
    ggml_free(ctx);
    return yes;
}

static bool is_host_device(const struct weights *weights)
{
    return device_ggml_backend(weights->device) == device_ggml_fallback(weights->device);
}

/* Host memory that the CPU fallback of a device computes from. */
static ggml_backend_buffer_type_t host_type(const struct weights *weights)
{
    return ggml_backend_get_default_buffer_type(device_ggml_fallback(weights->device));
}

static ggml_backend_buffer_type_t choose_type(const struct weights *weights, enum ggml_op op,
                                              struct ggml_tensor *weight, bool repack)
{
    ggml_backend_buffer_type_t own = ggml_backend_get_default_buffer_type(device_ggml_backend(weights->device));
    /* the rows of a few tokens: looked up on the host, where the ids are */
    if (op == GGML_OP_GET_ROWS)
        return host_type(weights);
    ggml_backend_buffer_type_t *extra = repack ? device_ggml_extra_buffer_types(weights->device) : NULL;
    bool matrix = op == GGML_OP_MUL_MAT || op == GGML_OP_MUL_MAT_ID;
    for (; extra && matrix && *extra; extra++) {
        if (supported(weights, op, weight, *extra))
            return *extra;
    }
    return supported(weights, op, weight, own) ? own : host_type(weights);
}

static struct weight_pool *pool_of(struct weights *weights, ggml_backend_buffer_type_t type, size_t n_tensors_max)
{
    for (uint32_t i = 0; i < weights->n_pools; i++) {
        if (weights->pools[i].type == type)
            return &weights->pools[i];
    }
    assert(weights->n_pools < WEIGHT_POOLS_MAX);
    struct weight_pool *pool = &weights->pools[weights->n_pools++];
    struct ggml_init_params params = {.mem_size = n_tensors_max * ggml_tensor_overhead(), .no_alloc = true};
    *pool = (struct weight_pool){.type = type, .context = ggml_init(params)};
    return pool;
}

static struct ggml_tensor *declare(struct weights *weights, const struct gguf_tensor *source, enum ggml_op op,
                                   bool repack, size_t n_tensors_max)
{
    struct ggml_init_params params = {.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *scratch = ggml_init(params);
    struct ggml_tensor *probe = ggml_new_tensor(scratch, (enum ggml_type)source->type, (int)source->n_dims, source->ne);
    ggml_backend_buffer_type_t type = choose_type(weights, op, probe, repack);
    ggml_free(scratch);

    struct weight_pool *pool = pool_of(weights, type, n_tensors_max);
    struct ggml_tensor *tensor =
        ggml_new_tensor(pool->context, (enum ggml_type)source->type, (int)source->n_dims, source->ne);
    ggml_set_name(tensor, source->name);
    weights->sources[weights->n_sources++] = (struct weight_source){.tensor = tensor, .source = source, .pool = pool};
    return tensor;
}

static void declare_role(struct weights *weights, enum tensor_role role, uint32_t layer, struct ggml_tensor **out,
                         bool repack, size_t n_tensors_max)
{
    const struct gguf_tensor *source = model_tensor(weights->model, role, layer);
    if (source)
        *out = declare(weights, source, operation_of(role, source->n_dims), repack, n_tensors_max);
}

static void declare_ends(struct weights *weights, const struct stage_options *options, size_t n_tensors_max)
{
    bool repack = !options->no_repack;
    bool first = weights->first_layer == 0;
    bool last = weights->first_layer + weights->n_layers == model_hyperparameters(weights->model)->n_layers;
    static const enum tensor_role everywhere[] = {TENSOR_ROPE_FREQS, TENSOR_ROPE_FACTORS_LONG,
                                                  TENSOR_ROPE_FACTORS_SHORT};
    for (size_t i = 0; i < sizeof everywhere / sizeof everywhere[0]; i++)
        declare_role(weights, everywhere[i], 0, &weights->outside[everywhere[i]], false, n_tensors_max);
    if (first)
        declare_role(weights, TENSOR_TOKEN_EMBEDDING, 0, &weights->outside[TENSOR_TOKEN_EMBEDDING], false,
                     n_tensors_max);
    if (!last)
        return;
    declare_role(weights, TENSOR_OUTPUT_NORM, 0, &weights->outside[TENSOR_OUTPUT_NORM], false, n_tensors_max);
    const struct gguf_tensor *head = model_tensor(weights->model, TENSOR_OUTPUT, 0);
    if (!head)
        head = model_tensor(weights->model, TENSOR_TOKEN_EMBEDDING, 0);
    weights->head = declare(weights, head, GGML_OP_MUL_MAT, repack, n_tensors_max);
}

enum error_code weights_declare(struct weights *weights, struct device *device, const struct model *model,
                                const struct stage_options *options, struct error *err)
{
    *weights = (struct weights){
        .device = device, .model = model, .first_layer = options->first_layer, .n_layers = options->n_layers};
    size_t n_tensors_max = ((size_t)options->n_layers + 1) * TENSOR_ROLE_COUNT;
    weights->layers = mem_new_array(options->n_layers, sizeof *weights->layers);
    weights->sources = mem_new_array(n_tensors_max, sizeof *weights->sources);
    if (!weights->layers || !weights->sources) {
        weights_deinit(weights);
        return error_set(err, ERROR_NO_MEMORY, "no memory for the tensors of %u layers", options->n_layers);
    }
    for (uint32_t i = 0; i < options->n_layers; i++) {
        for (int role = 0; role < TENSOR_ROLE_COUNT; role++) {
            if (tensor_role_per_layer((enum tensor_role)role))
                declare_role(weights, (enum tensor_role)role, options->first_layer + i, &weights->layers[i][role],
                             !options->no_repack, n_tensors_max);
        }
    }
    declare_ends(weights, options, n_tensors_max);
    return ERROR_NONE;
}

void weights_bytes(const struct weights *weights, uint64_t *device_bytes, uint64_t *host_bytes)
{
    *device_bytes = *host_bytes = 0;
    for (uint32_t i = 0; i < weights->n_pools; i++) {
        uint64_t bytes =
            ggml_backend_alloc_ctx_tensors_from_buft_size(weights->pools[i].context, weights->pools[i].type);
        bool beside = !is_host_device(weights) && weights->pools[i].type == host_type(weights);
        *(beside ? host_bytes : device_bytes) += bytes;
    }
}

/* The file's own pages serve as the buffer: host memory, tensors as stored, and aligned as the CPU wants them. */
static bool is_mappable(const struct weights *weights, const struct weight_pool *pool)
{
    uint64_t alignment = ggml_backend_buft_get_alignment(pool->type);
    if (pool->type != host_type(weights) || gguf_file_descriptor(model_file(weights->model)) < 0)
        return false;
    for (uint32_t i = 0; i < weights->n_sources; i++) {
        if (weights->sources[i].pool == pool && weights->sources[i].source->offset % alignment)
            return false;
    }
    return true;
}

/* Places the pool's tensors where they are in the mapped file: nothing is read or copied before it is used. */
static bool map_pool(struct weights *weights, struct weight_pool *pool)
{
    const struct gguf_file *file = model_file(weights->model);
    ggml_backend_dev_t dev = ggml_backend_get_device(device_ggml_fallback(weights->device));
    uint8_t *bytes =
        (uint8_t *)(uintptr_t)gguf_file_bytes(file); /* ggml asks for a writable pointer; weights are only read */
    pool->buffer = ggml_backend_dev_buffer_from_host_ptr(dev, bytes, gguf_file_size(file), 0);
    for (uint32_t i = 0; pool->buffer && i < weights->n_sources; i++) {
        struct weight_source *source = &weights->sources[i];
        if (source->pool == pool) {
            ggml_backend_tensor_alloc(pool->buffer, source->tensor, bytes + source->source->offset);
            source->mapped = true;
        }
    }
    return pool->buffer;
}

enum error_code weights_load(struct weights *weights, struct error *err)
{
    for (uint32_t i = 0; i < weights->n_pools; i++) {
        struct weight_pool *pool = &weights->pools[i];
        if (!is_mappable(weights, pool) || !map_pool(weights, pool)) {
            pool->buffer = ggml_backend_alloc_ctx_tensors_from_buft(pool->context, pool->type);
            if (pool->buffer)
                weights_advise_huge_pages(pool->buffer);
        }
        if (!pool->buffer)
            return error_set(err, ERROR_NO_MEMORY, "%s could not allocate the weights in %s memory",
                             device_info(weights->device)->id, ggml_backend_buft_name(pool->type));
        ggml_backend_buffer_set_usage(pool->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    uint32_t n_threads = is_host_device(weights) ? device_threads(weights->device) : 1;
    return weights_copy(weights->sources, weights->n_sources, model_file(weights->model), n_threads, err);
}

void weights_deinit(struct weights *weights)
{
    if (!weights)
        return;
    for (uint32_t i = 0; i < weights->n_pools; i++) {
        ggml_backend_buffer_free(weights->pools[i].buffer);
        ggml_free(weights->pools[i].context);
    }
    mem_free(weights->layers);
    mem_free(weights->sources);
    *weights = (struct weights){0};
}
