#include "cli/plan_here.h"

#include "gpu/device_sim.h"
#include "gpu/gpu.h"
#include "placement/cluster_file.h"

#include <stdio.h>
#include <string.h>

static enum cluster_kind kind_of(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_CPU:
        return CLUSTER_CPU;
    case DEVICE_GPU:
        return CLUSTER_GPU;
    case DEVICE_INTEGRATED_GPU:
        return CLUSTER_INTEGRATED_GPU;
    }
    return CLUSTER_CPU;
}

static double rate_of(struct device_measurement measurement)
{
    return measurement.n_runs ? measurement.median : 0;
}

static void fill_calibration(const struct device_calibration *calibration, struct cluster_device *out)
{
    for (uint32_t i = 0; i < calibration->n_types && i < CLUSTER_TYPES_MAX; i++) {
        const struct calibration_type *type = &calibration->types[i];
        struct cluster_type *copy = &out->types[out->n_types++];
        copy->decode_bytes_per_s = rate_of(type->decode_bytes_per_s);
        copy->decode_spread = type->decode_bytes_per_s.n_runs ? type->decode_bytes_per_s.spread : 0;
        copy->prefill_flops = rate_of(type->prefill_flops);
        snprintf(copy->name, sizeof copy->name, "%s", type->name);
        if (copy->decode_bytes_per_s > 0)
            out->speed = CLUSTER_MEASURED;
    }
    out->launch_s = rate_of(calibration->launch_ns) * 1e-9;
    out->read_bytes_per_s = rate_of(calibration->read_bytes_per_s);
    out->write_bytes_per_s = rate_of(calibration->write_bytes_per_s);
}

static void fill(const struct device *device, struct cluster_device *out)
{
    const struct device_info *info = device_info(device);
    const struct device_calibration *calibration = device_calibration(device);
    const bool is_simulated = device_info_is_simulated(info);
    out->kind = kind_of(info->kind);
    out->own_memory = out->kind == CLUSTER_GPU || is_simulated;
    out->is_software = out->kind == CLUSTER_CPU && !is_simulated && strcmp(info->backend, "cpu") != 0;
    out->memory_bytes = device_memory(device).free_bytes;
    out->reserve_bytes = is_simulated ? 0 : cluster_default_reserve(out->memory_bytes);
    out->share = 1;
    snprintf(out->id, sizeof out->id, "%s", info->id);
    snprintf(out->name, sizeof out->name, "%s", info->name);
    snprintf(out->pci, sizeof out->pci, "%s", info->pci);
    struct device_speed given;
    if (device_given_speed(device, &given)) {
        out->speed = CLUSTER_GIVEN;
        out->decode_bytes_per_s = given.decode_bytes_per_s;
        out->prefill_flops = given.flops;
        out->read_bytes_per_s = out->write_bytes_per_s = given.copy_bytes_per_s;
        out->launch_s = given.launch_s;
    } else if (calibration) {
        fill_calibration(calibration, out);
    }
}

enum error_code plan_here(const struct gpu *gpu, bool simulated_only, struct cluster *out, struct error *err)
{
    *out = (struct cluster){0};
    struct cluster_node *node = cluster_add_node(out);
    enum error_code code = node ? ERROR_NONE : ERROR_NO_MEMORY;
    if (node)
        snprintf(node->name, sizeof node->name, "here");
    for (uint32_t i = 0; i < gpu_device_count(gpu) && !code; i++) {
        const struct device *device = gpu_device(gpu, i);
        if (simulated_only && !device_info_is_simulated(device_info(device)))
            continue;
        struct cluster_device *added = cluster_add_device(out);
        if (added)
            fill(device, added);
        else
            code = ERROR_NO_MEMORY;
    }
    if (code)
        error_set(err, code, "no memory for the devices of this machine");
    else if (!out->n_devices)
        code = error_set(err, ERROR_NOT_FOUND, "no device can be used; `medley devices` says why");
    if (code)
        cluster_deinit(out);
    return code;
}
