#include "cli/live_rows.h"

#include "base/json_memory.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "cli/answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

static double live_rows_number(yyjson_mut_val *object, const char *key)
{
    yyjson_mut_val *value = yyjson_mut_obj_get(object, key);
    return yyjson_mut_is_num(value) ? yyjson_mut_get_num(value) : NAN;
}

static const char *live_rows_text(yyjson_mut_val *object, const char *key)
{
    return yyjson_mut_get_str(yyjson_mut_obj_get(object, key));
}

static struct live_row live_row_of(const char *node_id, yyjson_mut_val *node, const char *device_id,
                                   yyjson_mut_val *device)
{
    const char *name = live_rows_text(node, "name"), *state = live_rows_text(node, "state");
    return (struct live_row){
        .node_id = node_id,
        .node = name ? name : node_id,
        .state = state ? state : "?",
        .device = device_id,
        .kind = live_rows_text(device, "kind"),
        .governor = live_rows_text(device, "governor"),
        .temperature_c = live_rows_number(device, "temperature_c"),
        .use_share = live_rows_number(device, "use_share"),
        .power_w = live_rows_number(device, "power_w"),
        .clock_mhz = live_rows_number(device, "clock_mhz"),
        .duty_share = live_rows_number(device, "duty_share"),
        .limit_c = live_rows_number(device, "limit_c"),
        .predicted_c = live_rows_number(device, "predicted_c"),
        .seconds_to_limit = live_rows_number(device, "seconds_to_limit"),
        .memory_bytes = live_rows_number(device, "memory_bytes"),
        .free_bytes = live_rows_number(device, "free_bytes"),
    };
}

static void live_rows_read_node(const char *id, yyjson_mut_val *node, struct live_rows *out)
{
    yyjson_mut_obj_iter devices;
    yyjson_mut_val *key, *list = yyjson_mut_obj_get(node, "devices");
    if (!yyjson_mut_obj_iter_init(list, &devices))
        return;
    while ((key = yyjson_mut_obj_iter_next(&devices)) && out->n < LIVE_ROWS_MAX)
        out->rows[out->n++] =
            live_row_of(id, node, yyjson_mut_get_str(key), yyjson_mut_obj_iter_get_val(key));
}

static int live_rows_compare_heat(const void *one, const void *other)
{
    const struct live_row *a = one, *b = other;
    const double left = isnan(a->temperature_c) ? -INFINITY : a->temperature_c;
    const double right = isnan(b->temperature_c) ? -INFINITY : b->temperature_c;
    if (left != right)
        return left < right ? 1 : -1;
    const int by_node = strcmp(a->node, b->node);
    return by_node ? by_node : strcmp(a->device, b->device);
}

bool live_rows_read(yyjson_mut_val *view, bool hottest_first, struct live_rows *out)
{
    yyjson_mut_obj_iter nodes;
    yyjson_mut_val *key;
    *out = (struct live_rows){.rows = mem_new_array(LIVE_ROWS_MAX, sizeof *out->rows)};
    if (!out->rows)
        return false;
    yyjson_mut_obj_iter_init(yyjson_mut_obj_get(view, "nodes"), &nodes);
    while ((key = yyjson_mut_obj_iter_next(&nodes)))
        live_rows_read_node(yyjson_mut_get_str(key), yyjson_mut_obj_iter_get_val(key), out);
    if (hottest_first && out->n)
        qsort(out->rows, out->n, sizeof *out->rows, live_rows_compare_heat);
    return true;
}

void live_rows_deinit(struct live_rows *rows)
{
    mem_free(rows->rows);
    *rows = (struct live_rows){0};
}

/* ---- cells ----------------------------------------------------------------------------------- */

struct live_cell {
    char text[32];
};

static struct live_cell live_cell_of(double value, int decimals, const char *unit)
{
    struct live_cell cell = {"-"};
    if (!isnan(value))
        snprintf(cell.text, sizeof cell.text, "%.*f %s", decimals, value, unit);
    return cell;
}

static struct live_cell live_cell_time(double seconds)
{
    struct live_cell cell = {"-"};
    if (seconds >= 90)
        snprintf(cell.text, sizeof cell.text, "%.0f min", seconds / 60);
    else if (!isnan(seconds))
        snprintf(cell.text, sizeof cell.text, "%.0f s", seconds);
    return cell;
}

static struct live_cell live_cell_memory(const struct live_row *row)
{
    struct live_cell cell = {"-"};
    if (!isnan(row->free_bytes) && !isnan(row->memory_bytes))
        snprintf(cell.text, sizeof cell.text, "%s of %s", size_text((uint64_t)row->free_bytes).text,
                 size_text((uint64_t)row->memory_bytes).text);
    return cell;
}

/* Foreign text, padded to so many columns. */
static void live_rows_put(struct buffer *out, const char *text, int width)
{
    struct buffer clean = {0};
    answer_clean(&clean, text ? text : "-");
    buffer_printf(out, "%-*.*s ", width, width, clean.data ? clean.data : "");
    buffer_deinit(&clean);
}

/* A line ends here: cut at `width` (0: nowhere), counted, and no more than `height` of them. */
struct live_page {
    struct buffer *out;
    struct buffer line;
    uint32_t width, height, n;
};

static void live_page_end_line(struct live_page *page)
{
    size_t size = page->line.size;
    while (size && page->line.data[size - 1] == ' ')
        size--;
    if (page->width && size > page->width)
        size = page->width;
    if (!page->height || page->n < page->height) {
        buffer_append(page->out, page->line.data ? page->line.data : "", size);
        buffer_text(page->out, "\n");
    }
    page->n++;
    page->out->failed |= page->line.failed;
    buffer_clear(&page->line);
}

/* ---- heat ------------------------------------------------------------------------------------ */

void live_rows_show_heat(const struct live_rows *rows, uint32_t height, struct buffer *out)
{
    struct live_page page = {.out = out, .height = height};
    buffer_printf(&page.line, "%-20s %-20s %8s %8s %8s %8s %6s  %s", "NODE", "DEVICE", "NOW",
                  "LIMIT", "IN 10 S", "LIMIT IN", "DUTY", "GOVERNOR");
    live_page_end_line(&page);
    for (uint32_t i = 0; i < rows->n; i++) {
        const struct live_row *row = &rows->rows[i];
        live_rows_put(&page.line, row->node, 20);
        live_rows_put(&page.line, row->device, 20);
        buffer_printf(
            &page.line, "%8s %8s %8s %8s %6s  ", live_cell_of(row->temperature_c, 1, "C").text,
            live_cell_of(row->limit_c, 0, "C").text, live_cell_of(row->predicted_c, 1, "C").text,
            live_cell_time(row->seconds_to_limit).text,
            live_cell_of(100 * row->duty_share, 0, "%").text);
        if (strcmp(row->state, "up") == 0)
            live_rows_put(&page.line, row->governor, 20);
        else
            buffer_printf(&page.line, "(%.20s)", row->state);
        live_page_end_line(&page);
    }
    buffer_deinit(&page.line);
}

static void live_rows_add_number(yyjson_mut_doc *doc, yyjson_mut_val *item, const char *key,
                                 double value)
{
    if (isnan(value))
        yyjson_mut_obj_add_null(doc, item, key);
    else
        yyjson_mut_obj_add_real(doc, item, key, value);
}

static void live_rows_write_row(yyjson_mut_doc *doc, yyjson_mut_val *list,
                                const struct live_row *row)
{
    yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, list);
    yyjson_mut_obj_add_strcpy(doc, item, "node", row->node);
    yyjson_mut_obj_add_strcpy(doc, item, "node_id", row->node_id);
    yyjson_mut_obj_add_strcpy(doc, item, "state", row->state);
    yyjson_mut_obj_add_strcpy(doc, item, "device", row->device);
    live_rows_add_number(doc, item, "temperature_c", row->temperature_c);
    live_rows_add_number(doc, item, "limit_c", row->limit_c);
    live_rows_add_number(doc, item, "predicted_c", row->predicted_c);
    live_rows_add_number(doc, item, "seconds_to_limit", row->seconds_to_limit);
    live_rows_add_number(doc, item, "duty_share", row->duty_share);
    live_rows_add_number(doc, item, "power_w", row->power_w);
    if (row->governor)
        yyjson_mut_obj_add_strcpy(doc, item, "governor", row->governor);
    else
        yyjson_mut_obj_add_null(doc, item, "governor");
}

bool live_rows_write(const struct live_rows *rows, struct buffer *out)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    size_t size = 0;
    char *text = NULL;
    if (root) {
        yyjson_mut_doc_set_root(doc, root);
        yyjson_mut_val *list = yyjson_mut_obj_add_arr(doc, root, "devices");
        for (uint32_t i = 0; i < rows->n; i++)
            live_rows_write_row(doc, list, &rows->rows[i]);
        text = yyjson_mut_write_opts(doc, YYJSON_WRITE_ALLOW_INVALID_UNICODE, &json_memory, &size,
                                     NULL);
    }
    if (text)
        buffer_append(out, text, size);
    buffer_text(out, "\n");
    mem_free(text);
    yyjson_mut_doc_free(doc);
    return text && !out->failed;
}

/* ---- everything ------------------------------------------------------------------------------ */

static void live_rows_show_load(yyjson_mut_val *node, struct live_page *page)
{
    yyjson_mut_val *load = yyjson_mut_obj_get(node, "load");
    const double total = live_rows_number(load, "memory_bytes");
    const double unused = live_rows_number(load, "memory_free_bytes");
    const double battery = live_rows_number(load, "battery_percent");
    live_rows_put(&page->line, live_rows_text(node, "name"), 20);
    live_rows_put(&page->line, live_rows_text(node, "state"), 8);
    buffer_printf(&page->line, "cpu %s",
                  live_cell_of(100 * live_rows_number(load, "cpu_share"), 0, "%").text);
    if (!isnan(total) && !isnan(unused))
        buffer_printf(&page->line, "   memory %s of %s free", size_text((uint64_t)unused).text,
                      size_text((uint64_t)total).text);
    if (!isnan(battery))
        buffer_printf(&page->line, "   battery %.0f %%%s", battery,
                      yyjson_mut_is_true(yyjson_mut_obj_get(load, "charging")) ? ", charging" : "");
    live_page_end_line(page);
}

static void live_rows_show_devices(const struct live_rows *rows, struct live_page *page)
{
    live_page_end_line(page);
    buffer_printf(&page->line, "%-20s %-18s %6s %8s %8s %9s %6s  %-22s %s", "NODE", "DEVICE", "USE",
                  "TEMP", "POWER", "CLOCK", "DUTY", "MEMORY FREE", "GOVERNOR");
    live_page_end_line(page);
    for (uint32_t i = 0; i < rows->n; i++) {
        const struct live_row *row = &rows->rows[i];
        live_rows_put(&page->line, row->node, 20);
        live_rows_put(&page->line, row->device, 18);
        buffer_printf(&page->line, "%6s %8s %8s %9s %6s  %-22s ",
                      live_cell_of(100 * row->use_share, 0, "%").text,
                      live_cell_of(row->temperature_c, 1, "C").text,
                      live_cell_of(row->power_w, 0, "W").text,
                      live_cell_of(row->clock_mhz, 0, "MHz").text,
                      live_cell_of(100 * row->duty_share, 0, "%").text, live_cell_memory(row).text);
        live_rows_put(&page->line, strcmp(row->state, "up") ? row->state : row->governor, 16);
        live_page_end_line(page);
    }
}

void live_rows_show_all(yyjson_mut_val *view, const struct live_rows *rows, uint32_t width,
                        uint32_t height, struct buffer *out)
{
    struct live_page page = {.out = out, .width = width, .height = height};
    yyjson_mut_obj_iter nodes;
    yyjson_mut_val *key;
    const char *summary = live_rows_text(yyjson_mut_obj_get(view, "totals"), "summary");
    if (summary) {
        answer_clean(&page.line, summary);
        live_page_end_line(&page);
        live_page_end_line(&page);
    }
    yyjson_mut_obj_iter_init(yyjson_mut_obj_get(view, "nodes"), &nodes);
    while ((key = yyjson_mut_obj_iter_next(&nodes)))
        live_rows_show_load(yyjson_mut_obj_iter_get_val(key), &page);
    live_rows_show_devices(rows, &page);
    buffer_deinit(&page.line);
}
