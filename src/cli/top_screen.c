#include "cli/top_screen.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

enum { BAR = 10 };

#define HEADROOM_S_MAX 3600.0 /* a slope says nothing of what comes later */

struct top_column {
    const char *title;
    int width; /* right-aligned unless negative */
    void (*show)(const struct heat_device *device, char *text, size_t size);
};

/* ---- cells -------------------------------------------------------------------------------- */

static void show_scaled(struct reading reading, double divisor, const char *unit, char *text,
                        size_t size)
{
    if (reading.valid)
        snprintf(text, size, "%.*f %s", divisor >= 1000 ? 1 : 0, reading.value / divisor, unit);
    else
        snprintf(text, size, "-");
}

static void show_id(const struct heat_device *device, char *text, size_t size)
{
    snprintf(text, size, "%s", device_info(device->device)->id);
}

static void show_use(const struct heat_device *device, char *text, size_t size)
{
    show_scaled(device->readings.utilisation_pct, 1, "%", text, size);
}

static void top_screen_show_memory(const struct heat_device *device, char *text, size_t size)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    struct device_memory memory = device_memory(device->device);
    snprintf(text, size, "%.1f/%.1f GiB", (double)(memory.total_bytes - memory.free_bytes) / gib,
             (double)memory.total_bytes / gib);
}

static void show_temperature(const struct heat_device *device, char *text, size_t size)
{
    show_scaled(device->readings.temperature_mc, 1000, "C", text, size);
}

static void show_power(const struct heat_device *device, char *text, size_t size)
{
    show_scaled(device->readings.power_mw, 1000, "W", text, size);
}

static void show_clock(const struct heat_device *device, char *text, size_t size)
{
    show_scaled(device->readings.clock_mhz, 1, "MHz", text, size);
}

/* How much more power it can take, and when it would have to stop as it goes on now. */
static void show_headroom(const struct heat_device *device, char *text, size_t size)
{
    const struct thermal_action *action = &device->thermal.action;
    char watts[32] = "", until[48] = "";
    if (action->headroom_w.valid)
        snprintf(watts, sizeof watts, "%+.0f W", action->headroom_w.value);
    const double s = action->headroom_s.value;
    if (action->headroom_s.valid && s < 120)
        snprintf(until, sizeof until, "%.0f C in %.0f s", device->thermal.stop_c, s);
    else if (action->headroom_s.valid && s < HEADROOM_S_MAX)
        snprintf(until, sizeof until, "%.0f C in %.0f min", device->thermal.stop_c, s / 60);
    else if (action->headroom_s.valid)
        snprintf(until, sizeof until, watts[0] ? "below %.0f C" : "stays below %.0f C",
                 device->thermal.stop_c);
    snprintf(text, size, "%s%s%s", watts, watts[0] && until[0] ? ", " : "", until);
    if (!text[0])
        snprintf(text, size, "-");
}

static const struct top_column columns[] = {
    {"DEVICE", -6, show_id},
    {"USE", 5, show_use},
    {"MEMORY", 13, top_screen_show_memory},
    {"TEMP", 7, show_temperature},
    {"POWER", 7, show_power},
    {"CLOCK", 8, show_clock},
    {" HEADROOM", -30, show_headroom},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* ---- the screen ----------------------------------------------------------------------------- */

static void append_line(const char *line, uint32_t width, struct buffer *out)
{
    size_t length = strlen(line);
    while (length && line[length - 1] == ' ')
        length--;
    buffer_append(out, line, length < width ? length : width);
    buffer_text(out, "\n");
}

static void show_node(const struct sensor_node *node, char *text, size_t size)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    size_t used = 0;
    text[0] = 0;
    if (node->cpu_utilisation_pct.valid)
        used += (size_t)snprintf(text, size, "cpu %.0f %%   ", node->cpu_utilisation_pct.value);
    if (node->memory_total_bytes.valid && node->memory_available_bytes.valid)
        used += (size_t)snprintf(text + used, size - used, "memory %.1f of %.1f GiB free   ",
                                 node->memory_available_bytes.value / gib,
                                 node->memory_total_bytes.value / gib);
    if (node->memory_stall_some_share.valid)
        used += (size_t)snprintf(text + used, size - used, "waiting for memory %.1f %%   ",
                                 node->memory_stall_some_share.value * 100);
    if (node->battery_pct.valid)
        used +=
            (size_t)snprintf(text + used, size - used, "battery %.0f %%%s", node->battery_pct.value,
                             node->on_ac.valid && node->on_ac.value > 0 ? " (on mains)" : "");
    if (!used)
        snprintf(text, size, "no reading of the machine yet");
}

static void append_bar(double share, char *text, size_t size)
{
    int full = (int)lround(share * (double)BAR);
    snprintf(text, size, "[%.*s%.*s]", full, "##########", BAR - full, "..........");
}

/* What a governor does about it; nothing for a device that is free. */
static void append_state(const struct heat_device *device, uint32_t width, struct buffer *out)
{
    const struct thermal_action *action = &device->thermal.action;
    if (action->reason == THERMAL_FREE)
        return;
    char bar[BAR + 3], line[200];
    append_bar(action->duty, bar, sizeof bar);
    const bool asks_too = action->lower_precision && action->reason != THERMAL_PRECISION;
    snprintf(line, sizeof line, "             %s duty %u %%: %s%s", bar,
             thermal_permille(action->duty) / 10, thermal_reason_text(action->reason),
             asks_too ? ", lower precision asked for" : "");
    append_line(line, width, out);
}

static void append_hottest(const struct heat_snapshot *snapshot, uint32_t width, struct buffer *out)
{
    const struct heat_device *hottest = NULL;
    for (uint32_t i = 0; i < snapshot->n_devices; i++) {
        const struct heat_device *device = &snapshot->devices[i];
        if (device->readings.temperature_mc.valid &&
            (!hottest ||
             device->readings.temperature_mc.value > hottest->readings.temperature_mc.value))
            hottest = device;
    }
    char line[160] = "no device tells its temperature: `medley devices` says why";
    if (hottest)
        snprintf(line, sizeof line, "hottest: %s, %.1f C; a governor keeps it below %.0f C",
                 device_info(hottest->device)->id, hottest->readings.temperature_mc.value * 1e-3,
                 hottest->thermal.stop_c);
    append_line(line, width, out);
}

/* The first column is as wide as the longest id. */
static int top_screen_width_of(const struct heat_snapshot *snapshot, int column)
{
    int width = columns[column].width;
    for (uint32_t i = 0; column == 0 && i < snapshot->n_devices; i++) {
        const int length = (int)strlen(device_info(snapshot->devices[i].device)->id);
        width = length > -width ? -length : width;
    }
    return width;
}

static void append_table(const struct heat_snapshot *snapshot, uint32_t width, struct buffer *out)
{
    char line[400];
    size_t used = 0;
    for (int c = 0; c < N_COLUMNS; c++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%*s ",
                                 top_screen_width_of(snapshot, c), columns[c].title);
    append_line(line, width, out);
    for (uint32_t i = 0; i < snapshot->n_devices; i++) {
        used = 0;
        for (int c = 0; c < N_COLUMNS; c++) {
            char cell[80];
            columns[c].show(&snapshot->devices[i], cell, sizeof cell);
            const char *gap = c == N_COLUMNS - 1 ? " " : "";
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%*s ", gap,
                                     top_screen_width_of(snapshot, c), cell);
        }
        append_line(line, width, out);
        append_state(&snapshot->devices[i], width, out);
    }
}

/* Keeps the first lines, and says in the last how many there would be more. */
static void cut_lines(struct buffer *out, uint32_t width, uint32_t height)
{
    uint32_t n = 0;
    size_t kept = 0; /* bytes of the first height - 1 lines */
    for (size_t at = 0; at < out->size; at++) {
        if (out->data[at] == '\n' && ++n == height - 1)
            kept = at + 1;
    }
    if (n <= height)
        return;
    char line[80];
    snprintf(line, sizeof line, "(%" PRIu32 " lines more: make the window higher)",
             n - (height - 1));
    out->size = kept;
    append_line(line, width, out);
}

void top_screen(const struct heat_snapshot *snapshot, uint32_t width, uint32_t height,
                struct buffer *out)
{
    char line[400];
    show_node(&snapshot->node, line, sizeof line);
    append_line(line, width, out);
    append_hottest(snapshot, width, out);
    buffer_text(out, "\n");
    append_table(snapshot, width, out);
    if (height && !out->failed)
        cut_lines(out, width, height);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void add_reading(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                        struct reading reading)
{
    if (reading.valid)
        yyjson_mut_obj_add_uint(doc, object, key, reading_whole(reading));
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void add_ppm(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                    struct reading share)
{
    share.value = round(share.value * 1e6);
    add_reading(doc, object, key, share);
}

static void add_number(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                       struct reading number)
{
    if (number.valid && isfinite(number.value))
        yyjson_mut_obj_add_real(doc, object, key, number.value);
    else
        yyjson_mut_obj_add_null(doc, object, key);
}

static void top_screen_add_device(yyjson_mut_doc *doc, yyjson_mut_val *list,
                                  const struct heat_device *device)
{
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(doc, list);
    const struct sensor_device *readings = &device->readings;
    const struct thermal_action *action = &device->thermal.action;
    struct device_memory memory = device_memory(device->device);
    yyjson_mut_obj_add_str(doc, object, "id", device_info(device->device)->id);
    yyjson_mut_obj_add_uint(doc, object, "memory_total_bytes", memory.total_bytes);
    yyjson_mut_obj_add_uint(doc, object, "memory_free_bytes", memory.free_bytes);
    add_reading(doc, object, "utilisation_pct", readings->utilisation_pct);
    add_reading(doc, object, "temperature_mc", readings->temperature_mc);
    add_reading(doc, object, "power_mw", readings->power_mw);
    add_reading(doc, object, "clock_mhz", readings->clock_mhz);
    yyjson_mut_obj_add_real(doc, object, "limit_c", device->thermal.limit_c);
    yyjson_mut_obj_add_uint(doc, object, "duty_permille", thermal_permille(action->duty));
    yyjson_mut_obj_add_bool(doc, object, "lower_precision", action->lower_precision);
    yyjson_mut_obj_add_str(doc, object, "state", thermal_reason_text(action->reason));
    add_number(doc, object, "predicted_c", action->predicted_c);
    add_number(doc, object, "headroom_w", action->headroom_w);
    add_number(doc, object, "headroom_s",
               action->headroom_s); /* null also where it never gets so hot */
}

bool top_json(const struct heat_snapshot *snapshot, struct buffer *out)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    const struct sensor_node *node = &snapshot->node;
    yyjson_mut_val *machine = yyjson_mut_obj_add_obj(doc, root, "machine");
    add_reading(doc, machine, "cpu_utilisation_pct", node->cpu_utilisation_pct);
    add_reading(doc, machine, "memory_total_bytes", node->memory_total_bytes);
    add_reading(doc, machine, "memory_available_bytes", node->memory_available_bytes);
    add_ppm(doc, machine, "memory_stall_some_ppm", node->memory_stall_some_share);
    add_ppm(doc, machine, "memory_stall_full_ppm", node->memory_stall_full_share);
    add_reading(doc, machine, "battery_pct", node->battery_pct);
    add_reading(doc, machine, "on_ac", node->on_ac);
    yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "devices");
    for (uint32_t i = 0; i < snapshot->n_devices; i++)
        top_screen_add_device(doc, list, &snapshot->devices[i]);
    size_t length;
    char *text = yyjson_mut_write(doc, 0, &length);
    if (text)
        buffer_append(out, text, length);
    buffer_text(out, "\n");
    free(text);
    yyjson_mut_doc_free(doc);
    return text && !out->failed;
}
