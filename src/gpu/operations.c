#include "gpu/operations.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/timed_wait.h"
#include "gpu/device_ggml.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/operation_graphs.h"

#include <assert.h>
#include <ggml-alloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const enum ggml_type all_types[] = {
    GGML_TYPE_F32,  GGML_TYPE_F16,    GGML_TYPE_BF16,   GGML_TYPE_Q4_0,
    GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,   GGML_TYPE_Q5_1,   GGML_TYPE_Q8_0,
    GGML_TYPE_Q2_K, GGML_TYPE_Q3_K,   GGML_TYPE_Q4_K,   GGML_TYPE_Q5_K,
    GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4};
static const enum ggml_type few_types[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};

/* ---- one graph on one backend --------------------------------------------------------------- */

struct operation_result {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *tensor;
    float *values;
    size_t n;
};

static void operation_result_clear(struct operation_result *result)
{
    mem_free(result->values);
    ggml_backend_buffer_free(result->buffer);
    ggml_free(result->ctx);
    *result = (struct operation_result){0};
}

/* The same values on every device: by the tensor's place in the graph. Numbers of rows, experts and
 * positions are below four, which all of them have. */
static bool operation_fill(struct ggml_tensor *tensor, uint64_t seed)
{
    const size_t n = (size_t)ggml_nelements(tensor);
    float *values = mem_new_array(n, sizeof *values);
    void *stored = mem_new(ggml_nbytes(tensor));
    if (values && stored) {
        for (size_t i = 0; i < n; i++)
            values[i] = (float)(random_unit_at(seed, i) * 2 - 1);
        if (tensor->type == GGML_TYPE_I32) {
            for (size_t i = 0; i < n; i++)
                ((int32_t *)stored)[i] = (int32_t)(i % 4);
        } else {
            ggml_quantize_chunk(tensor->type, values, stored, 0, (int64_t)n / tensor->ne[0],
                                tensor->ne[0], NULL);
        }
        ggml_backend_tensor_set(tensor, stored, 0, ggml_nbytes(tensor));
    }
    const bool ok = values && stored;
    mem_free(values);
    mem_free(stored);
    return ok;
}

static bool operation_fill_all(struct ggml_context *ctx)
{
    uint64_t seed = 1;
    for (struct ggml_tensor *at = ggml_get_first_tensor(ctx); at;
         at = ggml_get_next_tensor(ctx, at)) {
        if (at->op == GGML_OP_NONE && !at->view_src && !operation_fill(at, seed++))
            return false;
    }
    return true;
}

static bool operation_read(struct operation_result *result)
{
    result->n = (size_t)ggml_nelements(result->tensor);
    result->values = mem_new_array(result->n, sizeof *result->values);
    if (!result->values)
        return false;
    assert(ggml_nbytes(result->tensor) == result->n * sizeof *result->values);
    ggml_backend_tensor_get(result->tensor, result->values, 0, ggml_nbytes(result->tensor));
    if (result->tensor->type == GGML_TYPE_I32) {
        for (size_t i = 0; i < result->n; i++) {
            int32_t whole;
            memcpy(&whole, &result->values[i], sizeof whole);
            result->values[i] = (float)whole;
        }
    }
    return true;
}

static bool operation_is_supported(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        if (!ggml_backend_dev_supports_op(ggml_backend_get_device(backend),
                                          ggml_graph_node(graph, i)))
            return false;
    }
    return true;
}

static enum operation_verdict operation_compute(ggml_backend_t backend,
                                                const struct operation_graph *operation,
                                                enum ggml_type type,
                                                struct operation_result *result)
{
    enum { TENSORS_MAX = 32, NODES_MAX = 32 };
    *result =
        (struct operation_result){.ctx = ggml_init((struct ggml_init_params){
                                      .mem_size = TENSORS_MAX * ggml_tensor_overhead() +
                                                  ggml_graph_overhead_custom(NODES_MAX, false),
                                      .no_alloc = true})};
    if (!result->ctx)
        return OPERATION_FAILED;
    result->tensor = operation->build(result->ctx, type);
    struct ggml_cgraph *graph = ggml_new_graph_custom(result->ctx, NODES_MAX, false);
    ggml_build_forward_expand(graph, result->tensor);
    if (!operation_is_supported(backend, graph))
        return OPERATION_ELSEWHERE;
    result->buffer = ggml_backend_alloc_ctx_tensors(result->ctx, backend);
    if (!result->buffer || !operation_fill_all(result->ctx) ||
        ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS ||
        !operation_read(result))
        return OPERATION_FAILED;
    return OPERATION_SAME;
}

/* ---- comparing ------------------------------------------------------------------------------ */

/* Infinity where a value is none. */
static double operation_error(const struct operation_result *result,
                              const struct operation_result *reference)
{
    double error = 0, size = 0;
    assert(result->n == reference->n);
    for (size_t i = 0; i < result->n; i++) {
        const double difference = (double)result->values[i] - (double)reference->values[i];
        error += difference * difference;
        size += (double)reference->values[i] * (double)reference->values[i];
    }
    if (!isfinite(error) || !isfinite(size))
        return INFINITY;
    return error > 0 ? error / size : 0;
}

static void operation_compare(struct device *device, const struct operation_graph *operation,
                              enum ggml_type type, struct operation_check *check)
{
    struct operation_result reference, result = {0};
    check->verdict = operation_compute(device_ggml_fallback(device), operation, type, &reference);
    if (check->verdict == OPERATION_SAME)
        check->verdict = operation_compute(device_ggml_backend(device), operation, type, &result);
    if (check->verdict == OPERATION_SAME) {
        check->error = operation_error(&result, &reference);
        if (!(check->error <= operation->error_max))
            check->verdict = OPERATION_WRONG;
    }
    operation_result_clear(&result);
    operation_result_clear(&reference);
}

/* ---- on the device's thread ----------------------------------------------------------------- */

/* On the heap: a device that hangs keeps it. */
struct operation_run {
    struct device_job job;
    struct device *device;
    const struct operation_graph *operation;
    enum ggml_type type;
    struct operation_check check;
    pthread_mutex_t lock;
    pthread_cond_t finished;
    bool done;
};

static void operation_run_job(struct device_job *job)
{
    struct operation_run *self = (struct operation_run *)job;
    operation_compare(self->device, self->operation, self->type, &self->check);
    pthread_mutex_lock(&self->lock);
    self->done = true;
    pthread_cond_signal(&self->finished);
    pthread_mutex_unlock(&self->lock);
}

/* False: it did not answer. */
static bool operation_run_on(struct device *device, const struct operation_graph *operation,
                             enum ggml_type type, uint32_t limit_ms, struct operation_check *check)
{
    struct operation_run *self = mem_new(sizeof *self);
    check->verdict = OPERATION_FAILED;
    if (!self)
        return true;
    *self = (struct operation_run){.job = {.run = operation_run_job},
                                   .device = device,
                                   .operation = operation,
                                   .type = type,
                                   .check = *check};
    pthread_mutex_init(&self->lock, NULL);
    timed_wait_init(&self->finished);
    const uint64_t until_ns = clock_now_ns() + (uint64_t)limit_ms * 1000000;
    device_submit(device, &self->job);
    pthread_mutex_lock(&self->lock);
    while (!self->done && timed_wait(&self->finished, &self->lock, until_ns)) {
    }
    const bool done = self->done;
    pthread_mutex_unlock(&self->lock);
    if (!done) {
        device_give_up(device);
        return false;
    }
    *check = self->check;
    pthread_cond_destroy(&self->finished);
    pthread_mutex_destroy(&self->lock);
    mem_free(self);
    return true;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* Its name, as the graph says it. */
static void operation_name(const struct operation_graph *operation, enum ggml_type type,
                           struct operation_check *out)
{
    *out = (struct operation_check){0};
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = 32 * ggml_tensor_overhead(), .no_alloc = true});
    if (ctx)
        snprintf(out->name, sizeof out->name, "%s", ggml_op_desc(operation->build(ctx, type)));
    ggml_free(ctx);
    if (operation->of_types)
        snprintf(out->type, sizeof out->type, "%s", ggml_type_name(type));
}

uint32_t operations_check(struct device *device, uint32_t limit_ms,
                          void (*progress)(void *user, const struct operation_check *next),
                          void *user, struct operation_check out[OPERATIONS_MAX])
{
    const struct device_impl *impl = device_implementation(device);
    if (impl != &device_impl_ggml)
        return 0;
    const bool software = device_ggml_is_software(device_ggml_dev(device));
    const enum ggml_type *types = software ? few_types : all_types;
    const size_t n_types =
        software ? sizeof few_types / sizeof *few_types : sizeof all_types / sizeof *all_types;
    uint32_t n = 0;
    for (uint32_t i = 0; i < operation_graph_count(); i++) {
        const struct operation_graph *operation = operation_graph_at(i);
        if (software && operation->is_slow_in_software)
            continue;
        for (size_t t = 0; t < (operation->of_types ? n_types : 1) && n < OPERATIONS_MAX; t++) {
            operation_name(operation, types[t], &out[n]);
            if (progress)
                progress(user, &out[n]);
            if (!operation_run_on(device, operation, types[t], limit_ms, &out[n++]))
                return n;
        }
    }
    return n;
}

const char *operation_verdict_name(enum operation_verdict verdict)
{
    static const char *const names[] = {"same", "elsewhere", "wrong", "failed"};
    assert(verdict <= OPERATION_FAILED);
    return names[verdict];
}
