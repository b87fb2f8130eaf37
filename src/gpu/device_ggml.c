/* Devices that ggml drives: every backend of backends.c. */
#include "gpu/device_ggml.h"

#include "base/mem.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/host.h"
#include "gpu/products.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { ACCELERATORS_MAX = 4 };

struct ggml_device {
    ggml_backend_dev_t dev;
    ggml_backend_t backend;
    ggml_backend_t fallback;                       /* == backend for the CPU */
    ggml_backend_t accelerators[ACCELERATORS_MAX]; /* BLAS and the like; they ride with the CPU */
    uint32_t n_accelerators;
    uint32_t n_threads, n_cores; /* of the CPU device; 0 elsewhere */
    bool is_cpu;
    bool is_software; /* a GPU's driver that computes on the CPU */
};

struct ggml_memory {
    struct ggml_context *ctx; /* holds `tensor` */
    struct ggml_tensor *tensor;
    ggml_backend_buffer_t buffer;
};

/* ---- the family: one row of the table of backends -------------------------------------- */

static bool is_device(ggml_backend_dev_t dev)
{
    enum ggml_backend_dev_type type = ggml_backend_dev_type(dev);
    return type != GGML_BACKEND_DEVICE_TYPE_ACCEL && type != GGML_BACKEND_DEVICE_TYPE_META;
}

static uint32_t device_ggml_list(const void *family)
{
    ggml_backend_reg_t reg = backend_registry(family);
    uint32_t count = 0;
    for (size_t i = 0; reg && i < ggml_backend_reg_dev_count(reg); i++)
        count += is_device(ggml_backend_reg_dev_get(reg, i));
    return count;
}

static ggml_backend_dev_t dev_at(const struct backend *backend, uint32_t index)
{
    ggml_backend_reg_t reg = backend_registry(backend);
    for (size_t i = 0; reg && i < ggml_backend_reg_dev_count(reg); i++) {
        ggml_backend_dev_t dev = ggml_backend_reg_dev_get(reg, i);
        if (is_device(dev) && index-- == 0)
            return dev;
    }
    return NULL;
}

static void device_ggml_get(const void *family, uint32_t index, struct device_info *info)
{
    ggml_backend_dev_t dev = dev_at(family, index);
    assert(dev);
    device_ggml_describe(family, dev, index, info);
}

/* ---- threads --------------------------------------------------------------------------- */

static void set_threads(ggml_backend_t backend, uint32_t n_threads)
{
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    void *symbol = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    if (symbol)
        ((ggml_backend_set_n_threads_t)(uintptr_t)symbol)(backend, (int)n_threads);
}

static void set_all_threads(const struct ggml_device *self, uint32_t n_threads)
{
    set_threads(self->fallback, n_threads);
    for (uint32_t i = 0; i < self->n_accelerators; i++)
        set_threads(self->accelerators[i], n_threads);
}

/* ---- initialise, shut down ------------------------------------------------------------- */

static void open_accelerators(struct ggml_device *self)
{
    for (size_t i = 0; i < ggml_backend_dev_count() && self->n_accelerators < ACCELERATORS_MAX;
         i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(dev) != GGML_BACKEND_DEVICE_TYPE_ACCEL)
            continue;
        ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
        if (backend)
            self->accelerators[self->n_accelerators++] = backend;
    }
}

static void device_ggml_shutdown(void *device)
{
    struct ggml_device *self = device;
    for (uint32_t i = 0; i < self->n_accelerators; i++)
        ggml_backend_free(self->accelerators[i]);
    if (self->fallback && self->fallback != self->backend)
        ggml_backend_free(self->fallback);
    if (self->backend)
        ggml_backend_free(self->backend);
    mem_free(self);
}

static enum error_code open_backends(struct ggml_device *self, struct error *err)
{
    self->backend = ggml_backend_dev_init(self->dev, NULL);
    if (!self->backend)
        return error_set(err, ERROR_DEVICE, "cannot start its driver");
    if (self->is_cpu) {
        self->fallback = self->backend;
        open_accelerators(self);
        return ERROR_NONE;
    }
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    self->fallback = cpu ? ggml_backend_dev_init(cpu, NULL) : NULL;
    return self->fallback
               ? ERROR_NONE
               : error_set(err, ERROR_DEVICE, "there is no CPU backend for what it cannot compute");
}

static enum error_code device_ggml_initialize(const void *family, uint32_t index,
                                              const struct gpu_options *options, void **out,
                                              struct error *err)
{
    struct ggml_device *self = mem_new(sizeof *self);
    if (!self)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    self->dev = dev_at(family, index);
    assert(self->dev);
    self->is_cpu = ggml_backend_dev_type(self->dev) == GGML_BACKEND_DEVICE_TYPE_CPU;
    self->is_software = !self->is_cpu && device_ggml_is_software(self->dev);
    enum error_code code = open_backends(self, err);
    if (code) {
        device_ggml_shutdown(self);
        return code;
    }
    struct host_cores cores = {options->n_cpu_threads, options->n_cpu_threads};
    if (!options->n_cpu_threads)
        cores = host_cores_read();
    set_all_threads(self, cores.n_cores);
    self->n_threads = self->is_cpu ? cores.n_threads : 0;
    self->n_cores = self->is_cpu ? cores.n_cores : 0;
    *out = self;
    return ERROR_NONE;
}

/* ---- memory ---------------------------------------------------------------------------- */

static struct device_memory device_ggml_memory(const void *device)
{
    const struct ggml_device *self = device;
    if (self->is_cpu)
        return host_memory_read();
    size_t free_bytes = 0, total_bytes = 0;
    ggml_backend_dev_memory(self->dev, &free_bytes, &total_bytes);
    return (struct device_memory){.free_bytes = free_bytes, .total_bytes = total_bytes};
}

static enum error_code device_ggml_out_of_memory(const struct ggml_device *self, uint64_t size,
                                                 struct error *err)
{
    const double mib = 1024.0 * 1024.0;
    return error_set(err, ERROR_NO_MEMORY, "out of memory (needs %.1f MiB, %.1f free)",
                     (double)size / mib, (double)device_ggml_memory(self).free_bytes / mib);
}

static void device_ggml_deallocate(void *device, void *what)
{
    (void)device;
    struct ggml_memory *memory = what;
    if (memory->buffer)
        ggml_backend_buffer_free(memory->buffer);
    if (memory->ctx)
        ggml_free(memory->ctx);
    mem_free(memory);
}

static enum error_code device_ggml_allocate(void *device, uint64_t size, void **out,
                                            struct error *err)
{
    struct ggml_device *self = device;
    /* The kernel promises host memory that it does not have, and kills who uses it. */
    if (size > INT64_MAX || (self->is_cpu && size > device_ggml_memory(self).free_bytes))
        return device_ggml_out_of_memory(self, size, err);
    struct ggml_memory *memory = mem_new(sizeof *memory);
    if (!memory)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(self->backend);
    memory->ctx =
        ggml_init((struct ggml_init_params){.mem_size = ggml_tensor_overhead(), .no_alloc = true});
    if (memory->ctx) {
        memory->tensor = ggml_new_tensor_1d(memory->ctx, GGML_TYPE_I8, (int64_t)size);
        memory->buffer = ggml_backend_buft_alloc_buffer(
            type, ggml_backend_buft_get_alloc_size(type, memory->tensor));
    }
    if (!memory->buffer) {
        device_ggml_deallocate(self, memory);
        return device_ggml_out_of_memory(self, size, err);
    }
    if (ggml_backend_tensor_alloc(memory->buffer, memory->tensor,
                                  ggml_backend_buffer_get_base(memory->buffer)) !=
        GGML_STATUS_SUCCESS) {
        device_ggml_deallocate(self, memory);
        return error_set(err, ERROR_DEVICE, "it refuses a tensor in its memory");
    }
    *out = memory;
    return ERROR_NONE;
}

/* ---- transfers ------------------------------------------------------------------------- */

static enum error_code device_ggml_copy_to(void *device, void *to, uint64_t offset,
                                           const void *from, uint64_t size, struct error *err)
{
    (void)device, (void)err;
    ggml_backend_tensor_set(((struct ggml_memory *)to)->tensor, from, offset, size);
    return ERROR_NONE;
}

static enum error_code device_ggml_copy_from(void *device, void *from, uint64_t offset, void *to,
                                             uint64_t size, struct error *err)
{
    (void)err;
    const struct ggml_device *self = device;
    struct ggml_tensor *tensor = ((struct ggml_memory *)from)->tensor;
    if (!self->is_software || !device_ggml_read_pages(self->dev, tensor, offset, to, size))
        ggml_backend_tensor_get(tensor, to, offset, size);
    return ERROR_NONE;
}

static bool can_copy_directly(const struct ggml_memory *from, const struct ggml_memory *to)
{
    if (ggml_backend_buffer_is_host(from->buffer) || ggml_backend_buffer_is_host(to->buffer))
        return true;
    return ggml_backend_dev_backend_reg(
               ggml_backend_buft_get_device(ggml_backend_buffer_get_type(from->buffer))) ==
           ggml_backend_dev_backend_reg(
               ggml_backend_buft_get_device(ggml_backend_buffer_get_type(to->buffer)));
}

static enum copy_path impl_path_between(const void *from, const void *to)
{
    bool host = ggml_backend_buffer_is_host(((const struct ggml_memory *)from)->buffer) ||
                ggml_backend_buffer_is_host(((const struct ggml_memory *)to)->buffer);
    return host ? COPY_HOST_VISIBLE : COPY_SAME_BACKEND;
}

/* A window of `size` bytes at `offset`, as a tensor of its own [size]. */
static struct ggml_tensor *device_ggml_window(struct ggml_context *ctx,
                                              const struct ggml_memory *memory, uint64_t offset,
                                              uint64_t size)
{
    struct ggml_tensor *view = ggml_view_1d(ctx, memory->tensor, (int64_t)size, offset);
    return ggml_backend_view_init(view) == GGML_STATUS_SUCCESS ? view : NULL;
}

static enum error_code device_ggml_copy_between(void *device, void *from, uint64_t offset_from,
                                                void *other, void *to, uint64_t offset_to,
                                                uint64_t size, struct error *err)
{
    (void)other;
    if (!can_copy_directly(from, to))
        return error_set(err, ERROR_UNSUPPORTED, "no direct path");
    const struct ggml_memory *into = to;
    if (ggml_backend_buffer_is_host(into->buffer))
        return device_ggml_copy_from(device, from, offset_from,
                                     (char *)into->tensor->data + offset_to, size, err);
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    if (!ctx)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    struct ggml_tensor *source = device_ggml_window(ctx, from, offset_from, size);
    struct ggml_tensor *target = device_ggml_window(ctx, to, offset_to, size);
    enum error_code code = ERROR_NONE;
    if (source && target)
        ggml_backend_tensor_copy(source, target);
    else
        code = error_set(err, ERROR_DEVICE, "it refuses a view of its memory");
    ggml_free(ctx);
    return code;
}

static enum error_code device_ggml_synchronize(void *device, struct error *err)
{
    (void)err;
    ggml_backend_synchronize(((struct ggml_device *)device)->backend);
    return ERROR_NONE;
}

/* ---- the computation that verification asks for ---------------------------------------- */

/* A product of two [n,n] matrices in a graph of its own. */
struct matmul {
    struct ggml_tensor *left;  /* b transposed; ggml multiplies rows with rows */
    struct ggml_tensor *right; /* a */
    struct ggml_tensor *out;   /* [column, row] */
};

static struct matmul build_matmul(struct ggml_context *ctx, uint32_t n)
{
    struct matmul product;
    product.left = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, n);  /* [k, column] */
    product.right = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, n); /* [k, row] */
    product.out = ggml_mul_mat(ctx, product.left, product.right); /* [column, row] */
    return product;
}

/* The same of products of elements and sums of rows: on two busy cores, software Vulkan took
 * 12 to 17 s to compile the shader that mul_mat needs, 0.5 s for these. */
static struct matmul build_sums(struct ggml_context *ctx, uint32_t n)
{
    struct matmul product;
    product.left = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n, n,
                                      n); /* [k, column, row], the same for each row */
    product.right = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n, 1, n); /* [k, 1, row] */
    product.out =
        ggml_sum_rows(ctx, ggml_mul(ctx, product.left, product.right)); /* [1, column, row] */
    return product;
}

static bool device_ggml_supports(ggml_backend_t backend, const struct ggml_tensor *op)
{
    if (!op || op->op == GGML_OP_NONE)
        return true;
    return ggml_backend_supports_op(backend, op) && device_ggml_supports(backend, op->src[0]) &&
           device_ggml_supports(backend, op->src[1]);
}

static enum error_code run_multiply(struct ggml_device *self, struct ggml_context *ctx, uint32_t n,
                                    const float *a, const float *b_transposed, float *out,
                                    struct error *err)
{
    struct matmul product = self->is_software ? build_sums(ctx, n) : build_matmul(ctx, n);
    if (!device_ggml_supports(self->backend, product.out))
        return error_set(err, ERROR_UNSUPPORTED, "f32 matrix products are not supported");
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, product.out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, self->backend);
    if (!buffer)
        return device_ggml_out_of_memory(self, ggml_nbytes(product.left) * 3, err);
    const size_t matrix_bytes = (size_t)n * n * sizeof(float);
    for (size_t at = 0; at < ggml_nbytes(product.left); at += matrix_bytes)
        ggml_backend_tensor_set(product.left, b_transposed, at, matrix_bytes);
    ggml_backend_tensor_set(product.right, a, 0, matrix_bytes);
    enum ggml_status status = ggml_backend_graph_compute(self->backend, graph);
    if (status == GGML_STATUS_SUCCESS)
        ggml_backend_tensor_get(product.out, out, 0, matrix_bytes);
    ggml_backend_buffer_free(buffer);
    return status == GGML_STATUS_SUCCESS
               ? ERROR_NONE
               : error_set(err, ERROR_DEVICE, "%s", ggml_status_to_string(status));
}

static enum error_code device_ggml_multiply(void *device, uint32_t n, const float *a,
                                            const float *b, float *out, struct error *err)
{
    float *transposed = mem_new_array((size_t)n * n, sizeof *transposed);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = 4 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    enum error_code code = ERROR_NONE;
    if (!transposed || !ctx)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; !code && i < n * n; i++)
        transposed[i] = b[(i % n) * n + i / n];
    if (!code)
        code = run_multiply(device, ctx, n, a, transposed, out, err);
    if (ctx)
        ggml_free(ctx);
    mem_free(transposed);
    return code;
}

const struct device_impl device_impl_ggml = {
    .name = "ggml",
    .list = device_ggml_list,
    .get = device_ggml_get,
    .initialize = device_ggml_initialize,
    .shutdown = device_ggml_shutdown,
    .allocate = device_ggml_allocate,
    .deallocate = device_ggml_deallocate,
    .copy_to = device_ggml_copy_to,
    .copy_from = device_ggml_copy_from,
    .copy_between = device_ggml_copy_between,
    .path_between = impl_path_between,
    .synchronize = device_ggml_synchronize,
    .memory = device_ggml_memory,
    .multiply = device_ggml_multiply,
};

/* ---- device_ggml.h --------------------------------------------------------------------- */

static struct ggml_device *ggml_of(const struct device *device)
{
    const struct device_impl *impl = device_implementation(device);
    void *self = device_self((struct device *)(uintptr_t)device);
    assert(impl == &device_impl_ggml || impl->ggml);
    return impl->ggml ? impl->ggml(self) : self;
}

ggml_backend_t device_ggml_backend(struct device *device)
{
    return ggml_of(device)->backend;
}

ggml_backend_dev_t device_ggml_dev(struct device *device)
{
    return ggml_of(device)->dev;
}

ggml_backend_t device_ggml_fallback(struct device *device)
{
    return ggml_of(device)->fallback;
}

uint32_t device_ggml_accelerators(struct device *device, ggml_backend_t *out, uint32_t max)
{
    const struct ggml_device *self = ggml_of(device);
    uint32_t count = self->n_accelerators < max ? self->n_accelerators : max;
    for (uint32_t i = 0; i < count; i++)
        out[i] = self->accelerators[i];
    return count;
}

ggml_backend_buffer_type_t *device_ggml_extra_buffer_types(struct device *device)
{
    const struct ggml_device *self = ggml_of(device);
    if (!self->is_cpu)
        return NULL;
    void *symbol = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(self->dev),
                                                     "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *types =
        symbol ? ((ggml_backend_dev_get_extra_bufts_t)(uintptr_t)symbol)(self->dev) : NULL;
    return types && types[0] ? types : NULL;
}

/* An accelerator multiplies many rows in its own way. */
const struct product_kernel *device_ggml_products(struct device *device)
{
    const struct ggml_device *self = ggml_of(device);
    return self->is_cpu && !self->n_accelerators ? product_kernel_best() : NULL;
}

const char *device_products_name(struct device *device)
{
    const bool is_simulated = device_implementation(device) != &device_impl_ggml;
    const struct product_kernel *kernel = is_simulated ? NULL : device_ggml_products(device);
    return kernel ? product_kernel_name(kernel) : "";
}

void device_ggml_ask(struct device *device, ggml_abort_callback stops, void *arg)
{
    ggml_backend_t cpu = ggml_of(device)->fallback;
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu));
    void *symbol = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_abort_callback");
    if (symbol)
        ((ggml_backend_set_abort_callback_t)(uintptr_t)symbol)(cpu, stops, arg);
}

void device_set_threads(struct device *device, uint32_t n_threads)
{
    struct ggml_device *self = ggml_of(device);
    if (!self->is_cpu || !n_threads)
        return;
    set_all_threads(self, n_threads);
    self->n_threads = self->n_cores = n_threads;
}

void device_compute_with(struct device *device, uint32_t n_threads)
{
    const struct ggml_device *self = ggml_of(device);
    if (self->is_cpu)
        set_all_threads(self, n_threads ? n_threads : self->n_cores);
    assert(n_threads <= self->n_threads || !self->is_cpu);
}

uint32_t device_cores(const struct device *device)
{
    return ggml_of(device)->n_cores;
}

uint32_t device_threads(const struct device *device)
{
    return ggml_of(device)->n_threads;
}
