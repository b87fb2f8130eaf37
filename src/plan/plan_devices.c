#include "plan/plan_devices.h"

#include "clusterfile/cluster_file.h"
#include "clusterfile/cluster_problem.h"
#include "placement/cost.h"
#include "simdevices/sim_presets.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- one device ----------------------------------------------------------------------- */

static enum cluster_kind plan_devices_kind_of(enum device_kind kind)
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

static double plan_devices_rate_of(struct device_measurement measurement)
{
    return measurement.n_runs ? measurement.median : 0;
}

static void take_given(const struct device_speed *given, struct cluster_device *out)
{
    out->speed = CLUSTER_GIVEN;
    out->decode_bytes_per_s = given->decode_bytes_per_s;
    out->prefill_flops = given->flops;
    out->read_bytes_per_s = out->write_bytes_per_s = given->copy_bytes_per_s;
    out->launch_s = given->launch_s;
}

static void take_calibration(const struct device_calibration *calibration,
                             struct cluster_device *out)
{
    for (uint32_t i = 0; i < calibration->n_types && i < CLUSTER_TYPES_MAX; i++) {
        const struct calibration_type *type = &calibration->types[i];
        struct cluster_type *copy = &out->types[out->n_types++];
        copy->decode_bytes_per_s = plan_devices_rate_of(type->decode_bytes_per_s);
        copy->decode_spread = type->decode_bytes_per_s.n_runs ? type->decode_bytes_per_s.spread : 0;
        copy->prefill_flops = plan_devices_rate_of(type->prefill_flops);
        snprintf(copy->name, sizeof copy->name, "%s", type->name);
        if (copy->decode_bytes_per_s > 0)
            out->speed = CLUSTER_MEASURED;
    }
    out->launch_s = plan_devices_rate_of(calibration->launch_ns) * 1e-9;
    out->read_bytes_per_s = plan_devices_rate_of(calibration->read_bytes_per_s);
    out->write_bytes_per_s = plan_devices_rate_of(calibration->write_bytes_per_s);
}

static void take_published(const char *name, struct cluster_device *out)
{
    struct sim_published published;
    if (!sim_preset_published(name, &published))
        return;
    out->speed = CLUSTER_DATASHEET;
    out->decode_bytes_per_s = published.bandwidth_gb_per_s * 1e9;
    out->prefill_flops = published.tflops * 1e12;
}

static void plan_devices_take_memory(struct device_memory memory, struct cluster_device *out)
{
    const bool bounded = memory.total_bytes && memory.free_bytes < PLACEMENT_BYTES_MAX;
    out->memory_bytes = bounded ? memory.free_bytes : PLACEMENT_BYTES_MAX;
    out->reserve_bytes =
        bounded && out->speed != CLUSTER_GIVEN ? cluster_default_reserve(out->memory_bytes) : 0;
}

void plan_device_describe(const struct plan_device_facts *facts, struct cluster_device *out)
{
    const struct device_info *info = facts->info;
    *out = (struct cluster_device){.kind = plan_devices_kind_of(info->kind), .share = 1};
    snprintf(out->id, sizeof out->id, "%s", info->id);
    snprintf(out->name, sizeof out->name, "%s", info->name);
    snprintf(out->pci, sizeof out->pci, "%s", info->pci);
    out->own_memory = out->kind == CLUSTER_GPU || facts->given;
    out->is_software =
        out->kind == CLUSTER_CPU && !facts->given && strcmp(info->backend, "cpu") != 0;
    if (facts->given)
        take_given(facts->given, out);
    else if (facts->calibration)
        take_calibration(facts->calibration, out);
    if (out->speed == CLUSTER_ASSUMED)
        take_published(info->name, out);
    plan_devices_take_memory(facts->memory, out);
}

/* ---- all of them ---------------------------------------------------------------------- */

void plan_device_ask(const struct device *device, struct cluster_device *out)
{
    struct device_speed speed;
    const struct plan_device_facts facts = {
        .info = device_info(device),
        .memory = device_memory(device),
        .given = device_given_speed(device, &speed) ? &speed : NULL,
        .calibration = device_calibration(device),
    };
    plan_device_describe(&facts, out);
}

enum error_code plan_devices_init(struct cluster *out, struct device *const *devices,
                                  uint32_t n_devices, struct error *err)
{
    *out = (struct cluster){0};
    struct cluster_node *node = cluster_add_node(out);
    if (!node)
        goto no_memory;
    snprintf(node->name, sizeof node->name, "here");
    for (uint32_t i = 0; i < n_devices; i++) {
        struct cluster_device *device = cluster_add_device(out);
        if (!device)
            goto no_memory;
        plan_device_ask(devices[i], device);
    }
    return ERROR_NONE;

no_memory:
    cluster_deinit(out);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory to plan for %u devices", n_devices);
}

bool plan_devices_spare(struct cluster *cluster, uint32_t n_spare,
                        const struct placement_model *model)
{
    assert(n_spare < cluster->n_devices);
    for (uint32_t i = cluster->n_devices - n_spare; i < cluster->n_devices; i++)
        cluster->devices[i].spare = true;
    return plan_devices_stand_by(cluster, model);
}

static bool all_measured(const struct cluster *cluster, const struct cluster_node *node,
                         const struct placement_model *model)
{
    bool all = true;
    for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++) {
        struct placement_device device;
        cluster_device_describe(&cluster->devices[i], model, &device);
        all = all && device.measured;
    }
    return all;
}

bool plan_devices_stand_by(struct cluster *cluster, const struct placement_model *model)
{
    bool any = false;
    for (uint32_t n = 0; n < cluster->n_nodes; n++) {
        const struct cluster_node *node = &cluster->nodes[n];
        const bool measured = all_measured(cluster, node, model);
        for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++) {
            cluster->devices[i].spare = cluster->devices[i].spare && !measured;
            any = any || cluster->devices[i].spare;
        }
    }
    return any;
}

void plan_devices_call_in(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->n_devices; i++)
        cluster->devices[i].spare = false;
}

void plan_devices_take(struct cluster *cluster, const struct placement_problem *problem,
                       const struct placement *placement)
{
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i].device >= cluster->n_devices)
            continue;
        struct cluster_device *device = &cluster->devices[placement->stages[i].device];
        const uint64_t bytes = placement_stage_bytes(problem, &placement->stages[i]);
        if (device->memory_bytes < PLACEMENT_BYTES_MAX)
            device->memory_bytes -= bytes < device->memory_bytes ? bytes : device->memory_bytes;
    }
}

bool plan_devices_count_embedding(const struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->n_devices; i++) {
        if (!cluster->devices[i].own_memory || cluster->devices[i].speed == CLUSTER_GIVEN)
            return true;
    }
    return false;
}
