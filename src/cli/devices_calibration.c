#include "cli/devices_calibration.h"

#include "gpu/calibration_json.h"
#include "simdevices/sim_presets.h"

#include <stdio.h>
#include <unistd.h>

/* ---- running one ----------------------------------------------------------------------- */

static void show_progress(void *user, const char *device_id, const char *what, uint32_t done,
                          uint32_t total)
{
    enum { WIDTH = 24 };
    (void)user;
    char bar[WIDTH + 1];
    for (uint32_t i = 0; i < WIDTH; i++)
        bar[i] = total && i < done * WIDTH / total ? '#' : '.';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r\033[Kmeasuring %-10s [%s] %u/%u %s", device_id, bar, done, total, what);
    fflush(stderr);
}

enum error_code devices_calibrate(struct gpu *gpu, struct error *err)
{
    bool terminal = isatty(STDERR_FILENO);
    const struct calibration_options options = {.progress = terminal ? show_progress : NULL};
    enum error_code code = gpu_calibrate(gpu, NULL, 0, &options, err);
    if (terminal)
        fputs("\r\033[K", stderr);
    return code;
}

/* ---- text ------------------------------------------------------------------------------ */

static void print_rate(const char *title, struct device_measurement measurement, double divisor,
                       const char *unit)
{
    if (measurement.n_runs)
        printf("  %-14s %9.2f %-8s ± %.0f %%\n", title, measurement.median / divisor, unit,
               measurement.spread * 100);
}

static void print_type(const struct calibration_type *type)
{
    if (!type->decode_bytes_per_s.n_runs) {
        printf("  %-14s cannot be computed here\n", type->name);
        return;
    }
    printf("  %-14s %9.2f GB/s     ± %.0f %% decoding", type->name,
           type->decode_bytes_per_s.median * 1e-9, type->decode_bytes_per_s.spread * 100);
    if (type->prefill_flops.n_runs)
        printf(", %.1f GFLOP/s ± %.0f %% prefill", type->prefill_flops.median * 1e-9,
               type->prefill_flops.spread * 100);
    putchar('\n');
}

static void print_calibration(const struct device *device,
                              const struct device_calibration *calibration)
{
    printf("%s%s\n", device_info(device)->id,
           calibration->is_short ? ", in a hurry: `medley up` measures it finely when it is idle"
                                 : "");
    for (uint32_t i = 0; i < calibration->n_types; i++)
        print_type(&calibration->types[i]);
    print_rate("from the host", calibration->write_bytes_per_s, 1e9, "GB/s");
    print_rate("to the host", calibration->read_bytes_per_s, 1e9, "GB/s");
    for (uint32_t i = 0; i < calibration->n_peers; i++) {
        char title[40];
        snprintf(title, sizeof title, "to %s", calibration->peers[i].id);
        print_rate(title, calibration->peers[i].bytes_per_s, 1e9, "GB/s");
    }
    print_rate("launch", calibration->launch_ns, 1e3, "us");
}

static void print_hints(const struct gpu *gpu)
{
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++) {
        const struct device *device = gpu_device(gpu, i);
        struct sim_published published;
        if (!device_calibration(device) && !device_speed_is_given(device) &&
            sim_preset_published(device_info(device)->name, &published))
            printf("  hint: %s: %.0f GB/s, %.1f TFLOP/s (f32) are published for it; a plan uses a "
                   "part of that until it is measured\n",
                   device_info(device)->id, published.bandwidth_gb_per_s, published.tflops);
    }
}

void devices_print_calibrations(const struct gpu *gpu)
{
    uint32_t n_missing = 0;
    const char *title = "\nMeasured speed (median ± spread):\n";
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++) {
        const struct device *device = gpu_device(gpu, i);
        const struct device_calibration *calibration = device_calibration(device);
        if (!calibration)
            continue;
        fputs(title, stdout);
        print_calibration(device, calibration);
        title = "";
    }
    const char *before = "\nNot calibrated: ";
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++) {
        const struct device *device = gpu_device(gpu, i);
        if (device_calibration(device) || device_speed_is_given(device))
            continue;
        printf("%s%s", before, device_info(device)->id);
        before = ", ";
        n_missing++;
    }
    if (n_missing)
        printf("; `medley devices --calibrate` measures how fast they are (some seconds each),\n"
               "and layers are then shared out by speed.\n");
    print_hints(gpu);
}

/* ---- JSON ------------------------------------------------------------------------------ */

void devices_json_measured(yyjson_mut_doc *doc, yyjson_mut_val *object, const struct device *device)
{
    static const char *const how[] = {"in process", "child", "registry"};
    struct device_verification verification = device_verification(device);
    yyjson_mut_val *verified = yyjson_mut_obj_add_obj(doc, object, "verified");
    yyjson_mut_obj_add_str(doc, verified, "how", how[verification.how]);
    yyjson_mut_obj_add_uint(doc, verified, "unix_s", verification.unix_s);
    const struct device_calibration *calibration = device_calibration(device);
    if (calibration)
        yyjson_mut_obj_add_val(doc, object, "calibration", calibration_to_json(doc, calibration));
    else
        yyjson_mut_obj_add_null(doc, object, "calibration");
    struct sim_published published;
    if (device_speed_is_given(device) ||
        !sim_preset_published(device_info(device)->name, &published)) {
        yyjson_mut_obj_add_null(doc, object, "published_hint");
        return;
    }
    yyjson_mut_val *hint = yyjson_mut_obj_add_obj(doc, object, "published_hint");
    yyjson_mut_obj_add_real(doc, hint, "bandwidth_gb_per_s", published.bandwidth_gb_per_s);
    yyjson_mut_obj_add_real(doc, hint, "tflops_f32", published.tflops);
}
