/* Finds the devices: which backends are there, what they list, and what of that can be used. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/backends.h"
#include "gpu/details.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/device_sim.h"
#include "gpu/factory.h"
#include "gpu/gpu_state.h"
#include "gpu/plugins.h"
#include "gpu/vetting.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A device that a backend lists, on its way into `devices` or `rejected`. */
struct found_device {
    const struct backend *backend;
    uint32_t status; /* of its backend, in gpu.backends */
};

static void gpu_find_reject(struct gpu *gpu, const struct device_info *info, const char *reason)
{
    log_line(LOG_INFO, "gpu", "device %s is not used: %s", info->id, reason);
    if (gpu->n_rejected == LIMIT_DEVICES)
        return;
    struct device_rejected *rejected = &gpu->rejected[gpu->n_rejected++];
    rejected->info = *info;
    snprintf(rejected->reason, sizeof rejected->reason, "%.*s", (int)sizeof rejected->reason - 1,
             reason);
}

/* The device of another backend that is the same piece of hardware; NULL when there is none. */
static const struct device_info *gpu_find_twin(const struct gpu *gpu,
                                               const struct device_info *info)
{
    for (uint32_t i = 0; info->pci[0] && i < gpu->n_devices; i++) {
        const struct device_info *other = device_info(gpu->devices[i]);
        if (strcmp(other->pci, info->pci) == 0 && strcmp(other->backend, info->backend) != 0)
            return other;
    }
    return NULL;
}

/* gpu_options.only: whether the device is not the one. Every device computes on the CPU what it
 * cannot do itself. */
static bool is_other(const struct device_info *info, const struct gpu_options *options)
{
    return options->only && strcmp(info->id, options->only) != 0 && strcmp(info->id, "cpu") != 0;
}

static uint32_t verify_limit_ms(const struct gpu_options *options)
{
    return options->verify_limit_ms ? options->verify_limit_ms : LIMIT_VERIFY_MS;
}

/* Opens a device that vetting has not refused. What it cannot do now, it could not do when it was
 * used. */
static void open_found(struct gpu *gpu, const struct found_device *found, struct vet *vet,
                       const struct gpu_options *options)
{
    struct error err;
    struct device *device;
    uint64_t start_ns = clock_now_ns();
    struct device_opening opening = {
        .limit_ms = verify_limit_ms(options),
        .quick = vet->verdict == VET_QUICK,
    };
    if (device_open_checked(&device_impl_ggml, found->backend, vet->index, options, &opening,
                            &vet->info, &device, &err)) {
        gpu_find_reject(gpu, &vet->info, err.text);
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
static void try_device(struct gpu *gpu, const struct found_device *found, struct vet *vet,
                       const struct gpu_options *options)
{
    const struct device_info *twin = gpu_find_twin(gpu, &vet->info);
    if (twin) {
        char reason[128];
        snprintf(reason, sizeof reason, "the same GPU as %s", twin->id);
        gpu_find_reject(gpu, &vet->info, reason);
    } else if (vet->verdict == VET_REFUSED) {
        gpu_find_reject(gpu, &vet->info, vet->reason);
    } else {
        open_found(gpu, found, vet, options);
    }
}

static void gpu_find_remember(struct gpu *gpu, const struct vet *vets, uint32_t count,
                              const struct gpu_options *options)
{
    struct error err;
    if (!vet_remember(vets, count, options, &err) || gpu->registry_problem[0])
        return;
    snprintf(gpu->registry_problem, sizeof gpu->registry_problem, "%s", err.text);
    log_line(LOG_INFO, "gpu", "%s", err.text);
}

static struct backend_status *add_status(struct gpu *gpu, const struct backend *backend)
{
    assert(gpu->n_backends < BACKENDS_MAX);
    struct backend_status *status = &gpu->backends[gpu->n_backends++];
    snprintf(status->name, sizeof status->name, "%s", backend->name);
    return status;
}

static bool gpu_find_is_wanted(const struct backend *backend, const struct gpu_options *options)
{
    if (strcmp(backend->name, "cpu") == 0)
        return true;
    return !options->skip_other &&
           (!options->backend || strcmp(backend->name, options->backend) == 0);
}

/* Lets children load the backends of the chain first; fills one row for each that was asked for,
 * the count. */
static uint32_t vet_backends(struct gpu *gpu, const char *const *chain,
                             const struct gpu_options *options, const struct registry *known,
                             struct vet *vets)
{
    uint32_t n = 0;
    char unused[256]; /* list_backend() says it */
    for (uint32_t i = 0; options->prober && chain[i]; i++) {
        const struct backend *backend = backend_find(chain[i]);
        if (strcmp(backend->name, "cpu") == 0 || !gpu_find_is_wanted(backend, options) ||
            backend_registry(backend) || !plugin_is_there(backend->stem) ||
            !backend_fits(backend, unused, sizeof unused))
            continue;
        struct vet *vet = &vets[n++];
        *vet = (struct vet){0};
        snprintf(vet->info.id, sizeof vet->info.id, "%s", backend->name);
        snprintf(vet->info.backend, sizeof vet->info.backend, "%s", backend->name);
    }
    vet_devices(vets, n, known, options);
    gpu_find_remember(gpu, vets, n, options);
    return n;
}

/* What vetting has against loading a backend; NULL: nothing. A child that failed in good order is
 * none: this process will, too, and can say better what is missing. */
static const char *gpu_find_objection(const struct vet *vets, uint32_t count,
                                      const struct backend *backend)
{
    for (uint32_t i = 0; i < count; i++) {
        if (vets[i].verdict == VET_REFUSED && vets[i].change.result != REGISTRY_FAILED &&
            strcmp(vets[i].info.backend, backend->name) == 0)
            return vets[i].reason;
    }
    return NULL;
}

/* Whether loading it again would be for nothing. Who names the backend is always served. */
static bool gpu_find_is_empty(const struct vet *vets, uint32_t count, const struct backend *backend,
                              const struct gpu_options *options)
{
    if (!options->skip_empty || options->verify || options->backend ||
        backend_has_device_files(backend))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (vets[i].lists_none && strcmp(vets[i].info.backend, backend->name) == 0)
            return true;
    }
    return false;
}

/* Loads a backend and adds its devices to what was found. */
static void list_backend(struct gpu *gpu, const struct backend *backend,
                         const struct gpu_options *options, const struct registry *known,
                         struct found_device *found, struct vet *vets, uint32_t *n_found)
{
    struct backend_status *status = &gpu->backends[gpu->n_backends - 1];
    if (!gpu_find_is_wanted(backend, options)) {
        snprintf(status->reason, sizeof status->reason, "not tried: only %s was asked for",
                 options->skip_other ? "the CPU" : options->backend);
        return;
    }
    plugins_forget_error();
    if (!backend_fits(backend, status->reason, sizeof status->reason) ||
        !backend_load(backend, status->reason, sizeof status->reason))
        return;
    uint32_t count = device_impl_ggml.list(backend);
    for (uint32_t i = 0; i < count; i++) {
        struct device_info info;
        device_impl_ggml.get(backend, i, &info);
        if (is_other(&info, options))
            continue;
        if (*n_found == LIMIT_DEVICES) {
            gpu_find_reject(gpu, &info, "more devices than Medley takes");
            continue;
        }
        found[*n_found] = (struct found_device){.backend = backend, .status = gpu->n_backends - 1};
        vets[(*n_found)++] = (struct vet){.info = info, .index = i};
    }
    vet_note_list(backend, count == 0, known, options);
    if (count == 0)
        backend_explain_no_device(backend, plugins_last_error(), status->reason,
                                  sizeof status->reason);
    else
        snprintf(status->reason, sizeof status->reason,
                 "none of its %u devices passed verification", count);
}

/* Simulated devices have no driver: nothing to vet, nothing to remember. */
enum error_code gpu_find_simulated(struct gpu *gpu, const struct gpu_options *options,
                                   struct error *err)
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
        if (is_other(&info, options))
            continue;
        if (gpu->n_devices == LIMIT_DEVICES)
            gpu_find_reject(gpu, &info, "more devices than Medley takes");
        else if (device_open(&device_impl_sim, gpu->simulated, i, options, verify_limit_ms(options),
                             &info, &device, &refusal))
            gpu_find_reject(gpu, &info, refusal.text);
        else
            gpu->devices[gpu->n_devices++] = device;
    }
    return code;
}

static bool in_chain(const char *const *chain, const char *name)
{
    for (; *chain; chain++) {
        if (strcmp(*chain, name) == 0)
            return true;
    }
    return false;
}

static void gpu_find_list_all(struct gpu *gpu, const struct gpu_options *options,
                              const struct registry *known, struct found_device *found,
                              struct vet *vets, uint32_t *n_found)
{
    enum platform platform = factory_platform();
    const char *const *chain = factory_chain(platform);
    /* the rows of devices are free until they are listed; of what is said of backends a text must
     * stay */
    char objections[BACKENDS_MAX][256] = {0};
    uint32_t n_vetted = vet_backends(gpu, chain, options, known, vets);
    for (uint32_t i = 0; chain[i]; i++) {
        const char *text = gpu_find_objection(vets, n_vetted, backend_find(chain[i]));
        const char *empty =
            gpu_find_is_empty(vets, n_vetted, backend_find(chain[i]), options)
                ? "it finds none, as of an earlier start (`medley devices` looks again)"
                : "";
        snprintf(objections[i], sizeof objections[i], "%s", text ? text : empty);
    }
    for (uint32_t i = 0; chain[i]; i++) {
        struct backend_status *status = add_status(gpu, backend_find(chain[i]));
        if (objections[i][0])
            snprintf(status->reason, sizeof status->reason, "when it lists its devices, %.200s",
                     objections[i]);
        else
            list_backend(gpu, backend_find(chain[i]), options, known, found, vets, n_found);
    }
    struct device_info *infos[LIMIT_DEVICES];
    for (uint32_t i = 0; i < *n_found; i++)
        infos[i] = &vets[i].info;
    details_fill(NULL, infos, *n_found);
    for (uint32_t i = 0; i < backend_count(); i++) {
        const struct backend *backend = backend_at(i);
        if (!in_chain(chain, backend->name)) {
            struct backend_status *status = add_status(gpu, backend);
            snprintf(status->reason, sizeof status->reason, "not on %s",
                     factory_platform_name(platform));
        }
    }
}

enum error_code gpu_find_real(struct gpu *gpu, const struct gpu_options *options, struct error *err)
{
    struct found_device found[LIMIT_DEVICES];
    uint32_t n_found = 0;
    struct vet *vets = mem_new_array(LIMIT_DEVICES, sizeof *vets);
    if (!vets)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    struct registry known;
    registry_load(options->registry, &known);
    gpu_find_list_all(gpu, options, &known, found, vets, &n_found);
    vet_devices(vets, n_found, &known, options);
    registry_deinit(&known);
    for (uint32_t i = 0; i < n_found; i++) {
        uint32_t n_before = gpu->n_devices;
        try_device(gpu, &found[i], &vets[i], options);
        if (gpu->n_devices > n_before) {
            struct backend_status *status = &gpu->backends[found[i].status];
            status->available = true;
            status->reason[0] = 0;
        }
    }
    gpu_find_remember(gpu, vets, n_found, options);
    mem_free(vets);
    return ERROR_NONE;
}
