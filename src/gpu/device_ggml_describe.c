/* What can be said of a ggml device before it is started. */
#include "gpu/device_ggml_impl.h"
#include "gpu/host.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>

static const char *vendor_of(const struct backend *backend, const char *name)
{
    static const struct {
        const char *part, *vendor;
    } known[] = {
        {"llvmpipe", "Mesa"},       {"lavapipe", "Mesa"},  {"SwiftShader", "Google"},
        {"NVIDIA", "NVIDIA"},       {"GeForce", "NVIDIA"}, {"Tesla", "NVIDIA"},
        {"Quadro", "NVIDIA"},       {"AMD", "AMD"},        {"Radeon", "AMD"},
        {"Intel", "Intel"},         {"Apple", "Apple"},    {"Adreno", "Qualcomm"},
        {"Qualcomm", "Qualcomm"},   {"Mali", "ARM"},       {"PowerVR", "Imagination"},
        {"Moore", "Moore Threads"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcasestr(name, known[i].part))
            return known[i].vendor;
    }
    if (strcmp(backend->name, "cuda") == 0)
        return "NVIDIA";
    if (strcmp(backend->name, "hip") == 0)
        return "AMD";
    return strcmp(backend->name, "metal") == 0 ? "Apple" : "";
}

/* ---- the CPU --------------------------------------------------------------------------- */

static bool has_feature(const struct ggml_backend_feature *features, const char *name)
{
    for (; features && features->name; features++) {
        if (strcmp(features->name, name) == 0)
            return features->value && strcmp(features->value, "0") != 0;
    }
    return false;
}

/* "x86_64 AVX512 AVX512_VNNI": the extensions that decide how fast matrix products are. */
static void describe_instructions(ggml_backend_dev_t dev, char *text, size_t size)
{
    static const char *const telling[] = {
        "AMX_INT8", "AVX512",      "AVX512_VNNI", "AVX512_BF16", "AVX_VNNI", "AVX2", "SME",
        "SVE",      "MATMUL_INT8", "DOTPROD",     "NEON",        "RISCV_V",  "VSX"};
    struct utsname system;
    size_t used = uname(&system) == 0 ? (size_t)snprintf(text, size, "%s", system.machine) : 0;
    void *symbol = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev),
                                                     "ggml_backend_get_features");
    const struct ggml_backend_feature *features =
        symbol ? ((ggml_backend_get_features_t)(uintptr_t)symbol)(ggml_backend_dev_backend_reg(dev))
               : NULL;
    for (size_t i = 0; i < sizeof telling / sizeof *telling && used < size; i++) {
        if (has_feature(features, telling[i]))
            used += (size_t)snprintf(text + used, size - used, " %s", telling[i]);
    }
    for (size_t i = 0; i < ggml_backend_dev_count() && used < size; i++) {
        ggml_backend_dev_t other = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(other) == GGML_BACKEND_DEVICE_TYPE_ACCEL)
            used +=
                (size_t)snprintf(text + used, size - used, " + %s", ggml_backend_dev_name(other));
    }
}

static void describe_cpu(ggml_backend_dev_t dev, struct device_info *info)
{
    struct host_cpu cpu = host_cpu_read();
    snprintf(info->name, sizeof info->name, "%s", cpu.name);
    snprintf(info->vendor, sizeof info->vendor, "%s", cpu.vendor);
    info->clock_mhz = cpu.clock_mhz;
    info->compute_units = reading_of(UNIT_COUNT, host_cores_read().n_cores);
    describe_instructions(dev, info->architecture, sizeof info->architecture);
    struct device_memory memory = host_memory_read();
    info->memory_total_bytes = memory.total_bytes;
    info->memory_free_bytes = memory.free_bytes;
}

/* ---- GPUs ------------------------------------------------------------------------------ */

bool device_ggml_is_software(ggml_backend_dev_t dev)
{
    const char *name = ggml_backend_dev_description(dev);
    return name && (strcasestr(name, "llvmpipe") || strcasestr(name, "lavapipe") ||
                    strcasestr(name, "SwiftShader"));
}

static void describe_gpu(const struct backend *backend, ggml_backend_dev_t dev, uint32_t index,
                         struct device_info *info)
{
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(dev, &props);
    const char *name = props.description && props.description[0] ? props.description : props.name;
    snprintf(info->id, sizeof info->id, "%s%u", backend->name, index);
    snprintf(info->name, sizeof info->name, "%s", name);
    snprintf(info->vendor, sizeof info->vendor, "%s", vendor_of(backend, name));
    snprintf(info->pci, sizeof info->pci, "%s", props.device_id ? props.device_id : "");
    if (strcmp(info->vendor, "NVIDIA") == 0)
        host_nvidia_driver(info->driver, sizeof info->driver);
    info->kind = props.type == GGML_BACKEND_DEVICE_TYPE_IGPU ? DEVICE_INTEGRATED_GPU : DEVICE_GPU;
    if (device_ggml_is_software(dev))
        info->kind = DEVICE_CPU;
    info->memory_total_bytes = props.memory_total;
    info->memory_free_bytes = props.memory_free;
}

/* Does the device multiply a matrix of this type with an f32 one? */
static bool ggml_describe_multiplies(ggml_backend_dev_t dev, enum ggml_type type)
{
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true});
    if (!ctx)
        return false;
    struct ggml_tensor *weight = ggml_new_tensor_2d(ctx, type, 256, 256);
    struct ggml_tensor *input = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 256, 1);
    bool yes = ggml_backend_dev_supports_op(dev, ggml_mul_mat(ctx, weight, input));
    ggml_free(ctx);
    return yes;
}

static uint32_t precisions_of(ggml_backend_dev_t dev)
{
    uint32_t bits = 0;
    bits |= ggml_describe_multiplies(dev, GGML_TYPE_F32) ? PRECISION_F32 : 0;
    bits |= ggml_describe_multiplies(dev, GGML_TYPE_F16) ? PRECISION_F16 : 0;
    bits |= ggml_describe_multiplies(dev, GGML_TYPE_BF16) ? PRECISION_BF16 : 0;
    bits |= ggml_describe_multiplies(dev, GGML_TYPE_Q8_0) ? PRECISION_INT8 : 0;
    bits |= ggml_describe_multiplies(dev, GGML_TYPE_Q4_0) ? PRECISION_INT4 : 0;
    return bits;
}

/* A driver may call its device anything; what goes on to terminals and into JSON is plain text. */
static void make_printable(char *text)
{
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            *text = '?';
    }
}

void device_ggml_describe(const struct backend *backend, ggml_backend_dev_t dev, uint32_t index,
                          struct device_info *info)
{
    *info = (struct device_info){.support = backend->support};
    snprintf(info->backend, sizeof info->backend, "%s", backend->name);
    if (ggml_backend_dev_type(dev) == GGML_BACKEND_DEVICE_TYPE_CPU) {
        snprintf(info->id, sizeof info->id, "cpu");
        describe_cpu(dev, info);
    } else {
        describe_gpu(backend, dev, index, info);
    }
    make_printable(info->name);
    make_printable(info->pci);
    info->precisions = precisions_of(dev);
}
