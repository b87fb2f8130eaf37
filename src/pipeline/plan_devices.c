#include "pipeline/plan_devices.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double not_measured_share = 0.01; /* of the model's bytes, that make a forecast an estimate */

/* ---- one device ----------------------------------------------------------------------- */

static void describe_given(const struct device_speed *speed, const struct placement_model *model,
                           struct placement_device *out)
{
    for (uint32_t i = 0; i < model->n_types; i++) {
        out->decode_bytes_per_s[i] = speed->decode_bytes_per_s;
        out->prefill_flops[i] = speed->flops;
    }
    out->kv_bytes_per_s = speed->decode_bytes_per_s;
    out->copy_bytes_per_s = speed->copy_bytes_per_s;
    out->launch_s = speed->launch_s;
    out->measured = true;
}

static uint64_t bytes_of_type(const struct placement_model *model, uint32_t type)
{
    uint64_t bytes = model->output.bytes[type];
    for (uint32_t i = 0; i < model->n_layers; i++)
        bytes += model->layers[i].bytes[type];
    return bytes;
}

static const struct calibration_type *find_type(const struct device_calibration *calibration, const char *name)
{
    for (uint32_t i = 0; i < calibration->n_types; i++) {
        if (strcmp(calibration->types[i].name, name) == 0)
            return &calibration->types[i];
    }
    return NULL;
}

static double slower(double a, double b)
{
    return a <= 0 ? b : b <= 0 ? a : fmin(a, b);
}

/* Of all that was measured the slowest. */
static struct calibration_type slowest(const struct device_calibration *calibration)
{
    struct calibration_type out = {0};
    for (uint32_t i = 0; i < calibration->n_types; i++) {
        const struct calibration_type *type = &calibration->types[i];
        out.decode_bytes_per_s.median = slower(out.decode_bytes_per_s.median, type->decode_bytes_per_s.median);
        out.prefill_flops.median = slower(out.prefill_flops.median, type->prefill_flops.median);
    }
    return out;
}

static double rate(const struct device_measurement *measurement, double instead)
{
    return measurement->n_runs ? measurement->median : instead;
}

/* False when nothing of use was measured. */
static bool describe_calibrated(const struct device_calibration *calibration, const struct placement_model *model,
                                struct placement_device *out)
{
    const struct calibration_type least = slowest(calibration);
    uint64_t unmeasured = 0, all = 0;
    if (least.decode_bytes_per_s.median <= 0)
        return false;
    for (uint32_t i = 0; i < model->n_types; i++) {
        static const struct calibration_type none;
        const struct calibration_type *type = find_type(calibration, model->type_names[i]);
        const uint64_t bytes = bytes_of_type(model, i);
        all += bytes;
        unmeasured += type && type->decode_bytes_per_s.n_runs ? 0 : bytes;
        type = type ? type : &none;
        out->decode_bytes_per_s[i] = rate(&type->decode_bytes_per_s, least.decode_bytes_per_s.median);
        out->prefill_flops[i] = rate(&type->prefill_flops, least.prefill_flops.median);
        out->spread = fmax(out->spread, fmin(type->decode_bytes_per_s.spread, 1));
    }
    out->kv_bytes_per_s = least.decode_bytes_per_s.median;
    out->copy_bytes_per_s = slower(rate(&calibration->write_bytes_per_s, 0), rate(&calibration->read_bytes_per_s, 0));
    out->launch_s = rate(&calibration->launch_ns, 0) * 1e-9;
    out->measured = (double)unmeasured <= not_measured_share * (double)all;
    return true;
}

static double guess(const struct device_info *info)
{
    switch (info->kind) {
    case DEVICE_GPU:
        return 80e9;
    case DEVICE_INTEGRATED_GPU:
        return 15e9;
    case DEVICE_CPU:
        break;
    }
    return strcmp(info->backend, "cpu") == 0 ? 15e9 : 1e9;
}

static void describe_guessed(const struct device_info *info, const struct placement_model *model,
                             struct placement_device *out)
{
    for (uint32_t i = 0; i < model->n_types; i++)
        out->decode_bytes_per_s[i] = guess(info);
    out->copy_bytes_per_s = 4e9;
    out->launch_s = 100e-6;
}

void plan_device_describe(const struct plan_device_facts *facts, const struct placement_model *model,
                          struct placement_device *out)
{
    const struct device_memory *memory = &facts->memory;
    const bool bounded = memory->total_bytes && memory->free_bytes < PLACEMENT_BYTES_MAX;
    *out = (struct placement_device){
        .memory_free_bytes = bounded ? memory->free_bytes : PLACEMENT_BYTES_MAX,
        .share = 1,
        .thermal_headroom = 1,
    };
    snprintf(out->id, sizeof out->id, "%s", facts->info->id);
    if (facts->given)
        describe_given(facts->given, model, out);
    else if (!facts->calibration || !describe_calibrated(facts->calibration, model, out))
        describe_guessed(facts->info, model, out);
}

/* ---- all of them ---------------------------------------------------------------------- */

enum error_code plan_devices_init(struct plan_devices *out, struct device *const *devices, uint32_t n_devices,
                                  const struct placement_model *model, struct error *err)
{
    const struct placement_link link = {.latency_s = 0, .bytes_per_s = PLACEMENT_RATE_MAX};
    *out = (struct plan_devices){
        .n_devices = n_devices,
        .devices = mem_new_array(n_devices, sizeof *out->devices),
        .links = mem_new_array((uint64_t)n_devices * n_devices, sizeof *out->links),
    };
    if (!out->devices || !out->links) {
        plan_devices_deinit(out);
        return error_set(err, ERROR_NO_MEMORY, "no memory to plan for %u devices", n_devices);
    }
    for (uint32_t i = 0; i < n_devices; i++) {
        struct device_speed speed;
        const bool given = device_given_speed(devices[i], &speed);
        const struct plan_device_facts facts = {
            .info = device_info(devices[i]),
            .memory = device_memory(devices[i]),
            .given = given ? &speed : NULL,
            .calibration = device_calibration(devices[i]),
        };
        plan_device_describe(&facts, model, &out->devices[i]);
        for (uint32_t j = 0; j < n_devices; j++)
            out->links[(uint64_t)i * n_devices + j] = link;
    }
    return ERROR_NONE;
}

void plan_devices_deinit(struct plan_devices *plan)
{
    if (!plan)
        return;
    mem_free(plan->devices);
    mem_free(plan->links);
    *plan = (struct plan_devices){0};
}
