/* Opens what this machine computes with: walks the platform's chain, loads, lists, verifies. */
#include "gpu/gpu.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/backends.h"
#include "gpu/cpu_runtime.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/factory.h"
#include "gpu/plugins.h"
#include "gpu/sensors/on_demand.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BACKENDS_MAX = 16,
    VERIFY_LIMIT_MS = 20000,
    CPU_THREADS_MAX = 512, /* GGML_MAX_N_THREADS: ggml aborts beyond it */
};

struct gpu {
    struct device *devices[LIMIT_DEVICES];
    uint32_t n_devices;
    struct device_rejected rejected[LIMIT_DEVICES];
    uint32_t n_rejected;
    struct backend_status backends[BACKENDS_MAX];
    uint32_t n_backends;
    struct on_demand *sensors; /* of the devices whose tables have no readings */
};

/* ---- opening --------------------------------------------------------------------------- */

static void reject(struct gpu *gpu, const struct device_info *info, const char *reason)
{
    log_line(LOG_INFO, "gpu", "device %s is not used: %s", info->id, reason);
    if (gpu->n_rejected == LIMIT_DEVICES)
        return;
    struct device_rejected *rejected = &gpu->rejected[gpu->n_rejected++];
    rejected->info = *info;
    snprintf(rejected->reason, sizeof rejected->reason, "%.*s", (int)sizeof rejected->reason - 1, reason);
}

/* The device of another backend that is the same piece of hardware; NULL when there is none. */
static const struct device_info *find_twin(const struct gpu *gpu, const struct device_info *info)
{
    for (uint32_t i = 0; info->pci[0] && i < gpu->n_devices; i++) {
        const struct device_info *other = device_info(gpu->devices[i]);
        if (strcmp(other->pci, info->pci) == 0 && strcmp(other->backend, info->backend) != 0)
            return other;
    }
    return NULL;
}

/* Verifies device `index` of the backend and keeps or rejects it. */
static void try_device(struct gpu *gpu, const struct backend *backend, uint32_t index,
                       const struct gpu_options *options)
{
    struct device_info info;
    device_impl_ggml.get(backend, index, &info);
    const struct device_info *twin = find_twin(gpu, &info);
    if (twin) {
        char reason[128];
        snprintf(reason, sizeof reason, "the same GPU as %s", twin->id);
        reject(gpu, &info, reason);
        return;
    }
    if (gpu->n_devices == LIMIT_DEVICES) {
        reject(gpu, &info, "more devices than Medley takes");
        return;
    }
    struct error err;
    struct device *device;
    uint64_t start_ns = clock_now_ns();
    if (device_open(&device_impl_ggml, backend, index, options, VERIFY_LIMIT_MS, &info, &device, &err)) {
        reject(gpu, &info, err.text);
        return;
    }
    gpu->devices[gpu->n_devices++] = device;
    log_line(LOG_DEBUG, "gpu", "device %s verified in %.1f ms", info.id, (double)(clock_now_ns() - start_ns) * 1e-6);
}

static struct backend_status *add_status(struct gpu *gpu, const struct backend *backend)
{
    assert(gpu->n_backends < BACKENDS_MAX);
    struct backend_status *status = &gpu->backends[gpu->n_backends++];
    snprintf(status->name, sizeof status->name, "%s", backend->name);
    return status;
}

static void try_backend(struct gpu *gpu, const struct backend *backend, const struct gpu_options *options)
{
    struct backend_status *status = add_status(gpu, backend);
    bool is_cpu = strcmp(backend->name, "cpu") == 0;
    if (options->backend && !is_cpu && strcmp(backend->name, options->backend) != 0) {
        snprintf(status->reason, sizeof status->reason, "not tried: only %s was asked for", options->backend);
        return;
    }
    if (options->skip_other && !is_cpu) {
        snprintf(status->reason, sizeof status->reason, "not tried: only the CPU was asked for");
        return;
    }
    if (!backend_load(backend, status->reason, sizeof status->reason))
        return;
    uint32_t n_before = gpu->n_devices;
    uint32_t count = device_impl_ggml.list(backend);
    for (uint32_t i = 0; i < count; i++)
        try_device(gpu, backend, i, options);
    status->available = gpu->n_devices > n_before;
    if (count == 0)
        backend_explain_no_device(backend, status->reason, sizeof status->reason);
    else if (!status->available)
        snprintf(status->reason, sizeof status->reason, "none of its %u devices passed verification", count);
}

/* Who asks for a backend by name wants to hear that it is not there; the CPU goes on. */
static void warn_when_missing(const struct gpu *gpu, const char *name)
{
    for (uint32_t i = 0; i < gpu->n_backends; i++) {
        if (strcmp(gpu->backends[i].name, name) == 0 && !gpu->backends[i].available)
            log_line(LOG_WARN, "gpu", "backend %s: %s", name, gpu->backends[i].reason);
    }
}

static bool in_chain(const char *const *chain, const char *name)
{
    for (; *chain; chain++) {
        if (strcmp(*chain, name) == 0)
            return true;
    }
    return false;
}

static void try_all(struct gpu *gpu, const struct gpu_options *options)
{
    enum platform platform = factory_platform();
    const char *const *chain = factory_chain(platform);
    for (uint32_t i = 0; chain[i]; i++)
        try_backend(gpu, backend_find(chain[i]), options);
    for (uint32_t i = 0; i < backend_count(); i++) {
        const struct backend *backend = backend_at(i);
        if (!in_chain(chain, backend->name)) {
            struct backend_status *status = add_status(gpu, backend);
            snprintf(status->reason, sizeof status->reason, "not on %s", factory_platform_name(platform));
        }
    }
}

/* The caller's wishes, completed from the environment and checked. */
static enum error_code complete(const struct gpu_options *given, struct gpu_options *options, struct error *err)
{
    *options = given ? *given : (struct gpu_options){0};
    const char *source = "--backend";
    if (!options->backend) {
        options->backend = getenv("MEDLEY_BACKEND");
        source = "MEDLEY_BACKEND";
    }
    if (options->backend && !options->backend[0])
        options->backend = NULL;
    if (options->backend && !backend_find(options->backend)) {
        char names[128];
        backend_names(names, sizeof names);
        return error_set(err, ERROR_INVALID, "%s: no backend '%.32s'; there are: %s", source, options->backend, names);
    }
    if (options->n_cpu_threads > CPU_THREADS_MAX)
        return error_set(err, ERROR_INVALID, "%u CPU threads are more than the limit of %d", options->n_cpu_threads,
                         CPU_THREADS_MAX);
    return ERROR_NONE;
}

/* Costs nothing until somebody asks for a reading. */
static enum error_code attach_sensors(struct gpu *gpu, struct error *err)
{
    gpu->sensors = on_demand_new(NULL, gpu->n_devices);
    if (!gpu->sensors)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < gpu->n_devices; i++) {
        on_demand_set_device(gpu->sensors, i, device_info(gpu->devices[i]));
        device_set_sensors(gpu->devices[i], gpu->sensors, i);
    }
    return ERROR_NONE;
}

enum error_code gpu_open(const struct gpu_options *given, struct gpu **out, struct error *err)
{
    *out = NULL;
    struct gpu_options options;
    enum error_code code = complete(given, &options, err);
    if (code)
        return code;
    struct gpu *gpu = mem_new(sizeof *gpu);
    if (!gpu)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    plugins_log_hook();
    cpu_runtime_prepare();
    /* First, for every other device computes on the CPU what it cannot do itself. */
    char reason[256];
    if (!backend_load(backend_find("cpu"), reason, sizeof reason)) {
        mem_free(gpu);
        return error_set(err, ERROR_NOT_FOUND, "no CPU backend: %s", reason);
    }
    try_all(gpu, &options);
    if (!gpu_find(gpu, "cpu")) {
        const struct backend_status *cpu = &gpu->backends[0];
        while (strcmp(cpu->name, "cpu") != 0)
            cpu++;
        code = error_set(err, ERROR_DEVICE, "the CPU cannot be used: %s", cpu->reason);
        gpu_close(gpu);
        return code;
    }
    code = attach_sensors(gpu, err);
    if (code) {
        gpu_close(gpu);
        return code;
    }
    if (options.backend)
        warn_when_missing(gpu, options.backend);
    *out = gpu;
    return ERROR_NONE;
}

void gpu_close(struct gpu *gpu)
{
    if (!gpu)
        return;
    for (uint32_t i = gpu->n_devices; i-- > 0;)
        device_close(gpu->devices[i]);
    on_demand_free(gpu->sensors);
    mem_free(gpu);
}

/* ---- looking --------------------------------------------------------------------------- */

uint32_t gpu_device_count(const struct gpu *gpu)
{
    return gpu->n_devices;
}

struct device *gpu_device(const struct gpu *gpu, uint32_t index)
{
    assert(index < gpu->n_devices);
    return gpu->devices[index];
}

struct device *gpu_find(const struct gpu *gpu, const char *id)
{
    for (uint32_t i = 0; i < gpu->n_devices; i++) {
        if (strcmp(device_info(gpu->devices[i])->id, id) == 0)
            return gpu->devices[i];
    }
    return NULL;
}

uint32_t gpu_rejected_count(const struct gpu *gpu)
{
    return gpu->n_rejected;
}

const struct device_rejected *gpu_rejected(const struct gpu *gpu, uint32_t index)
{
    assert(index < gpu->n_rejected);
    return &gpu->rejected[index];
}

uint32_t gpu_backend_count(const struct gpu *gpu)
{
    return gpu->n_backends;
}

const struct backend_status *gpu_backend(const struct gpu *gpu, uint32_t index)
{
    assert(index < gpu->n_backends);
    return &gpu->backends[index];
}
