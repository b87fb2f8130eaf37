/* The text of `medley devices`. */
#include "cli/devices_view.h"

#include "base/mem.h"
#include "cli/devices_calibration.h"
#include "gpu/products.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------------- */

enum devices_column {
    COLUMN_ID,
    COLUMN_NAME,
    COLUMN_VENDOR,
    COLUMN_BACKEND,
    COLUMN_KIND,
    COLUMN_MEMORY,
    COLUMN_DECODE,
    COLUMN_TEMPERATURE,
    COLUMN_POWER,
    COLUMN_CLOCK,
    COLUMN_STATUS,
    COLUMNS
};

struct row {
    char cell[COLUMNS][128];
};

static const struct row titles = {{"ID", "NAME", "VENDOR", "BACKEND", "KIND",
                                   "MEMORY (FREE / TOTAL)", "DECODE", "TEMPERATURE", "POWER",
                                   "CLOCK", "STATUS"}};

static void format_reading(char cell[128], struct reading reading, double divisor, int decimals,
                           const char *unit)
{
    if (reading.valid)
        snprintf(cell, 128, "%.*f %s", decimals, reading.value / divisor, unit);
    else
        snprintf(cell, 128, "-");
}

/* `readings` may be NULL: the device was refused. */
static void fill_row(struct row *row, const struct device_info *info,
                     const struct sensor_device *readings, const char *status)
{
    static const struct sensor_device none;
    const size_t size = sizeof row->cell[0];
    const double gib = 1024.0 * 1024.0 * 1024.0;
    readings = readings ? readings : &none;
    snprintf(row->cell[COLUMN_ID], size, "%s", info->id);
    snprintf(row->cell[COLUMN_NAME], size, "%s", info->name);
    snprintf(row->cell[COLUMN_VENDOR], size, "%s", info->vendor[0] ? info->vendor : "-");
    snprintf(row->cell[COLUMN_BACKEND], size, "%s", info->backend);
    snprintf(row->cell[COLUMN_KIND], size, "%s", devices_kind_name(info->kind));
    if (info->memory_total_bytes) /* a device that was refused may not have said */
        snprintf(row->cell[COLUMN_MEMORY], size, "%.1f / %.1f GiB",
                 (double)info->memory_free_bytes / gib, (double)info->memory_total_bytes / gib);
    else
        snprintf(row->cell[COLUMN_MEMORY], size, "-");
    format_reading(row->cell[COLUMN_DECODE], info->bandwidth_mb_per_s, 1000, 2, "GB/s");
    format_reading(row->cell[COLUMN_TEMPERATURE], readings->temperature_mc, 1000, 1, "C");
    format_reading(row->cell[COLUMN_POWER], readings->power_mw, 1000, 1, "W");
    format_reading(row->cell[COLUMN_CLOCK], readings->clock_mhz, 1, 0, "MHz");
    snprintf(row->cell[COLUMN_STATUS], size, "%s", status);
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

static void devices_text_print_table(const struct devices_view *view)
{
    uint32_t n_rejected = gpu_rejected_count(view->gpu), n_rows = 0;
    struct row *rows = mem_new_array(1 + view->n_devices + n_rejected, sizeof *rows);
    if (!rows) {
        fprintf(stderr, "medley devices: not enough memory for the table\n");
        return;
    }
    rows[n_rows++] = titles;
    for (uint32_t i = 0; i < view->n_devices; i++)
        fill_row(&rows[n_rows++], &view->infos[i], &view->sample.devices[i], "ready");
    for (uint32_t i = 0; i < n_rejected; i++)
        fill_row(&rows[n_rows++], &gpu_rejected(view->gpu, i)->info, NULL, "rejected, see below");
    print_rows(rows, n_rows);
    mem_free(rows);
}

/* ---- what stands below it -------------------------------------------------------------- */

/* What does not fit into the table; nothing for a device of which no more is known. */
static void devices_text_print_record(const struct device_info *info, const char *products)
{
    char line[512];
    size_t used = 0;
#define RECORD_ADD(known, ...)                                                                     \
    do {                                                                                           \
        if (known)                                                                                 \
            used += (size_t)snprintf(line + used, sizeof line - used, __VA_ARGS__);                \
    } while (0)
    line[0] = 0;
    RECORD_ADD(info->architecture[0], ", %s", info->architecture);
    RECORD_ADD(products[0], ", products by %s", products);
    RECORD_ADD(info->compute_units.valid, ", %.0f compute units", info->compute_units.value);
    RECORD_ADD(info->threads_per_block_max.valid, ", %.0f threads per block",
               info->threads_per_block_max.value);
    RECORD_ADD(info->clock_mhz.valid, ", %.0f MHz", info->clock_mhz.value);
    RECORD_ADD(info->peer_to_peer.valid, ", %s other devices' memory",
               info->peer_to_peer.value > 0 ? "reaches" : "does not reach");
    RECORD_ADD(info->driver_name[0] || info->driver[0], ", driver %s%s%s", info->driver_name,
               info->driver_name[0] && info->driver[0] ? " " : "", info->driver);
#undef RECORD_ADD
    if (line[0])
        printf("  %-8s %s\n", info->id, line + 2);
    if (info->driver_fault[0])
        printf("  %-8s driver: %s\n", info->id, info->driver_fault);
}

static void devices_text_print_records(const struct devices_view *view)
{
    printf("\nWhat they are:\n");
    for (uint32_t i = 0; i < view->n_devices; i++)
        devices_text_print_record(&view->infos[i], device_products_name(gpu_device(view->gpu, i)));
}

static void print_summary(const struct devices_view *view)
{
    char text[AGGREGATE_TEXT_BYTES];
    if (view->n_devices < 2)
        return;
    aggregate_text(&view->aggregate, view->infos, text, sizeof text);
    printf("\nTogether:\n");
    for (const char *line = text; *line;) {
        int length = (int)strcspn(line, "\n");
        printf("  %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

static void print_memory_pressure(const struct devices_view *view)
{
    struct reading stall = view->sample.node.memory_stall_some_share;
    if (stall.valid && stall.value >= 0.01) /* 1 %: below it nobody notices */
        printf("\nMemory is short: in the last 10 s tasks waited for it %.0f %% of the time.\n",
               stall.value * 100);
}

static void print_rejected(const struct gpu *gpu)
{
    if (gpu_rejected_count(gpu))
        printf("\nRejected devices:\n");
    for (uint32_t i = 0; i < gpu_rejected_count(gpu); i++)
        printf("  %-8s %s\n", gpu_rejected(gpu, i)->info.id, gpu_rejected(gpu, i)->reason);
}

static void print_missing_backends(const struct gpu *gpu)
{
    const char *title = "\nBackends that are not available:\n";
    for (uint32_t i = 0; i < gpu_backend_count(gpu); i++) {
        const struct backend_status *backend = gpu_backend(gpu, i);
        if (backend->available)
            continue;
        printf("%s  %-8s %s\n", title, backend->name, backend->reason);
        title = "";
    }
}

static void print_missing_sensors(const struct devices_view *view)
{
    const char *title = "\nSensors that are not available:\n";
    for (uint32_t i = 0; i < view->n_sources; i++) {
        const struct devices_source *source = &view->sources[i];
        if (source->source.available || !source->is_of_here)
            continue;
        printf("%s  %-12s %s\n", title, source->source.name, source->source.reason);
        title = "";
    }
}

/* What ./dev has found of the host's driver and shows in its private root (tools/dev/driver.sh). */
static void print_host_driver(void)
{
    const char *text = getenv("MEDLEY_HOST_DRIVER");
    if (text && *text)
        printf("\nGPU drivers of the host, outside this root:\n");
    for (const char *line = text ? text : ""; *line;) {
        int length = (int)strcspn(line, "\n");
        printf("  %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

static void print_registry_problem(const struct gpu *gpu)
{
    if (gpu_registry_problem(gpu)[0])
        printf("\nNot remembered, so found out again at every start: %s\n",
               gpu_registry_problem(gpu));
}

void devices_print_text(const struct devices_view *view)
{
    devices_text_print_table(view);
    devices_text_print_records(view);
    print_summary(view);
    devices_print_calibrations(view->gpu);
    print_memory_pressure(view);
    print_rejected(view->gpu);
    print_missing_backends(view->gpu);
    print_missing_sensors(view);
    print_host_driver();
    print_registry_problem(view->gpu);
}
