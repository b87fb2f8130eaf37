/* Products and launches of ggml devices, timed. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "gpu/calibrate.h"
#include "gpu/calibration_statistics.h"
#include "gpu/device_ggml.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/product_ggml.h"

#include <ggml-alloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    WIDTH = 4096,  /* elements of a row, rows of a matrix of the decode set */
    COLUMNS = 512, /* of the prefill product */
    MATRICES_MAX = 64,
    BLOCK_ROWS = 32, /* rows of weights that are made and then repeated: quantising costs more than
                        measuring */
    PREFILL_ROWS_MIN = 64,
    PREFILL_TRIES = 4,
    SOFTWARE_MATRICES =
        2, /* of a software GPU's decode set: it is nowhere near the memory's speed */
    PREFILL_TARGET_NS = 40 * 1000 * 1000,
    SHORT_BUDGET_NS = 50 * 1000 * 1000,
};

static const uint64_t mib = 1024 * 1024;

/* ---- which types ----------------------------------------------------------------------- */

static const enum ggml_type all_types[] = {GGML_TYPE_F16,  GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
                                           GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_MXFP4};
static const enum ggml_type few_types[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};

static bool is_ggml(const struct device *device)
{
    const struct device_impl *impl = device_implementation(device);
    return impl == &device_impl_ggml || impl->ggml;
}

static const enum ggml_type *types_of(struct device *device, uint32_t *count)
{
    bool software = device_ggml_is_software(device_ggml_dev(device));
    *count = software ? sizeof few_types / sizeof *few_types : sizeof all_types / sizeof *all_types;
    return software ? few_types : all_types;
}

uint32_t calibrate_type_count(struct device *device)
{
    uint32_t count = 0;
    if (is_ggml(device))
        types_of(device, &count);
    return count;
}

const char *calibrate_type_name(struct device *device, uint32_t index)
{
    uint32_t count;
    return ggml_type_name(types_of(device, &count)[index]);
}

/* ---- a product of matrices with a few columns ------------------------------------------ */

struct timed_product {
    ggml_backend_t backend;
    struct device *device;
    struct device_work work; /* of one run */
    struct ggml_context *weights_ctx, *ctx;
    ggml_backend_buffer_t weights_buffer, buffer;
    struct ggml_cgraph *graph;
};

static void product_close(struct timed_product *product)
{
    ggml_backend_buffer_free(product->buffer);
    ggml_backend_buffer_free(product->weights_buffer);
    ggml_free(product->ctx);
    ggml_free(product->weights_ctx);
    *product = (struct timed_product){0};
}

/* Can the device multiply with `weight` when that lies in a buffer of `type`? */
static bool calibrate_ggml_supports(struct device *device, struct ggml_tensor *weight,
                                    struct ggml_tensor *result, ggml_backend_buffer_type_t type)
{
    weight->buffer = ggml_backend_buft_alloc_buffer(type, 0);
    bool yes = ggml_backend_dev_supports_op(device_ggml_dev(device), result);
    ggml_backend_buffer_free(weight->buffer);
    weight->buffer = NULL;
    return yes;
}

/* What multiplies with matrices of this type in ggml's place; NULL: ggml does. */
static const struct product_kernel *kernel_of(struct device *device, enum ggml_type type)
{
    const struct product_kernel *kernel = device_ggml_products(device);
    return product_is_of(kernel, type) ? kernel : NULL;
}

/* Where the engine would put this matrix (engine/weight_unit.c); NULL when it cannot be used on the
 * device. */
static ggml_backend_buffer_type_t weights_type(struct device *device, enum ggml_type type)
{
    if (device_lacks(device, ggml_type_name(type)))
        return NULL;
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true});
    if (!ctx)
        return NULL;
    struct ggml_tensor *weight = ggml_new_tensor_2d(ctx, type, WIDTH, WIDTH); /* [width, rows] */
    struct ggml_tensor *rows =
        ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, COLUMNS);   /* [width, columns] */
    struct ggml_tensor *result = ggml_mul_mat(ctx, weight, rows); /* [rows, columns] */
    ggml_backend_buffer_type_t found = NULL;
    ggml_backend_buffer_type_t *extra =
        kernel_of(device, type) ? NULL : device_ggml_extra_buffer_types(device);
    for (; extra && *extra && !found; extra++) {
        if (calibrate_ggml_supports(device, weight, result, *extra))
            found = *extra;
    }
    ggml_backend_buffer_type_t own =
        ggml_backend_get_default_buffer_type(device_ggml_backend(device));
    if (!found && calibrate_ggml_supports(device, weight, result, own))
        found = own;
    ggml_free(ctx);
    return found;
}

/* Weights as a model has them, up to their repeating: small values, no denormal ones. */
static bool fill_weights(struct timed_product *product, const struct measure_budget *sampler)
{
    struct ggml_tensor *first = ggml_get_first_tensor(product->weights_ctx);
    size_t row_bytes = ggml_row_size(first->type, WIDTH), block_bytes = row_bytes * BLOCK_ROWS;
    float *values = mem_new_array(WIDTH * BLOCK_ROWS, sizeof *values);
    char *matrix = mem_new(ggml_nbytes(first));
    bool ok = values && matrix;
    if (ok) {
        for (uint32_t i = 0; i < WIDTH * BLOCK_ROWS; i++)
            values[i] = (float)(random_unit_at(7, i) - 0.5) * 0.04f;
        ggml_quantize_chunk(first->type, values, matrix, 0, BLOCK_ROWS, WIDTH, NULL);
        for (size_t at = block_bytes; at < ggml_nbytes(first); at += block_bytes)
            memcpy(matrix + at, matrix, block_bytes);
    }
    for (struct ggml_tensor *w = first; ok && w;
         w = ggml_get_next_tensor(product->weights_ctx, w)) {
        ggml_backend_tensor_set(w, matrix, 0, ggml_nbytes(w));
        ok = !measure_is_over(sampler); /* repacking them takes a while */
    }
    mem_free(values);
    mem_free(matrix);
    return ok;
}

static bool fill_input(struct ggml_tensor *input)
{
    float *values = mem_new(ggml_nbytes(input));
    if (!values)
        return false;
    for (int64_t i = 0; i < ggml_nelements(input); i++)
        values[i] = (float)random_unit_at(8, (uint64_t)i) - 0.5f;
    ggml_backend_tensor_set(input, values, 0, ggml_nbytes(input));
    mem_free(values);
    return true;
}

/* `n` matrices [WIDTH, rows], each times an input [WIDTH, columns], in one graph. */
static bool product_open(struct device *device, enum ggml_type type, uint32_t n, uint32_t rows,
                         uint32_t columns, const struct measure_budget *sampler,
                         struct timed_product *product)
{
    *product = (struct timed_product){.backend = device_ggml_backend(device),
                                      .device = device,
                                      .work = {.bytes_read = n * ggml_row_size(type, WIDTH) * rows,
                                               .flops = UINT64_C(2) * WIDTH * rows * n * columns,
                                               .n_rows = columns}};
    ggml_backend_buffer_type_t where = weights_type(device, type);
    size_t overhead = ggml_tensor_overhead();
    product->weights_ctx =
        ggml_init((struct ggml_init_params){.mem_size = (n + 1) * overhead, .no_alloc = true});
    product->ctx = ggml_init((struct ggml_init_params){
        .mem_size = (n + 3) * overhead + ggml_graph_overhead(), .no_alloc = true});
    bool ok = where && product->weights_ctx && product->ctx;
    struct ggml_tensor *input = NULL;
    if (ok) {
        input =
            ggml_new_tensor_2d(product->ctx, GGML_TYPE_F32, WIDTH, columns); /* [width, columns] */
        product->graph = ggml_new_graph(product->ctx);
        const struct product_kernel *ours = kernel_of(device, type);
        struct ggml_tensor *rounded =
            ours ? product_rounded(product->ctx, ours, type, input) : NULL;
        for (uint32_t i = 0; i < n; i++) {
            struct ggml_tensor *weight =
                ggml_new_tensor_2d(product->weights_ctx, type, WIDTH, rows);
            struct ggml_tensor *result = /* [rows, columns] */
                ours ? product_mul_mat(product->ctx, ours, weight, rounded)
                     : ggml_mul_mat(product->ctx, weight, input);
            if (type == GGML_TYPE_F16 && !ours)
                ggml_prec_set_acc(result, GGML_PREC_F32); /* as the engine does */
            ggml_build_forward_expand(product->graph, result);
        }
        product->weights_buffer =
            ggml_backend_alloc_ctx_tensors_from_buft(product->weights_ctx, where);
        product->buffer = ggml_backend_alloc_ctx_tensors(product->ctx, product->backend);
        ok = product->weights_buffer && product->buffer;
    }
    if (ok) {
        ggml_backend_buffer_set_usage(product->weights_buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        ok = fill_weights(product, sampler) && fill_input(input);
    }
    if (!ok)
        product_close(product);
    return ok;
}

/* A simulated device takes its time as for a stage's batch. */
static bool product_run(void *self)
{
    const struct timed_product *product = self;
    struct device_work work = product->work;
    const uint64_t start_ns = clock_now_ns();
    if (ggml_backend_graph_compute(product->backend, product->graph) != GGML_STATUS_SUCCESS)
        return false;
    work.elapsed_ns = clock_now_ns() - start_ns;
    return !product->device || !device_wants_work(product->device) ||
           !device_worked(product->device, &work, NULL);
}

/* ---- decode ---------------------------------------------------------------------------- */

/* Half the set, which is still more than a card caches, where there is little time: filling and
 * repacking take most of a short calibration. */
static uint64_t set_bytes(struct device *device, const struct measure_budget *sampler)
{
    uint64_t bytes = (sampler->budget_ns < SHORT_BUDGET_NS ? 128 : 256) * mib;
    if (device_info(device)->kind == DEVICE_CPU) {
#ifdef _SC_LEVEL3_CACHE_SIZE
        long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
        if (cache > 0)
            bytes = (uint64_t)cache * 3;
#endif
        bytes = bytes < 64 * mib ? 64 * mib : bytes > 512 * mib ? 512 * mib : bytes;
    }
    uint64_t share = device_memory(device).free_bytes / 4;
    return bytes < share ? bytes : share;
}

static void measure_decode(struct device *device, enum ggml_type type,
                           const struct measure_budget *sampler, struct device_measurement *out)
{
    uint64_t matrix_bytes = ggml_row_size(type, WIDTH) * WIDTH;
    uint64_t n = (set_bytes(device, sampler) + matrix_bytes - 1) / matrix_bytes;
    n = n < 2 ? 2 : n > MATRICES_MAX ? MATRICES_MAX : n;
    if (device_ggml_is_software(device_ggml_dev(device)))
        n = SOFTWARE_MATRICES;
    struct timed_product product;
    if (!product_open(device, type, (uint32_t)n, WIDTH, 1, sampler, &product))
        return;
    sampler_run(sampler, product_run, &product, (double)(n * matrix_bytes), out);
    product_close(&product);
}

/* ---- prefill --------------------------------------------------------------------------- */

/* The time of the second run (the first one compiles); negative when it fails. */
static double time_second_run(struct timed_product *product)
{
    if (!product_run(product))
        return -1;
    uint64_t start_ns = clock_now_ns();
    return product_run(product) ? (double)(clock_now_ns() - start_ns) : -1;
}

static void measure_prefill(struct device *device, enum ggml_type type,
                            const struct measure_budget *sampler, struct device_measurement *out)
{
    uint32_t rows = PREFILL_ROWS_MIN;
    struct timed_product product;
    if (!product_open(device, type, 1, rows, COLUMNS, sampler, &product))
        return;
    double took_ns = measure_is_over(sampler) ? -1 : time_second_run(&product);
    /* more than once, for few rows are slow for their number where there are many cores */
    for (int i = 0; i < PREFILL_TRIES && took_ns > 0 && !measure_is_over(sampler); i++) {
        uint32_t grown = calibration_grow(rows, took_ns, PREFILL_TARGET_NS, WIDTH);
        if (grown == rows)
            break;
        rows = grown;
        product_close(&product);
        if (!product_open(device, type, 1, rows, COLUMNS, sampler, &product))
            return;
        took_ns = time_second_run(&product);
    }
    if (took_ns > 0)
        sampler_run(sampler, product_run, &product, 2.0 * (double)WIDTH * rows * (double)COLUMNS,
                    out);
    product_close(&product);
}

bool calibrate_type(struct device *device, uint32_t index, const struct measure_budget *sampler,
                    struct calibration_type *out)
{
    uint32_t count;
    enum ggml_type type = types_of(device, &count)[index];
    *out = (struct calibration_type){0};
    snprintf(out->name, sizeof out->name, "%s", ggml_type_name(type));
    if (!weights_type(device, type))
        return true;
    measure_decode(device, type, sampler, &out->decode_bytes_per_s);
    if (out->decode_bytes_per_s.n_runs && !measure_is_over(sampler))
        measure_prefill(device, type, sampler, &out->prefill_flops);
    return out->decode_bytes_per_s.n_runs > 0;
}

/* ---- launch ---------------------------------------------------------------------------- */

bool calibrate_launch(struct device *device, const struct measure_budget *sampler,
                      struct device_measurement *out)
{
    *out = (struct device_measurement){0};
    if (!is_ggml(device))
        return false;
    struct timed_product product = {.backend = device_ggml_backend(device), .device = device};
    product.ctx = ggml_init((struct ggml_init_params){
        .mem_size = 4 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    bool ok = product.ctx;
    if (ok) {
        struct ggml_tensor *input = ggml_new_tensor_1d(product.ctx, GGML_TYPE_F32, 32); /* [32] */
        product.graph = ggml_new_graph(product.ctx);
        ggml_build_forward_expand(product.graph, ggml_add(product.ctx, input, input)); /* [32] */
        product.buffer = ggml_backend_alloc_ctx_tensors(product.ctx, product.backend);
        ok = product.buffer && fill_input(input) &&
             sampler_run(sampler, product_run, &product, 0, out);
    }
    product_close(&product);
    return ok;
}
