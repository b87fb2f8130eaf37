/* Reads a list of devices: gpu_select(). */
#include "gpu/gpu.h"

#include "gpu/device_sim.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void gpu_select_list_ids(const struct gpu *gpu, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < gpu_device_count(gpu) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "",
                                 device_info(gpu_device(gpu, i))->id);
}

static const struct device_rejected *find_rejected(const struct gpu *gpu, const char *id)
{
    for (uint32_t i = 0; i < gpu_rejected_count(gpu); i++) {
        if (strcmp(gpu_rejected(gpu, i)->info.id, id) == 0)
            return gpu_rejected(gpu, i);
    }
    return NULL;
}

static enum error_code gpu_select_unknown(const struct gpu *gpu, const char *id, struct error *err)
{
    char ids[256];
    gpu_select_list_ids(gpu, ids, sizeof ids);
    const struct device_rejected *rejected = find_rejected(gpu, id);
    if (rejected)
        return error_set(err, ERROR_NOT_FOUND, "device %s is not usable: %s; there are: %s", id,
                         rejected->reason, ids);
    return error_set(err, ERROR_NOT_FOUND, "no device '%s'; there are: %s", id, ids);
}

static enum error_code gpu_select_add(const struct gpu *gpu, const char *id, struct device **out,
                                      uint32_t max, uint32_t *n_out, struct error *err)
{
    char ids[256];
    gpu_select_list_ids(gpu, ids, sizeof ids);
    if (!id[0])
        return error_set(err, ERROR_INVALID, "the device list has an empty name; there are: %s",
                         ids);
    struct device *device = gpu_find(gpu, id);
    if (!device)
        return gpu_select_unknown(gpu, id, err);
    for (uint32_t i = 0; i < *n_out; i++) {
        if (out[i] == device)
            return error_set(err, ERROR_INVALID, "device %s is named twice; there are: %s", id,
                             ids);
    }
    if (*n_out == max)
        return error_set(err, ERROR_INVALID, "more than %u devices are named", max);
    out[(*n_out)++] = device;
    return ERROR_NONE;
}

/* Who names a file of simulated devices wants to see them, and never real ones in their place. */
static enum error_code select_simulated(const struct gpu *gpu, struct device **out, uint32_t max,
                                        uint32_t *n_out, struct error *err)
{
    for (uint32_t i = 0; i < gpu_device_count(gpu) && *n_out < max; i++) {
        if (device_info_is_simulated(device_info(gpu_device(gpu, i))))
            out[(*n_out)++] = gpu_device(gpu, i);
    }
    for (uint32_t i = 0; i < gpu_rejected_count(gpu) && !*n_out; i++) {
        const struct device_rejected *rejected = gpu_rejected(gpu, i);
        if (device_info_is_simulated(&rejected->info))
            return error_set(err, ERROR_DEVICE, "no simulated device is usable; %s: %s",
                             rejected->info.id, rejected->reason);
    }
    return ERROR_NONE;
}

static void select_default(const struct gpu *gpu, struct device **out, uint32_t max,
                           uint32_t *n_out)
{
    for (uint32_t i = 0; i < gpu_device_count(gpu) && *n_out < max; i++) {
        if (device_info(gpu_device(gpu, i))->kind != DEVICE_CPU)
            out[(*n_out)++] = gpu_device(gpu, i);
    }
    if (*n_out == 0)
        out[(*n_out)++] = gpu_find(gpu, "cpu");
}

enum error_code gpu_select(const struct gpu *gpu, const char *list, struct device **out,
                           uint32_t max, uint32_t *n_out, struct error *err)
{
    assert(gpu && out && n_out && max);
    *n_out = 0;
    if (!list) {
        enum error_code code = select_simulated(gpu, out, max, n_out, err);
        if (!code && !*n_out)
            select_default(gpu, out, max, n_out);
        return code;
    }
    for (const char *at = list;; at++) {
        char id[sizeof((struct device_info *)0)->id];
        size_t length = strcspn(at, ",");
        snprintf(id, sizeof id, "%.*s", length < sizeof id ? (int)length : (int)sizeof id, at);
        enum error_code code = gpu_select_add(gpu, id, out, max, n_out, err);
        if (code) {
            *n_out = 0;
            return code;
        }
        at += length;
        if (!*at)
            return ERROR_NONE;
    }
}
