#include "engine/weight_unit.h"

#include "base/mem.h"
#include "engine/weights_load.h"
#include "gpu/device_ggml.h"
#include "gpu/product_ggml.h"
#include "model/model_precision.h"

#include <assert.h>
#include <ggml-alloc.h>
#include <pthread.h>
#include <stdio.h>

enum { UNIT_TENSORS_MAX = TENSOR_ROLE_COUNT + 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct weight_unit *shown;

/* The operation that a role's tensor is an operand of: it decides which buffers are possible. */
static enum ggml_op operation_of(enum tensor_role role, uint32_t n_dims)
{
    switch ((int)role) {
    case TENSOR_TOKEN_EMBEDDING:
    case TENSOR_POSITION_EMBEDDING:
    case TENSOR_TYPE_EMBEDDING:
    case TENSOR_INPUTS_EMBEDDING:
    case TENSOR_EXPERTS_OF_TOKEN:
    case TENSOR_SUMMARIES_PHASE:
    case TENSOR_INDEX_SUMMARIES_PHASE:
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
        return tensor_role_is_elementwise(role)  ? GGML_OP_MUL
               : tensor_role_is_of_experts(role) ? GGML_OP_MUL_MAT_ID
               : n_dims >= 2                     ? GGML_OP_MUL_MAT
                                                 : GGML_OP_MUL;
    }
}

/* Asks the device whether it can run `op` on `weight` when that lives in a buffer of `type`. */
static bool supported(const struct weight_unit *unit, enum ggml_op op, struct ggml_tensor *weight,
                      ggml_backend_buffer_type_t type)
{
    enum { ROWS = 512 };
    struct ggml_init_params params = {.mem_size = 8 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    int64_t n_used = model_hyperparameters(unit->model)->n_experts_used;
    struct ggml_tensor *result, *ids, *rows;
    if (op == GGML_OP_MUL_MAT) {
        rows = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, weight->ne[0], ROWS, weight->ne[2]);
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
    bool yes = ggml_backend_dev_supports_op(device_ggml_dev(unit->device), result);
    ggml_backend_buffer_free(weight->buffer);
    weight->buffer = NULL;
    ggml_free(ctx);
    return yes;
}

bool weights_on_host(const struct device *device)
{
    struct device *of = (struct device *)(uintptr_t)device;
    return device_ggml_backend(of) == device_ggml_fallback(of);
}

ggml_backend_buffer_type_t weight_unit_host_type(const struct weight_unit *unit)
{
    return ggml_backend_get_default_buffer_type(device_ggml_fallback(unit->device));
}

static ggml_backend_buffer_type_t choose_type(const struct weight_unit *unit, enum ggml_op op,
                                              struct ggml_tensor *weight, bool repack)
{
    ggml_backend_buffer_type_t own =
        ggml_backend_get_default_buffer_type(device_ggml_backend(unit->device));
    /* the rows of a few tokens: looked up on the host, where the ids are */
    if (op == GGML_OP_GET_ROWS)
        return weight_unit_host_type(unit);
    const bool matrix = op == GGML_OP_MUL_MAT || op == GGML_OP_MUL_MAT_ID;
    const bool as_stored = product_is_of(device_ggml_products(unit->device), weight->type);
    ggml_backend_buffer_type_t *extra =
        repack && !as_stored ? device_ggml_extra_buffer_types(unit->device) : NULL;
    for (; extra && matrix && *extra; extra++) {
        if (supported(unit, op, weight, *extra))
            return *extra;
    }
    return supported(unit, op, weight, own) ? own : weight_unit_host_type(unit);
}

static struct weight_pool *pool_of(struct weight_unit *unit, ggml_backend_buffer_type_t type)
{
    for (uint32_t i = 0; i < unit->n_pools; i++) {
        if (unit->pools[i].type == type)
            return &unit->pools[i];
    }
    assert(unit->n_pools < WEIGHT_POOLS_MAX);
    struct weight_pool *pool = &unit->pools[unit->n_pools++];
    struct ggml_init_params params = {.mem_size = UNIT_TENSORS_MAX * ggml_tensor_overhead(),
                                      .no_alloc = true};
    *pool = (struct weight_pool){.type = type, .context = ggml_init(params)};
    return pool;
}

/* A matrix of `n` groups' rows is as many matrices. */
static struct ggml_tensor *unit_declare(struct weight_unit *unit, const struct gguf_tensor *source,
                                        int64_t n, enum ggml_op op, bool repack)
{
    const int64_t ne[] = {source->ne[0], source->ne[1] / n, source->ne[2] * n, source->ne[3]};
    const int n_dims = n > 1 ? 3 : (int)source->n_dims;
    struct ggml_init_params params = {.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *scratch = ggml_init(params);
    struct ggml_tensor *probe = ggml_new_tensor(scratch, (enum ggml_type)source->type, n_dims, ne);
    ggml_backend_buffer_type_t type = choose_type(unit, op, probe, repack);
    ggml_free(scratch);

    struct weight_pool *pool = pool_of(unit, type);
    struct ggml_tensor *tensor =
        ggml_new_tensor(pool->context, (enum ggml_type)source->type, n_dims, ne);
    ggml_set_name(tensor, source->name);
    unit->sources[unit->n_sources++] =
        (struct tensor_copy){.tensor = tensor,
                             .source = source,
                             .stored = model_stored(unit->model, source),
                             .pool = pool};
    return tensor;
}

static void declare_role(struct weight_unit *unit, enum tensor_role role, bool repack)
{
    const uint32_t layer = unit->layer < LIMIT_LAYERS ? unit->layer : 0;
    const struct gguf_tensor *source = model_tensor(unit->model, role, layer);
    const uint32_t n =
        role == TENSOR_OUT_GROUPS ? model_hyperparameters(unit->model)->summaries.out_groups : 1;
    if (source)
        unit->tensors[role] =
            unit_declare(unit, source, n, operation_of(role, source->n_dims), repack);
}

/* What makes logits of hidden states; the embedding again where the two are tied. */
static void declare_head(struct weight_unit *unit)
{
    const struct gguf_tensor *head = model_head(unit->model);
    if (head)
        unit->head = unit_declare(unit, head, 1, GGML_OP_MUL_MAT, unit->repack);
}

static void declare_all(struct weight_unit *unit)
{
    const enum tensor_place place = unit->layer == WEIGHT_UNIT_FIRST  ? PLACE_FIRST
                                    : unit->layer == WEIGHT_UNIT_LAST ? PLACE_LAST
                                    : unit->layer == WEIGHT_UNIT_ROPE ? PLACE_EVERYWHERE
                                                                      : PLACE_LAYER;
    for (int i = 0; i < TENSOR_ROLE_COUNT; i++) {
        const enum tensor_role role = (enum tensor_role)i;
        if (tensor_role_place(role) == place && role != TENSOR_OUTPUT)
            declare_role(unit, role, place == PLACE_LAYER && unit->repack);
    }
    if (place == PLACE_LAST)
        declare_head(unit);
}

/* ---- who uses what ---- */

static struct weight_unit *unit_find_locked(const struct device *device, const struct model *model,
                                            uint32_t layer, bool repack)
{
    struct weight_unit *unit = shown;
    while (unit && (unit->device != device || unit->model != model || unit->layer != layer ||
                    unit->repack != repack))
        unit = unit->next;
    return unit;
}

struct weight_unit *weight_unit_again(struct weight_unit *unit)
{
    pthread_mutex_lock(&lock);
    unit->n_users++;
    pthread_mutex_unlock(&lock);
    return unit;
}

struct weight_unit *weight_unit_take(struct device *device, const struct model *model,
                                     uint32_t layer, bool repack)
{
    model = model_origin(model);
    pthread_mutex_lock(&lock);
    struct weight_unit *unit = unit_find_locked(device, model, layer, repack);
    if (unit)
        unit->n_users++;
    pthread_mutex_unlock(&lock);
    if (unit)
        return unit;
    unit = mem_new(sizeof *unit);
    if (!unit)
        return NULL;
    *unit = (struct weight_unit){
        .device = device, .model = model, .layer = layer, .repack = repack, .n_users = 1};
    unit->sources = mem_new_array(UNIT_TENSORS_MAX, sizeof *unit->sources);
    if (!unit->sources) {
        mem_free(unit);
        return NULL;
    }
    declare_all(unit);
    for (uint32_t i = 0; i < unit->n_pools; i++)
        unit->pools[i].bytes = ggml_backend_alloc_ctx_tensors_from_buft_size(unit->pools[i].context,
                                                                             unit->pools[i].type);
    return unit;
}

void weight_unit_show(struct weight_unit *unit)
{
    pthread_mutex_lock(&lock);
    unit->is_loaded = true;
    if (!unit->is_shown &&
        !unit_find_locked(unit->device, unit->model, unit->layer, unit->repack)) {
        unit->is_shown = true;
        unit->next = shown;
        shown = unit;
    }
    pthread_mutex_unlock(&lock);
}

void weight_unit_drop(struct weight_unit *unit)
{
    if (!unit)
        return;
    pthread_mutex_lock(&lock);
    const bool is_last = --unit->n_users == 0;
    struct weight_unit **at = &shown;
    while (is_last && unit->is_shown && *at != unit)
        at = &(*at)->next;
    if (is_last && unit->is_shown)
        *at = unit->next;
    pthread_mutex_unlock(&lock);
    if (!is_last)
        return;
    for (uint32_t i = 0; i < unit->n_pools; i++) {
        ggml_backend_buffer_free(unit->pools[i].buffer);
        ggml_free(unit->pools[i].context);
    }
    if (unit->reserved_bytes)
        device_release(unit->device, unit->reserved_bytes);
    mem_free(unit->sources);
    mem_free(unit);
}

/* ---- memory ---- */

void weight_unit_bytes(const struct weight_unit *unit, uint64_t *device_bytes, uint64_t *host_bytes)
{
    *device_bytes = *host_bytes = 0;
    for (uint32_t i = 0; i < unit->n_pools; i++) {
        const struct weight_pool *pool = &unit->pools[i];
        const bool beside =
            !weights_on_host(unit->device) && pool->type == weight_unit_host_type(unit);
        *(beside ? host_bytes : device_bytes) += pool->bytes;
    }
}

bool weight_unit_is_in_place(const struct weight_unit *unit, const struct weight_pool *pool)
{
    uint64_t alignment = ggml_backend_buft_get_alignment(pool->type);
    if (pool->type != weight_unit_host_type(unit) || !gguf_file_is_mapped(model_file(unit->model)))
        return false;
    for (uint32_t i = 0; i < unit->n_sources; i++) {
        const struct tensor_copy *copy = &unit->sources[i];
        if (copy->pool == pool &&
            (copy->source->offset % alignment || copy->source->type != copy->stored->type))
            return false;
    }
    return true;
}

/* Places the pool's tensors where they are in the mapped file: nothing is read or copied before it
 * is used. */
static bool map_pool(struct weight_unit *unit, struct weight_pool *pool)
{
    const struct gguf_file *file = model_file(unit->model);
    ggml_backend_dev_t dev = ggml_backend_get_device(device_ggml_fallback(unit->device));
    uint8_t *bytes = (uint8_t *)(uintptr_t)gguf_file_bytes(
        file); /* ggml asks for a writable pointer; weights are only read */
    pool->buffer = ggml_backend_dev_buffer_from_host_ptr(dev, bytes, gguf_file_size(file), 0);
    for (uint32_t i = 0; pool->buffer && i < unit->n_sources; i++) {
        struct tensor_copy *source = &unit->sources[i];
        if (source->pool == pool) {
            ggml_backend_tensor_alloc(pool->buffer, source->tensor, bytes + source->source->offset);
            source->mapped = true;
        }
    }
    return pool->buffer;
}

enum error_code weight_unit_alloc(struct weight_unit *unit, struct error *err)
{
    for (uint32_t i = 0; i < unit->n_pools; i++) {
        struct weight_pool *pool = &unit->pools[i];
        if (!weight_unit_is_in_place(unit, pool) || !map_pool(unit, pool)) {
            pool->buffer = ggml_backend_alloc_ctx_tensors_from_buft(pool->context, pool->type);
            if (pool->buffer)
                weights_advise_large_pages(pool->buffer);
        }
        if (!pool->buffer)
            return error_set(err, ERROR_NO_MEMORY, "%s could not allocate the weights in %s memory",
                             device_info(unit->device)->id, ggml_backend_buft_name(pool->type));
        ggml_backend_buffer_set_usage(pool->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    return ERROR_NONE;
}
