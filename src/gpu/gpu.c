/* Opens what this machine computes with, and shows it. */
#include "gpu/gpu.h"

#include "base/log.h"
#include "base/mem.h"
#include "gpu/backends.h"
#include "gpu/calibrate.h"
#include "gpu/cpu_runtime.h"
#include "gpu/device_impl.h"
#include "gpu/gpu_state.h"
#include "gpu/plugins.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CPU_THREADS_MAX = 512 }; /* GGML_MAX_N_THREADS: ggml aborts beyond it */

/* ---- opening --------------------------------------------------------------------------- */

/* Who asks for a backend by name wants to hear that it is not there; the CPU goes on. */
static void warn_when_missing(const struct gpu *gpu, const char *name)
{
    for (uint32_t i = 0; i < gpu->n_backends; i++) {
        if (strcmp(gpu->backends[i].name, name) == 0 && !gpu->backends[i].available)
            log_line(LOG_WARN, "gpu", "backend %s: %s", name, gpu->backends[i].reason);
    }
}

/* The caller's options, completed from the environment and checked. */
static enum error_code gpu_complete(const struct gpu_options *given, struct gpu_options *options,
                                    struct error *err)
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
        return error_set(err, ERROR_INVALID, "%s: no backend '%.32s'; there are: %s", source,
                         options->backend, names);
    }
    if (options->n_cpu_threads > CPU_THREADS_MAX)
        return error_set(err, ERROR_INVALID, "%u CPU threads are more than the limit of %d",
                         options->n_cpu_threads, CPU_THREADS_MAX);
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

static enum error_code find_all(struct gpu *gpu, const struct gpu_options *options,
                                struct error *err)
{
    /* First, for every other device computes on the CPU what it cannot do itself. */
    char reason[256];
    if (!backend_load(backend_find("cpu"), reason, sizeof reason))
        return error_set(err, ERROR_NOT_FOUND, "no CPU backend: %s", reason);
    enum error_code code = gpu_find_real(gpu, options, err);
    if (code)
        return code;
    if (!gpu_find(gpu, "cpu")) {
        const struct backend_status *cpu = &gpu->backends[0];
        while (strcmp(cpu->name, "cpu") != 0)
            cpu++;
        return error_set(err, ERROR_DEVICE, "the CPU cannot be used: %s", cpu->reason);
    }
    return options->sim_file ? gpu_find_simulated(gpu, options, err) : ERROR_NONE;
}

enum error_code gpu_open(const struct gpu_options *given, struct gpu **out, struct error *err)
{
    *out = NULL;
    struct gpu_options options;
    enum error_code code = gpu_complete(given, &options, err);
    if (code)
        return code;
    struct gpu *gpu = mem_new(sizeof *gpu);
    if (!gpu)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (options.registry)
        snprintf(gpu->registry, sizeof gpu->registry, "%s", options.registry);
    plugins_log_hook();
    cpu_runtime_prepare();
    code = find_all(gpu, &options, err);
    if (!code)
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
    mem_free(gpu->simulated);
    on_demand_free(gpu->sensors);
    mem_free(gpu);
}

/* ---- looking --------------------------------------------------------------------------- */

const char *gpu_registry_file(const struct gpu *gpu)
{
    return gpu->registry;
}

const char *gpu_registry_problem(const struct gpu *gpu)
{
    return gpu->registry_problem;
}

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

const char *gpu_ggml_version(void)
{
    return ggml_version();
}
