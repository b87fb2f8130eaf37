/* Opens what this machine computes with: walks the platform's chain, loads, lists, verifies. */
#include "gpu/gpu.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/backends.h"
#include "gpu/calibrate.h"
#include "gpu/cpu_runtime.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/device_sim.h"
#include "gpu/factory.h"
#include "gpu/plugins.h"
#include "gpu/sim_file.h"
#include "gpu/vetting.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BACKENDS_MAX = 16,
    CPU_THREADS_MAX = 512, /* GGML_MAX_N_THREADS: ggml aborts beyond it */
};

/* A device that a backend lists, on its way into `devices` or `rejected`. */
struct found {
    const struct backend *backend;
    uint32_t status; /* of its backend, in gpu.backends */
};

struct gpu {
    struct device *devices[LIMIT_DEVICES];
    uint32_t n_devices;
    struct device_rejected rejected[LIMIT_DEVICES];
    uint32_t n_rejected;
    struct backend_status backends[BACKENDS_MAX];
    uint32_t n_backends;
    char registry[PATH_MAX];    /* "": none */
    struct sim_file *simulated; /* NULL: none */
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

static uint32_t verify_limit_ms(const struct gpu_options *options)
{
    return options->verify_limit_ms ? options->verify_limit_ms : LIMIT_VERIFY_MS;
}

/* Opens a device that vetting has not refused. What it cannot do now, it could not do when it was used. */
static void open_found(struct gpu *gpu, const struct found *found, struct vet *vet, const struct gpu_options *options)
{
    struct error err;
    struct device *device;
    uint64_t start_ns = clock_now_ns();
    struct device_opening opening = {
        .limit_ms = verify_limit_ms(options),
        .quick = vet->verdict == VET_QUICK,
    };
    if (device_open_checked(&device_impl_ggml, found->backend, vet->index, options, &opening, &vet->info, &device,
                            &err)) {
        reject(gpu, &vet->info, err.text);
        if (err.code != ERROR_NO_MEMORY) /* which says nothing of the device */
            vet_outcome(vet, err.text, opening.hung);
        return;
    }
    vet_outcome(vet, NULL, false);
    device_set_key(device, &vet->change.key);
    device_set_verification(device, vet->verification);
    if (vet->calibrated)
        device_set_calibration(device, &vet->calibration);
    gpu->devices[gpu->n_devices++] = device;
    log_line(LOG_DEBUG, "gpu", "device %s verified in %.1f ms", vet->info.id,
             (double)(clock_now_ns() - start_ns) * 1e-6);
}

/* Keeps or rejects a device. */
static void try_device(struct gpu *gpu, const struct found *found, struct vet *vet, const struct gpu_options *options)
{
    const struct device_info *twin = find_twin(gpu, &vet->info);
    if (twin) {
        char reason[128];
        snprintf(reason, sizeof reason, "the same GPU as %s", twin->id);
        reject(gpu, &vet->info, reason);
    } else if (vet->verdict == VET_REFUSED) {
        reject(gpu, &vet->info, vet->reason);
    } else {
        open_found(gpu, found, vet, options);
    }
}

static struct backend_status *add_status(struct gpu *gpu, const struct backend *backend)
{
    assert(gpu->n_backends < BACKENDS_MAX);
    struct backend_status *status = &gpu->backends[gpu->n_backends++];
    snprintf(status->name, sizeof status->name, "%s", backend->name);
    return status;
}

static bool is_wanted(const struct backend *backend, const struct gpu_options *options)
{
    if (strcmp(backend->name, "cpu") == 0)
        return true;
    return !options->skip_other && (!options->backend || strcmp(backend->name, options->backend) == 0);
}

/* Lets children load the backends of the chain first; fills one row for each that was asked for, the count. */
static uint32_t vet_backends(const char *const *chain, const struct gpu_options *options, struct vet *vets)
{
    uint32_t n = 0;
    for (uint32_t i = 0; options->prober && chain[i]; i++) {
        const struct backend *backend = backend_find(chain[i]);
        if (strcmp(backend->name, "cpu") == 0 || !is_wanted(backend, options) || backend_registry(backend) ||
            !plugin_is_there(backend->stem))
            continue;
        struct vet *vet = &vets[n++];
        *vet = (struct vet){0};
        snprintf(vet->info.id, sizeof vet->info.id, "%s", backend->name);
        snprintf(vet->info.backend, sizeof vet->info.backend, "%s", backend->name);
    }
    vet_devices(vets, n, options);
    vet_remember(vets, n, options);
    return n;
}

/* What vetting has against loading a backend; NULL: nothing. A child that failed in good order is none: this process
 * will, too, and can say better what is missing. */
static const char *objection(const struct vet *vets, uint32_t count, const struct backend *backend)
{
    for (uint32_t i = 0; i < count; i++) {
        if (vets[i].verdict == VET_REFUSED && vets[i].change.result != REGISTRY_FAILED &&
            strcmp(vets[i].info.backend, backend->name) == 0)
            return vets[i].reason;
    }
    return NULL;
}

/* Loads a backend and adds its devices to what was found. */
static void list_backend(struct gpu *gpu, const struct backend *backend, const struct gpu_options *options,
                         struct found *found, struct vet *vets, uint32_t *n_found)
{
    struct backend_status *status = &gpu->backends[gpu->n_backends - 1];
    if (!is_wanted(backend, options)) {
        snprintf(status->reason, sizeof status->reason, "not tried: only %s was asked for",
                 options->skip_other ? "the CPU" : options->backend);
        return;
    }
    if (!backend_load(backend, status->reason, sizeof status->reason))
        return;
    uint32_t count = device_impl_ggml.list(backend);
    for (uint32_t i = 0; i < count; i++) {
        struct device_info info;
        device_impl_ggml.get(backend, i, &info);
        if (*n_found == LIMIT_DEVICES) {
            reject(gpu, &info, "more devices than Medley takes");
            continue;
        }
        found[*n_found] = (struct found){.backend = backend, .status = gpu->n_backends - 1};
        vets[(*n_found)++] = (struct vet){.info = info, .index = i};
    }
    if (count == 0)
        backend_explain_no_device(backend, status->reason, sizeof status->reason);
    else
        snprintf(status->reason, sizeof status->reason, "none of its %u devices passed verification", count);
}

/* Simulated devices have no driver: nothing to vet, nothing to remember. */
static enum error_code try_simulated(struct gpu *gpu, const struct gpu_options *options, struct error *err)
{
    gpu->simulated = mem_new(sizeof *gpu->simulated);
    if (!gpu->simulated)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = sim_file_read(options->sim_file, gpu->simulated, err);
    for (uint32_t i = 0; !code && i < gpu->simulated->n_devices; i++) {
        struct device_info info;
        device_impl_sim.get(gpu->simulated, i, &info);
        struct error refusal;
        struct device *device;
        if (gpu->n_devices == LIMIT_DEVICES)
            reject(gpu, &info, "more devices than Medley takes");
        else if (device_open(&device_impl_sim, gpu->simulated, i, options, verify_limit_ms(options), &info, &device,
                             &refusal))
            reject(gpu, &info, refusal.text);
        else
            gpu->devices[gpu->n_devices++] = device;
    }
    return code;
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

static void list_all(struct gpu *gpu, const struct gpu_options *options, struct found *found, struct vet *vets,
                     uint32_t *n_found)
{
    enum platform platform = factory_platform();
    const char *const *chain = factory_chain(platform);
    /* the rows of devices are free until they are listed; of what is said of backends a text must stay */
    char objections[BACKENDS_MAX][256] = {0};
    uint32_t n_vetted = vet_backends(chain, options, vets);
    for (uint32_t i = 0; chain[i]; i++) {
        const char *text = objection(vets, n_vetted, backend_find(chain[i]));
        snprintf(objections[i], sizeof objections[i], "%s", text ? text : "");
    }
    for (uint32_t i = 0; chain[i]; i++) {
        struct backend_status *status = add_status(gpu, backend_find(chain[i]));
        if (objections[i][0])
            snprintf(status->reason, sizeof status->reason, "when it lists its devices, %.200s", objections[i]);
        else
            list_backend(gpu, backend_find(chain[i]), options, found, vets, n_found);
    }
    for (uint32_t i = 0; i < backend_count(); i++) {
        const struct backend *backend = backend_at(i);
        if (!in_chain(chain, backend->name)) {
            struct backend_status *status = add_status(gpu, backend);
            snprintf(status->reason, sizeof status->reason, "not on %s", factory_platform_name(platform));
        }
    }
}

static enum error_code try_all(struct gpu *gpu, const struct gpu_options *options, struct error *err)
{
    struct found found[LIMIT_DEVICES];
    uint32_t n_found = 0;
    struct vet *vets = mem_new_array(LIMIT_DEVICES, sizeof *vets);
    if (!vets)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    list_all(gpu, options, found, vets, &n_found);
    vet_devices(vets, n_found, options);
    for (uint32_t i = 0; i < n_found; i++) {
        uint32_t n_before = gpu->n_devices;
        try_device(gpu, &found[i], &vets[i], options);
        if (gpu->n_devices > n_before) {
            struct backend_status *status = &gpu->backends[found[i].status];
            status->available = true;
            status->reason[0] = 0;
        }
    }
    vet_remember(vets, n_found, options);
    mem_free(vets);
    return ERROR_NONE;
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
    if (options.registry)
        snprintf(gpu->registry, sizeof gpu->registry, "%s", options.registry);
    plugins_log_hook();
    cpu_runtime_prepare();
    /* First, for every other device computes on the CPU what it cannot do itself. */
    char reason[256];
    if (!backend_load(backend_find("cpu"), reason, sizeof reason)) {
        mem_free(gpu);
        return error_set(err, ERROR_NOT_FOUND, "no CPU backend: %s", reason);
    }
    code = try_all(gpu, &options, err);
    if (code) {
        gpu_close(gpu);
        return code;
    }
    if (!gpu_find(gpu, "cpu")) {
        const struct backend_status *cpu = &gpu->backends[0];
        while (strcmp(cpu->name, "cpu") != 0)
            cpu++;
        code = error_set(err, ERROR_DEVICE, "the CPU cannot be used: %s", cpu->reason);
        gpu_close(gpu);
        return code;
    }
    if (options.sim_file && (code = try_simulated(gpu, &options, err))) {
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
    mem_free(gpu);
}

/* ---- looking --------------------------------------------------------------------------- */

const char *gpu_registry_file(const struct gpu *gpu)
{
    return gpu->registry;
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
