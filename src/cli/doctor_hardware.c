#include "cli/doctor_hardware.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/this_process.h"
#include "base/version.h"
#include "gpu/gpu.h"
#include "gpu/operations.h"
#include "sensors/telemetry.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

enum { OPERATION_LIMIT_MS = 60 * 1000 };

/* ---- what the sensors said under load ------------------------------------------------------ */

struct hardware_range {
    uint32_t n;
    double lowest, highest;
};

struct hardware_watch {
    struct hardware_range temperature_mc, power_mw, clock_mhz;
    uint32_t n_samples;
};

static void range_take(struct hardware_range *range, struct reading reading)
{
    if (!reading.valid)
        return;
    if (!range->n || reading.value < range->lowest)
        range->lowest = reading.value;
    if (!range->n || reading.value > range->highest)
        range->highest = reading.value;
    range->n++;
}

/* On the telemetry's thread, which has ended before the watch is read. */
static void hardware_take_sample(void *arg, const struct sensor_sample *sample)
{
    struct hardware_watch *watch = arg;
    watch->n_samples++;
    range_take(&watch->temperature_mc, sample->devices[0].temperature_mc);
    range_take(&watch->power_mw, sample->devices[0].power_mw);
    range_take(&watch->clock_mhz, sample->devices[0].clock_mhz);
}

/* ---- one device ---------------------------------------------------------------------------- */

static void hardware_say_operation(void *user, const struct operation_check *next)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s: %s %s", (const char *)user, next->name, next->type);
}

static void hardware_say_measure(void *user, const char *device_id, const char *what, uint32_t done,
                                 uint32_t total)
{
    (void)user;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s under load: %u of %u, %s", device_id, done, total, what);
}

/* False: it did not answer, and must not be used again. */
static bool hardware_put_operations(yyjson_mut_doc *doc, yyjson_mut_val *object,
                                    struct device *device, uint32_t *n_wrong)
{
    struct operation_check *checks = mem_new_array(OPERATIONS_MAX, sizeof *checks);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, object, "operations");
    const uint32_t n = checks ? operations_check(device, OPERATION_LIMIT_MS, hardware_say_operation,
                                                 (void *)(uintptr_t)device_info(device)->id, checks)
                              : 0;
    for (uint32_t i = 0; i < n; i++) {
        yyjson_mut_val *row = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_strcpy(doc, row, "name", checks[i].name);
        if (checks[i].type[0])
            yyjson_mut_obj_add_strcpy(doc, row, "type", checks[i].type);
        yyjson_mut_obj_add_str(doc, row, "verdict", operation_verdict_name(checks[i].verdict));
        if (isfinite(checks[i].error))
            yyjson_mut_obj_add_real(doc, row, "nmse", checks[i].error);
        *n_wrong += checks[i].verdict == OPERATION_WRONG || checks[i].verdict == OPERATION_FAILED;
    }
    const bool answers = !n || checks[n - 1].verdict != OPERATION_FAILED;
    mem_free(checks);
    return answers;
}

static void hardware_put_range(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                               const struct hardware_range *range)
{
    if (!range->n) {
        yyjson_mut_obj_add_null(doc, object, key);
        return;
    }
    yyjson_mut_val *item = yyjson_mut_obj_add_obj(doc, object, key);
    yyjson_mut_obj_add_real(doc, item, "lowest", range->lowest);
    yyjson_mut_obj_add_real(doc, item, "highest", range->highest);
    yyjson_mut_obj_add_uint(doc, item, "readings", range->n);
}

static void hardware_put_measurement(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                                     struct device_measurement measurement)
{
    if (measurement.n_runs)
        yyjson_mut_obj_add_real(doc, object, key, measurement.median);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void hardware_put_speed(yyjson_mut_doc *doc, yyjson_mut_val *object,
                               const struct device_calibration *found)
{
    yyjson_mut_val *speed = yyjson_mut_obj_add_obj(doc, object, "speed");
    hardware_put_measurement(doc, speed, "write_bytes_per_s", found->write_bytes_per_s);
    hardware_put_measurement(doc, speed, "read_bytes_per_s", found->read_bytes_per_s);
    hardware_put_measurement(doc, speed, "launch_ns", found->launch_ns);
    yyjson_mut_val *types = yyjson_mut_obj_add_arr(doc, speed, "types");
    for (uint32_t i = 0; i < found->n_types; i++) {
        yyjson_mut_val *type = yyjson_mut_arr_add_obj(doc, types);
        yyjson_mut_obj_add_strcpy(doc, type, "name", found->types[i].name);
        hardware_put_measurement(doc, type, "decode_bytes_per_s",
                                 found->types[i].decode_bytes_per_s);
        hardware_put_measurement(doc, type, "prefill_flops", found->types[i].prefill_flops);
    }
}

/* Measuring is the load: products of all types, one after the other, for so long. */
static bool hardware_put_load(yyjson_mut_doc *doc, yyjson_mut_val *object, struct gpu *gpu,
                              struct device *device, uint32_t seconds)
{
    struct hardware_watch watch = {0};
    const struct telemetry_options watching = {.on_sample = hardware_take_sample, .arg = &watch};
    const struct calibration_options load = {.budget_ms = (uint64_t)seconds * 1000,
                                             .limit_ms =
                                                 (uint64_t)seconds * 3000 + LIMIT_CALIBRATION_MS,
                                             .progress = hardware_say_measure};
    struct telemetry *telemetry = NULL;
    struct error err;
    if (telemetry_open(&watching, device_info(device), 1, &telemetry, &err))
        log_line(LOG_WARN, "doctor", "sensors are not watched: %s", err.text);
    const enum error_code code = gpu_calibrate(gpu, &device, 1, &load, &err);
    telemetry_close(telemetry);
    if (code)
        yyjson_mut_obj_add_strcpy(doc, object, "load_problem", err.text);
    if (device_calibration(device))
        hardware_put_speed(doc, object, device_calibration(device));
    yyjson_mut_val *sensors = yyjson_mut_obj_add_obj(doc, object, "sensors_under_load");
    yyjson_mut_obj_add_uint(doc, sensors, "samples", watch.n_samples);
    hardware_put_range(doc, sensors, "temperature_mc", &watch.temperature_mc);
    hardware_put_range(doc, sensors, "power_mw", &watch.power_mw);
    hardware_put_range(doc, sensors, "clock_mhz", &watch.clock_mhz);
    return code == ERROR_NONE;
}

/* What nobody told is left out. */
static void hardware_put_record(yyjson_mut_doc *doc, yyjson_mut_val *object,
                                const struct device_info *info)
{
    const struct {
        const char *key;
        struct reading reading;
    } rows[] = {{"compute_units", info->compute_units},
                {"threads_per_block_max", info->threads_per_block_max},
                {"clock_mhz_max", info->clock_mhz},
                {"peer_to_peer", info->peer_to_peer}};
    yyjson_mut_obj_add_str(doc, object, "driver_name", info->driver_name);
    yyjson_mut_obj_add_str(doc, object, "driver", info->driver);
    yyjson_mut_obj_add_str(doc, object, "driver_fault", info->driver_fault);
    yyjson_mut_obj_add_str(doc, object, "architecture", info->architecture);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].reading.valid)
            yyjson_mut_obj_add_uint(doc, object, rows[i].key, reading_whole(rows[i].reading));
    }
}

static void hardware_put_device(yyjson_mut_doc *doc, yyjson_mut_val *list, struct gpu *gpu,
                                struct device *device, uint32_t seconds, uint32_t *n_wrong)
{
    const struct device_info *info = device_info(device);
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_obj_add_str(doc, object, "id", info->id);
    yyjson_mut_obj_add_str(doc, object, "name", info->name);
    yyjson_mut_obj_add_str(doc, object, "vendor", info->vendor);
    yyjson_mut_obj_add_str(doc, object, "backend", info->backend);
    hardware_put_record(doc, object, info);
    yyjson_mut_obj_add_uint(doc, object, "memory_bytes", info->memory_total_bytes);
    bool answers = true;
    if (strcmp(info->backend, "cpu") == 0)
        yyjson_mut_obj_add_str(doc, object, "compared_with", "nothing: it is the reference");
    else
        answers = hardware_put_operations(doc, object, device, n_wrong);
    if (answers)
        *n_wrong += !hardware_put_load(doc, object, gpu, device, seconds);
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* ---- the report ---------------------------------------------------------------------------- */

/* Of a reason the kind alone: reasons name files. */
static void hardware_put_rejected(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct gpu *gpu)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "rejected");
    for (uint32_t i = 0; i < gpu_rejected_count(gpu); i++) {
        yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
        yyjson_mut_obj_add_str(doc, object, "id", gpu_rejected(gpu, i)->info.id);
        yyjson_mut_obj_add_str(doc, object, "name", gpu_rejected(gpu, i)->info.name);
    }
    list = yyjson_mut_obj_add_arr(doc, root, "backends");
    for (uint32_t i = 0; i < gpu_backend_count(gpu); i++) {
        if (gpu_backend(gpu, i)->available)
            yyjson_mut_arr_add_str(doc, list, gpu_backend(gpu, i)->name);
    }
}

static bool hardware_write(yyjson_mut_doc *doc, const char *path, struct error *err)
{
    size_t size;
    char *text =
        yyjson_mut_write(doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_ALLOW_INVALID_UNICODE, &size);
    FILE *file = !text ? NULL : path ? fopen(path, "wxe") : stdout;
    bool ok = file && fwrite(text, 1, size, file) == size && fputc('\n', file) != EOF &&
              fflush(file) == 0;
    if (!text)
        error_set(err, ERROR_NO_MEMORY, "out of memory");
    else if (!ok)
        error_set(err, ERROR_IO, "cannot write the report to %s: %s", path ? path : "stdout",
                  strerror(errno));
    if (path && file)
        fclose(file);
    free(text);
    return ok;
}

int doctor_hardware_run(const struct command *command, uint32_t seconds, const char *path)
{
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    const struct gpu_options wanted = {
        .registry = registry, .prober = this_program(), .verify = true};
    struct gpu *gpu = NULL;
    struct error err = {0};
    if (path && access(path, F_OK) == 0) /* said before the minute, not after it */
        error_set(&err, ERROR_INVALID, "%s exists: the report goes into a new file", path);
    else
        err.code = gpu_open(&wanted, &gpu, &err);
    if (err.code)
        return command_fail(command, &err);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    uint32_t n_wrong = 0;
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "medley", MEDLEY_VERSION);
    yyjson_mut_obj_add_str(doc, root, "ggml", gpu_ggml_version());
    yyjson_mut_obj_add_uint(doc, root, "seconds", seconds);
    hardware_put_rejected(doc, root, gpu);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "devices");
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++)
        hardware_put_device(doc, list, gpu, gpu_device(gpu, i), seconds, &n_wrong);
    const bool written = hardware_write(doc, path, &err);
    yyjson_mut_doc_free(doc);
    n_wrong += gpu_rejected_count(gpu);
    gpu_close(gpu);
    if (!written)
        return command_fail(command, &err);
    fprintf(stderr, "medley doctor: %s%s%s\n", n_wrong ? "something is wrong" : "all devices agree",
            path ? "; the report is " : "", path ? path : "");
    return n_wrong ? EXIT_FAILED : EXIT_OK;
}
