/* medley devices: what this machine can compute with, and what is missing. */
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/devices_calibration.h"
#include "cli/notice.h"
#include "gpu/gpu.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static const char usage[] =
    "Usage: medley devices [--json] [--backend NAME] [--sim FILE] [--verify] [--calibrate]\n"
    "\n"
    "Lists every device that Medley can compute with: id, name, memory, speed and\n"
    "temperature where they are known. Each device has been verified: written, read back,\n"
    "and made to compute. Devices that failed are listed with the reason, and backends that\n"
    "are not available with what is missing and how to mend it.\n"
    "\n"
    "  --backend NAME   only this backend and the CPU: cuda, hip, vulkan, metal, sycl,\n"
    "                   opencl or cpu (the environment's MEDLEY_BACKEND does the same)\n"
    "  --sim FILE       simulated devices too (docs/simulated-devices.md)\n"
    "  --json           for programs; what is not known is null\n"
    "  --verify         verify every device anew, also those whose driver once crashed or\n"
    "                   hung; else one that has passed is trusted while nothing about it changes\n"
    "  --calibrate      measure how fast each device is (some seconds each; more the first\n"
    "                   time, when its driver compiles) and remember it: layers are then\n"
    "                   shared out by speed\n"
    "\n"
    "The ids are what `medley run --devices` takes, such as cpu,vulkan0. What was found out is kept\n"
    "in devices.json in MEDLEY_STATE_DIR, else in XDG_STATE_HOME/medley, else in\n"
    "~/.local/state/medley; an empty MEDLEY_STATE_DIR keeps nothing.\n";

static const char *kind_name(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_CPU:
        return "cpu";
    case DEVICE_GPU:
        return "gpu";
    case DEVICE_INTEGRATED_GPU:
        return "integrated gpu";
    }
    return "";
}

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

/* ---- text ------------------------------------------------------------------------------ */

enum { COLUMNS = 9 };

struct row {
    char cell[COLUMNS][128];
};

static void format_reading(char *text, size_t size, struct reading_u64 reading, double divisor, const char *unit)
{
    if (reading.valid)
        snprintf(text, size, "%.1f %s", (double)reading.value / divisor, unit);
    else
        snprintf(text, size, "-");
}

static void format_memory(char *text, size_t size, struct device_memory memory)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    snprintf(text, size, "%.1f / %.1f GiB", (double)memory.free_bytes / gib, (double)memory.total_bytes / gib);
}

static void fill_row(struct row *row, const struct device_info *info, struct device_memory memory, const char *status)
{
    const size_t size = sizeof row->cell[0];
    snprintf(row->cell[0], size, "%s", info->id);
    snprintf(row->cell[1], size, "%s", info->name);
    snprintf(row->cell[2], size, "%s", info->vendor[0] ? info->vendor : "-");
    snprintf(row->cell[3], size, "%s", info->backend);
    snprintf(row->cell[4], size, "%s", kind_name(info->kind));
    format_memory(row->cell[5], size, memory);
    snprintf(row->cell[8], size, "%s", status);
}

static void print_rows(const struct row *rows, uint32_t count)
{
    size_t width[COLUMNS] = {0};
    for (uint32_t r = 0; r < count; r++) {
        for (uint32_t c = 0; c < COLUMNS; c++) {
            size_t length = strlen(rows[r].cell[c]);
            width[c] = length > width[c] ? length : width[c];
        }
    }
    for (uint32_t r = 0; r < count; r++) {
        for (uint32_t c = 0; c + 1 < COLUMNS; c++)
            printf("%-*s  ", (int)width[c], rows[r].cell[c]);
        printf("%s\n", rows[r].cell[COLUMNS - 1]);
    }
}

static int print_devices(const struct gpu *gpu)
{
    uint32_t n_devices = gpu_device_count(gpu), n_rejected = gpu_rejected_count(gpu);
    struct row *rows = mem_new_array(1 + n_devices + n_rejected, sizeof *rows);
    if (!rows)
        return EXIT_FAILED;
    rows[0] = (struct row){
        {"ID", "NAME", "VENDOR", "BACKEND", "KIND", "MEMORY (FREE / TOTAL)", "TEMPERATURE", "POWER", "STATUS"}};
    struct row *row = rows + 1;
    for (uint32_t i = 0; i < n_devices; i++, row++) {
        const struct device *device = gpu_device(gpu, i);
        fill_row(row, device_info(device), device_memory(device), "ready");
        format_reading(row->cell[6], sizeof row->cell[6], device_temperature_mc(device), 1000, "C");
        format_reading(row->cell[7], sizeof row->cell[7], device_power_mw(device), 1000, "W");
    }
    for (uint32_t i = 0; i < n_rejected; i++, row++) {
        const struct device_info *info = &gpu_rejected(gpu, i)->info;
        struct device_memory memory = {.free_bytes = info->memory_free_bytes, .total_bytes = info->memory_total_bytes};
        fill_row(row, info, memory, "rejected, see below");
        snprintf(row->cell[6], sizeof row->cell[6], "-");
        snprintf(row->cell[7], sizeof row->cell[7], "-");
    }
    print_rows(rows, 1 + n_devices + n_rejected);
    mem_free(rows);
    return EXIT_OK;
}

static void print_what_is_missing(const struct gpu *gpu)
{
    if (gpu_rejected_count(gpu))
        printf("\nRejected devices:\n");
    for (uint32_t i = 0; i < gpu_rejected_count(gpu); i++)
        printf("  %-8s %s\n", gpu_rejected(gpu, i)->info.id, gpu_rejected(gpu, i)->reason);
    const char *title = "\nBackends that are not available:\n";
    for (uint32_t i = 0; i < gpu_backend_count(gpu); i++) {
        const struct backend_status *backend = gpu_backend(gpu, i);
        if (backend->available)
            continue;
        printf("%s  %-8s %s\n", title, backend->name, backend->reason);
        title = "";
    }
}

/* ---- JSON ------------------------------------------------------------------------------ */

/* Unknown text is "" and becomes null. The strings outlive the document. */
static void json_text(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key, const char *text)
{
    if (text[0])
        yyjson_mut_obj_add_str(doc, object, key, text);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void json_reading(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key, struct reading_u64 reading)
{
    if (reading.valid)
        yyjson_mut_obj_add_uint(doc, object, key, reading.value);
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

static yyjson_mut_val *json_info(yyjson_mut_doc *doc, yyjson_mut_val *list, const struct device_info *info,
                                 struct device_memory memory)
{
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
    json_text(doc, object, "id", info->id);
    json_text(doc, object, "name", info->name);
    json_text(doc, object, "vendor", info->vendor);
    json_text(doc, object, "backend", info->backend);
    json_text(doc, object, "kind", kind_name(info->kind));
    json_text(doc, object, "architecture", info->architecture);
    json_text(doc, object, "driver", info->driver);
    json_text(doc, object, "pci", info->pci);
    yyjson_mut_obj_add_uint(doc, object, "memory_total_bytes", memory.total_bytes);
    yyjson_mut_obj_add_uint(doc, object, "memory_free_bytes", memory.free_bytes);
    json_reading(doc, object, "compute_units", info->compute_units);
    json_reading(doc, object, "clock_mhz", info->clock_mhz);
    json_reading(doc, object, "bandwidth_mb_per_s", info->bandwidth_mb_per_s);
    json_reading(doc, object, "peak_mflops", info->peak_mflops);
    json_precisions(doc, object, info->precisions);
    json_reading(doc, object, "threads_per_block_max", info->threads_per_block_max);
    yyjson_mut_obj_add_bool(doc, object, "peer_to_peer", info->peer_to_peer);
    json_text(doc, object, "support", support_name(info->support));
    return object;
}

static void json_devices(yyjson_mut_doc *doc, yyjson_mut_val *root, const struct gpu *gpu)
{
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "devices");
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++) {
        const struct device *device = gpu_device(gpu, i);
        yyjson_mut_val *object = json_info(doc, list, device_info(device), device_memory(device));
        json_reading(doc, object, "temperature_mc", device_temperature_mc(device));
        json_reading(doc, object, "power_mw", device_power_mw(device));
        devices_json_measured(doc, object, device);
    }
    list = yyjson_mut_obj_add_arr(doc, root, "rejected");
    for (uint32_t i = 0; i < gpu_rejected_count(gpu); i++) {
        const struct device_rejected *rejected = gpu_rejected(gpu, i);
        struct device_memory memory = {.free_bytes = rejected->info.memory_free_bytes,
                                       .total_bytes = rejected->info.memory_total_bytes};
        yyjson_mut_val *object = json_info(doc, list, &rejected->info, memory);
        json_text(doc, object, "reason", rejected->reason);
    }
    list = yyjson_mut_obj_add_arr(doc, root, "backends");
    for (uint32_t i = 0; i < gpu_backend_count(gpu); i++) {
        const struct backend_status *backend = gpu_backend(gpu, i);
        yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
        json_text(doc, object, "name", backend->name);
        yyjson_mut_obj_add_bool(doc, object, "available", backend->available);
        json_text(doc, object, "reason", backend->reason);
    }
}

static int print_json(const struct gpu *gpu)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    json_devices(doc, root, gpu);
    char *text = yyjson_mut_write(doc, YYJSON_WRITE_PRETTY, NULL);
    if (text)
        puts(text);
    free(text);
    yyjson_mut_doc_free(doc);
    return text ? EXIT_OK : EXIT_FAILED;
}

static int run(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},      {"backend", required_argument, NULL, 'b'},
        {"verify", no_argument, NULL, 'v'},    {"calibrate", no_argument, NULL, 'c'},
        {"sim", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    struct gpu_options wishes = {.registry = registry, .prober = "/proc/self/exe"};
    bool json = false, calibrate = false;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'j')
            json = true;
        else if (option == 'b')
            wishes.backend = optarg;
        else if (option == 'v')
            wishes.verify = true;
        else if (option == 'c')
            calibrate = true;
        else if (option == 's')
            wishes.sim_file = optarg;
        else
            return command_misused(&command_devices, "unknown or incomplete option '%s'", argv[optind - 1]);
    }
    if (optind < argc)
        return command_misused(&command_devices, "'%s' is one word too many", argv[optind]);
    struct gpu *gpu;
    struct error err;
    struct notice notice;
    notice_begin(&notice, "verifying the devices …");
    enum error_code failure = gpu_open(&wishes, &gpu, &err);
    notice_end(&notice);
    if (failure)
        return command_fail(&command_devices, &err);
    failure = calibrate ? devices_calibrate(gpu, &err) : ERROR_NONE;
    int status = json ? print_json(gpu) : print_devices(gpu);
    if (!json) {
        devices_print_calibrations(gpu);
        print_what_is_missing(gpu);
    }
    gpu_close(gpu);
    if (status != EXIT_OK)
        fprintf(stderr, "medley devices: out of memory\n");
    return failure ? command_fail(&command_devices, &err) : status;
}

const struct command command_devices = {
    .name = "devices",
    .summary = "what this machine can compute with, and what is missing",
    .usage = usage,
    .run = run,
};
