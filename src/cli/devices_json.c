/* The JSON of `medley devices`. */
#include "cli/devices_calibration.h"
#include "cli/devices_view.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char *support_name(enum support_level support)
{
    switch (support) {
    case SUPPORT_TESTED:
        return "tested";
    case SUPPORT_EXPECTED:
        return "expected";
    case SUPPORT_EXPERIMENTAL:
        return "experimental";
    }
    return "";
}

/* Unknown text is "" and becomes null. The strings outlive the document. */
static void json_text(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                      const char *text)
{
    if (text[0])
        yyjson_mut_obj_add_str(doc, object, key, text);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void json_reading(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                         struct reading reading)
{
    if (reading.valid)
        yyjson_mut_obj_add_uint(doc, object, key, reading_whole(reading));
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void json_bytes(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key, bool known,
                       uint64_t bytes)
{
    if (known)
        yyjson_mut_obj_add_uint(doc, object, key, bytes);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void json_precisions(yyjson_mut_doc *doc, yyjson_mut_val *object, uint32_t precisions)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } known[] = {{PRECISION_F32, "f32"},
                 {PRECISION_F16, "f16"},
                 {PRECISION_BF16, "bf16"},
                 {PRECISION_INT8, "int8"},
                 {PRECISION_INT4, "int4"}};
    yyjson_mut_val *names = yyjson_mut_obj_add_arr(doc, object, "precisions");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (precisions & known[i].bit)
            yyjson_mut_arr_add_str(doc, names, known[i].name);
    }
}

static yyjson_mut_val *json_info(yyjson_mut_doc *doc, yyjson_mut_val *list,
                                 const struct device_info *info)
{
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
    json_text(doc, object, "id", info->id);
    json_text(doc, object, "name", info->name);
    json_text(doc, object, "vendor", info->vendor);
    json_text(doc, object, "backend", info->backend);
    json_text(doc, object, "kind", devices_kind_name(info->kind));
    json_text(doc, object, "architecture", info->architecture);
    json_text(doc, object, "driver", info->driver);
    json_text(doc, object, "driver_name", info->driver_name);
    json_text(doc, object, "driver_fault", info->driver_fault);
    json_text(doc, object, "pci", info->pci);
    const bool has_memory = info->memory_total_bytes != 0;
    json_bytes(doc, object, "memory_total_bytes", has_memory, info->memory_total_bytes);
    json_bytes(doc, object, "memory_free_bytes", has_memory, info->memory_free_bytes);
    json_reading(doc, object, "compute_units", info->compute_units);
    json_reading(doc, object, "clock_mhz", info->clock_mhz);
    json_reading(doc, object, "bandwidth_mb_per_s", info->bandwidth_mb_per_s);
    json_reading(doc, object, "peak_mflops", info->peak_mflops);
    json_precisions(doc, object, info->precisions);
    json_reading(doc, object, "threads_per_block_max", info->threads_per_block_max);
    if (info->peer_to_peer.valid)
        yyjson_mut_obj_add_bool(doc, object, "peer_to_peer", info->peer_to_peer.value > 0);
    else
        yyjson_mut_obj_add_null(doc, object, "peer_to_peer");
    json_text(doc, object, "support", support_name(info->support));
    return object;
}

/* ---- readings -------------------------------------------------------------------------- */

struct field {
    const char *name;
    size_t offset;
    double scale; /* of the number that is shown; 0: 1 */
};

static const struct field device_fields[] = {
    {"memory_used_bytes", offsetof(struct sensor_device, memory_used_bytes)},
    {"memory_free_bytes", offsetof(struct sensor_device, memory_free_bytes)},
    {"utilisation_pct", offsetof(struct sensor_device, utilisation_pct)},
    {"temperature_mc", offsetof(struct sensor_device, temperature_mc)},
    {"power_mw", offsetof(struct sensor_device, power_mw)},
    {"clock_mhz", offsetof(struct sensor_device, clock_mhz)},
    {"power_limit_mw", offsetof(struct sensor_device, power_limit_mw)},
    {"temperature_slowdown_mc", offsetof(struct sensor_device, temperature_slowdown_mc)},
    {"temperature_critical_mc", offsetof(struct sensor_device, temperature_critical_mc)},
};

static const struct field node_fields[] = {
    {"battery_pct", offsetof(struct sensor_node, battery_pct)},
    {"on_ac", offsetof(struct sensor_node, on_ac)},
    {"cpu_utilisation_pct", offsetof(struct sensor_node, cpu_utilisation_pct)},
    {"memory_total_bytes", offsetof(struct sensor_node, memory_total_bytes)},
    {"memory_available_bytes", offsetof(struct sensor_node, memory_available_bytes)},
    {"memory_stall_some_ppm", offsetof(struct sensor_node, memory_stall_some_share), 1e6},
    {"memory_stall_full_ppm", offsetof(struct sensor_node, memory_stall_full_share), 1e6},
};

/* Its time on the wall clock, null when no source has it. */
static void json_time(yyjson_mut_doc *doc, yyjson_mut_val *object, const struct devices_view *view,
                      const struct reading *reading)
{
    uint64_t now_ns =
        view->sample.time_ns > reading->time_ns ? view->sample.time_ns : reading->time_ns;
    uint64_t age_ms = (now_ns - reading->time_ns) / 1000000;
    if (reading->time_ns && age_ms <= view->sample_unix_ms)
        yyjson_mut_obj_add_uint(doc, object, "unix_ms", view->sample_unix_ms - age_ms);
    else
        yyjson_mut_obj_add_null(doc, object, "unix_ms");
}

/* "NAME": {"valid": …, "value": … or null, "unix_ms": …} for every reading of a struct of
 * readings. */
static void json_readings(yyjson_mut_doc *doc, yyjson_mut_val *object,
                          const struct devices_view *view, const void *readings,
                          const struct field *fields, size_t n_fields)
{
    for (size_t i = 0; i < n_fields; i++) {
        struct reading reading;
        memcpy(&reading, (const char *)readings + fields[i].offset, sizeof reading);
        yyjson_mut_val *value = yyjson_mut_obj_add_obj(doc, object, fields[i].name);
        yyjson_mut_obj_add_bool(doc, value, "valid", reading.valid);
        if (fields[i].scale > 0)
            reading.value = round(reading.value * fields[i].scale);
        json_reading(doc, value, "value", reading);
        json_time(doc, value, view, &reading);
    }
}

static void json_battery_state(yyjson_mut_doc *doc, yyjson_mut_val *object,
                               const struct devices_view *view)
{
    static const char *const names[] = {
        [BATTERY_DISCHARGING] = "discharging",
        [BATTERY_CHARGING] = "charging",
        [BATTERY_FULL] = "full",
        [BATTERY_NOT_CHARGING] = "not charging",
    };
    const struct reading *state = &view->sample.node.battery_state;
    yyjson_mut_val *value = yyjson_mut_obj_add_obj(doc, object, "battery_state");
    yyjson_mut_obj_add_bool(doc, value, "valid", state->valid);
    json_text(doc, value, "value", state->valid ? names[reading_whole(*state)] : "");
    json_time(doc, value, view, state);
}

/* ---- the lists ------------------------------------------------------------------------- */

static void json_devices(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct devices_view *view)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "devices");
    for (uint32_t i = 0; i < view->n_devices; i++) {
        const struct sensor_device *readings = &view->sample.devices[i];
        yyjson_mut_val *object = json_info(doc, list, &view->infos[i]);
        json_reading(doc, object, "temperature_mc", readings->temperature_mc);
        json_reading(doc, object, "power_mw", readings->power_mw);
        json_readings(doc, yyjson_mut_obj_add_obj(doc, object, "readings"), view, readings,
                      device_fields, sizeof device_fields / sizeof *device_fields);
        devices_json_measured(doc, object, gpu_device(view->gpu, i));
    }
    list = yyjson_mut_obj_add_arr(doc, root, "rejected");
    for (uint32_t i = 0; i < gpu_rejected_count(view->gpu); i++) {
        const struct device_rejected *rejected = gpu_rejected(view->gpu, i);
        json_text(doc, json_info(doc, list, &rejected->info), "reason", rejected->reason);
    }
}

static void json_availability(yyjson_mut_doc *doc, yyjson_mut_val *list, const char *name,
                              bool available, const char *reason)
{
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
    json_text(doc, object, "name", name);
    yyjson_mut_obj_add_bool(doc, object, "available", available);
    json_text(doc, object, "reason", reason);
}

static void json_sources(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct devices_view *view)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "backends");
    for (uint32_t i = 0; i < gpu_backend_count(view->gpu); i++) {
        const struct backend_status *backend = gpu_backend(view->gpu, i);
        json_availability(doc, list, backend->name, backend->available, backend->reason);
    }
    list = yyjson_mut_obj_add_arr(doc, root, "sensors");
    for (uint32_t i = 0; i < view->n_sources; i++) {
        const struct sensor_source *source = &view->sources[i].source;
        json_availability(doc, list, source->name, source->available, source->reason);
    }
    yyjson_mut_val *machine = yyjson_mut_obj_add_obj(doc, root, "machine");
    json_readings(doc, machine, view, &view->sample.node, node_fields,
                  sizeof node_fields / sizeof *node_fields);
    json_battery_state(doc, machine, view);
}

static void json_summary(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct devices_view *view)
{
    const struct aggregate *aggregate = &view->aggregate;
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "summary");
    yyjson_mut_obj_add_uint(doc, object, "devices", aggregate->n_devices);
    yyjson_mut_obj_add_uint(doc, object, "devices_with_bandwidth", aggregate->n_measured);
    yyjson_mut_obj_add_uint(doc, object, "devices_with_mflops", aggregate->n_rated);
    yyjson_mut_obj_add_uint(doc, object, "memory_total_bytes", aggregate->memory_total_bytes);
    yyjson_mut_obj_add_uint(doc, object, "memory_free_bytes", aggregate->memory_free_bytes);
    json_reading(doc, object, "bandwidth_mb_per_s_mean", aggregate->bandwidth_mb_per_s_mean);
    json_reading(doc, object, "bandwidth_mb_per_s_min", aggregate->bandwidth_mb_per_s_min);
    json_reading(doc, object, "bandwidth_mb_per_s_max", aggregate->bandwidth_mb_per_s_max);
    json_text(doc, object, "slowest",
              aggregate->n_measured ? view->infos[aggregate->slowest].id : "");
    json_text(doc, object, "fastest",
              aggregate->n_measured ? view->infos[aggregate->fastest].id : "");
    json_reading(doc, object, "heterogeneity_permille", aggregate->heterogeneity_permille);
    json_reading(doc, object, "mflops_total", aggregate->mflops_total);
    yyjson_mut_val *vendors = yyjson_mut_obj_add_arr(doc, object, "vendors");
    for (uint32_t i = 0; i < aggregate->n_vendors; i++) {
        yyjson_mut_val *vendor = yyjson_mut_arr_add_obj(doc, vendors);
        json_text(doc, vendor, "name", aggregate->vendors[i].name);
        yyjson_mut_obj_add_uint(doc, vendor, "devices", aggregate->vendors[i].n_devices);
    }
    char text[AGGREGATE_TEXT_BYTES];
    aggregate_text(aggregate, view->infos, text, sizeof text);
    yyjson_mut_obj_add_strcpy(doc, object, "text", text);
}

bool devices_print_json(const struct devices_view *view)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    json_devices(doc, root, view);
    json_sources(doc, root, view);
    json_summary(doc, root, view);
    json_text(doc, root, "registry_problem", gpu_registry_problem(view->gpu));
    /* reasons may quote a folder's name, which may be anything */
    char *text =
        yyjson_mut_write(doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_ALLOW_INVALID_UNICODE, NULL);
    if (text)
        puts(text);
    free(text);
    yyjson_mut_doc_free(doc);
    return text != NULL;
}
