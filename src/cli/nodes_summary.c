#include "cli/nodes_summary.h"

#include "base/size_text.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/live_client.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

static const char *summary_text(yyjson_mut_val *object, const char *key)
{
    const char *text = yyjson_mut_get_str(yyjson_mut_obj_get(object, key));
    return text ? text : "-";
}

static bool summary_number(yyjson_mut_val *object, const char *key, double *out)
{
    yyjson_mut_val *value = yyjson_mut_obj_get(object, key);
    *out = yyjson_mut_get_num(value);
    return yyjson_mut_is_num(value);
}

static void summary_cell_share(struct table *table, yyjson_mut_val *object, const char *key)
{
    double share;
    if (summary_number(object, key, &share))
        table_cell(table, "%.0f %%", 100 * share);
    else
        table_cell(table, "-");
}

/* The busiest of its devices. */
static void summary_cell_use(struct table *table, yyjson_mut_val *node)
{
    double most = -1, use;
    size_t i, n;
    yyjson_mut_val *key, *device;
    yyjson_mut_obj_foreach(yyjson_mut_obj_get(node, "devices"), i, n, key, device)
    {
        if (summary_number(device, "use_share", &use) && use > most)
            most = use;
    }
    if (most >= 0)
        table_cell(table, "%.0f %%", 100 * most);
    else
        table_cell(table, "-");
}

static void summary_add_node(struct table *table, yyjson_mut_val *node)
{
    yyjson_mut_val *load = yyjson_mut_obj_get(node, "load");
    double free, all, battery;
    table_cell(table, "%s", summary_text(node, "name"));
    table_cell(table, "%s", summary_text(node, "state"));
    table_cell(table, "%zu", yyjson_mut_obj_size(yyjson_mut_obj_get(node, "devices")));
    summary_cell_use(table, node);
    summary_cell_share(table, load, "cpu_share");
    if (summary_number(load, "memory_bytes", &all) &&
        summary_number(load, "memory_free_bytes", &free))
        table_cell(table, "%s / %s", size_text((uint64_t)free).text, size_text((uint64_t)all).text);
    else
        table_cell(table, "-");
    summary_cell_share(table, load, "memory_pressure_share");
    if (summary_number(load, "battery_percent", &battery))
        table_cell(table, "%.0f %%", battery);
    else
        table_cell(table, "-");
}

static enum error_code summary_print_nodes(yyjson_mut_val *view, struct error *err)
{
    static const char *const titles[] = {"NAME",     "STATE",   "DEVICES",
                                         "USE",      "CPU",     "MEMORY (FREE / TOTAL)",
                                         "PRESSURE", "BATTERY", NULL};
    struct table table = {titles};
    size_t i, n;
    yyjson_mut_val *key, *node;
    yyjson_mut_obj_foreach(yyjson_mut_obj_get(view, "nodes"), i, n, key, node)
        summary_add_node(&table, node);
    return table_print(&table, err);
}

static void summary_put_average(yyjson_mut_val *totals, struct buffer *out)
{
    double n, rate, free, mean;
    if (!summary_number(totals, "devices", &n) || n < 1)
        return;
    buffer_text(out, "On average a device");
    if (summary_number(totals, "free_bytes", &free))
        buffer_printf(out, " has %s free", size_text((uint64_t)(free / n)).text);
    if (summary_number(totals, "decode_bytes_per_s", &rate))
        buffer_printf(out, "%s reads %.4g GB/s",
                      yyjson_mut_obj_get(totals, "free_bytes") ? " and" : "", rate / n / 1e9);
    if (summary_number(totals, "mean_link_bytes_per_s", &mean))
        buffer_printf(out, "; a link carries %.4g MB/s", mean / 1e6);
    buffer_text(out, ".\n");
}

static void summary_put_vendors(yyjson_mut_val *totals, struct buffer *out)
{
    const char *comma = "Devices by vendor: ";
    size_t i, n;
    yyjson_mut_val *name, *count;
    yyjson_mut_obj_foreach(yyjson_mut_obj_get(totals, "vendors"), i, n, name, count)
    {
        buffer_text(out, comma);
        answer_clean(out, yyjson_mut_get_str(name));
        buffer_printf(out, " %llu", (unsigned long long)yyjson_mut_get_uint(count));
        comma = ", ";
    }
    if (n)
        buffer_text(out, ".\n");
}

static void summary_put_best(yyjson_mut_val *nodes, const char *name, yyjson_mut_val *model,
                             struct buffer *out)
{
    yyjson_mut_val *list = yyjson_mut_obj_get(model, "best_devices"), *device;
    const char *comma = ": ";
    size_t i, n;
    answer_clean(out, name);
    if (!yyjson_mut_arr_size(list)) {
        buffer_text(out, ": there is no room for it now, or not all free memory is known.\n");
        return;
    }
    buffer_printf(out, ", best on %zu of them", yyjson_mut_arr_size(list));
    yyjson_mut_arr_foreach(list, i, n, device)
    {
        yyjson_mut_val *node = yyjson_mut_obj_get(nodes, summary_text(device, "node"));
        buffer_text(out, comma);
        answer_clean(out, summary_text(node, "name"));
        buffer_text(out, "/");
        answer_clean(out, summary_text(device, "device"));
        comma = ", ";
    }
    buffer_text(out, ".\n");
}

/* Of the live view (docs/monitoring.md). */
static enum error_code summary_print(const struct live_client *live, struct error *err)
{
    yyjson_mut_val *view = yyjson_mut_doc_get_root(live->view);
    yyjson_mut_val *totals = yyjson_mut_obj_get(view, "totals");
    struct buffer text = {0};
    size_t i, n;
    yyjson_mut_val *name, *model;
    enum error_code code = summary_print_nodes(view, err);
    buffer_printf(&text, "\n%s.\n", summary_text(totals, "summary"));
    summary_put_average(totals, &text);
    summary_put_vendors(totals, &text);
    yyjson_mut_obj_foreach(yyjson_mut_obj_get(view, "models"), i, n, name, model)
        summary_put_best(yyjson_mut_obj_get(view, "nodes"), yyjson_mut_get_str(name), model, &text);
    if (!code && text.failed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the summary");
    if (!code)
        fwrite(text.data, 1, text.size, stdout);
    buffer_deinit(&text);
    return code;
}

static enum error_code nodes_summary_converse(struct daemon_client *client, const void *arg,
                                              struct error *err)
{
    struct live_client live = {0};
    daemon_client_hurry(client); /* it tells something twice a second */
    enum error_code code = live_client_begin(&live, client, err);
    if (!code)
        code = summary_print(&live, err);
    live_client_deinit(&live);
    return code;
}

int nodes_summary_run(void)
{
    return ask_converse(&command_nodes, nodes_summary_converse, NULL);
}
