/* medley nodes: list the machines of the cluster, and those that wait to be let in. */
#include "base/size_text.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/nodes_summary.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley nodes [--json]\n"
    "       medley nodes --summary\n"
    "\n"
    "Lists the machines of this cluster: what they compute with, how much memory is free, who\n"
    "is an admin, leads and votes, and their addresses. A machine that waits to be let in is "
    "listed, too,\n"
    "with the words to compare; medley admit lets it in.\n"
    "\n"
    "The state is up, silent (with the time since it was last heard), down, or waiting.\n"
    "\n"
    "  --json           for programs; what is unknown is null\n"
    "  --summary        each machine's load, what all devices are together, and the fewest and\n"
    "                   fastest devices that have room for each model (for programs: /api/live)\n";

/* ---- cells ----------------------------------------------------------------------------------- */

static void show_name(struct answer *answer, yyjson_val *node, struct table *table)
{
    const char *name = answer_text(answer, node, "name");
    table_cell(table, "%s%s", name, answer_flag(answer, node, "self") ? " (this one)" : "");
}

static void show_state(struct answer *answer, yyjson_val *node, struct table *table)
{
    uint64_t heard_ms;
    const char *state = answer_text(answer, node, "state");
    if (answer_count_if(answer, node, "heard_ms", &heard_ms) && strcmp(state, "silent") == 0)
        table_cell(table, "%s, %s", state, time_text((double)heard_ms * 1e-3).text);
    else
        table_cell(table, "%s", state);
}

static void show_role(struct answer *answer, yyjson_val *node, struct table *table)
{
    const char *role = answer_text_if(answer, node, "role");
    const bool votes = answer_flag(answer, node, "votes"), admin = role && !strcmp(role, "admin");
    const char *part = answer_flag(answer, node, "leads") ? "leads" : votes ? "votes" : NULL;
    table_cell(table, "%s%s%s", admin ? "admin" : "", admin && part ? ", " : "",
               part    ? part
               : admin ? ""
                       : "-");
}

static void show_devices(struct answer *answer, yyjson_val *devices, struct table *table)
{
    struct buffer list = {0};
    yyjson_val *device;
    size_t i, n;
    yyjson_arr_foreach(devices, i, n, device)
        buffer_printf(&list, "%s%s", i ? ", " : "", answer_text(answer, device, "id"));
    table_cell(table, "%s", list.data ? list.data : "-");
    buffer_deinit(&list);
}

/* Cards have a memory each; all other devices share the host's, which counts once. */
static void cmd_nodes_show_memory(struct answer *answer, yyjson_val *devices, struct table *table)
{
    uint64_t total = 0, free = 0, host = 0, host_free = 0;
    bool is_known = true;
    yyjson_val *device;
    size_t i, n;
    yyjson_arr_foreach(devices, i, n, device)
    {
        uint64_t own_free, own = answer_count(answer, device, "memory_bytes");
        is_known = answer_count_if(answer, device, "free_bytes", &own_free) && is_known;
        if (strcmp(answer_text(answer, device, "kind"), "gpu") == 0) {
            total += own;
            free += own_free;
        } else if (own > host) {
            host = own;
            host_free = own_free;
        }
    }
    if (total + host == 0)
        table_cell(table, "-");
    else if (is_known)
        table_cell(table, "%s / %s", size_text(free + host_free).text,
                   size_text(total + host).text);
    else
        table_cell(table, "%s", size_text(total + host).text);
}

static void show_addresses(struct answer *answer, yyjson_val *node, struct table *table)
{
    struct buffer list = {0};
    yyjson_val *address;
    size_t i, n;
    yyjson_arr_foreach(answer_list(answer, node, "addresses"), i, n, address)
    {
        const char *text = yyjson_get_str(address);
        buffer_printf(&list, "%s%s", i ? ", " : "", text ? text : "?");
    }
    table_cell(table, "%s", list.data ? list.data : "-");
    buffer_deinit(&list);
}

/* ---- the table, and who waits ---------------------------------------------------------------- */

static void cmd_nodes_add_row(struct answer *answer, yyjson_val *node, struct table *table)
{
    yyjson_val *devices = answer_list(answer, node, "devices");
    show_name(answer, node, table);
    show_state(answer, node, table);
    show_role(answer, node, table);
    show_devices(answer, devices, table);
    cmd_nodes_show_memory(answer, devices, table);
    show_addresses(answer, node, table);
}

static void say_waiting(struct answer *answer, yyjson_val *node, struct buffer *out)
{
    const char *words = answer_text_if(answer, node, "words");
    if (strcmp(answer_text(answer, node, "state"), "waiting") != 0)
        return;
    struct buffer name = {0};
    answer_clean(&name, answer_text(answer, node, "name"));
    buffer_printf(out, "%s waits to be let in: medley admit %s", name.data ? name.data : "",
                  name.data ? name.data : "");
    if (words) {
        buffer_text(out, "   (its words: ");
        answer_clean(out, words);
        buffer_text(out, ")");
    }
    buffer_text(out, "\n");
    buffer_deinit(&name);
}

static void say_problem(struct answer *answer, yyjson_val *node, const char *key,
                        const char *before, struct buffer *out)
{
    const char *problem = answer_text_if(answer, node, key);
    if (!problem)
        return;
    answer_clean(out, answer_text(answer, node, "name"));
    buffer_printf(out, ": %s", before);
    answer_clean(out, problem);
    buffer_text(out, "\n");
}

/* "tower: dialling 10.0.0.7:7979: …; see medley doctor" */
static void cmd_nodes_say_dial(struct answer *answer, yyjson_val *node, struct buffer *out)
{
    const char *address = answer_text_if(answer, node, "dial_address");
    const char *why = answer_text_if(answer, node, "dial_problem");
    if (!why || answer_text_if(answer, node, "problem"))
        return;
    answer_clean(out, answer_text(answer, node, "name"));
    buffer_text(out, ": dialling ");
    answer_clean(out, address ? address : "it");
    buffer_text(out, ": ");
    answer_clean(out, why);
    buffer_text(out, " (medley doctor says more)\n");
}

static void cmd_nodes_say_drivers(struct answer *answer, yyjson_val *node, struct buffer *out)
{
    yyjson_val *device;
    size_t i, n;
    yyjson_arr_foreach(answer_list(answer, node, "devices"), i, n, device)
    {
        const char *fault = answer_text_if(answer, device, "driver_fault");
        if (!fault)
            continue;
        answer_clean(out, answer_text(answer, node, "name"));
        buffer_text(out, ": driver of ");
        answer_clean(out, answer_text(answer, device, "id"));
        buffer_text(out, ": ");
        answer_clean(out, fault);
        buffer_text(out, "\n");
    }
}

static void say_unmeasured(struct answer *answer, yyjson_val *node, struct buffer *out)
{
    const char *before = ": not measured yet, so their speeds are a guess: ";
    yyjson_val *device;
    size_t i, n;
    yyjson_arr_foreach(answer_list(answer, node, "devices"), i, n, device)
    {
        const char *speed = answer_text_if(answer, device, "speed");
        if (!speed || (strcmp(speed, "guess") != 0 && strcmp(speed, "datasheet") != 0))
            continue;
        if (before[0] == ':')
            answer_clean(out, answer_text(answer, node, "name"));
        buffer_text(out, before);
        answer_clean(out, answer_text(answer, device, "id"));
        before = ", ";
    }
    buffer_text(out, before[0] == ',' ? "\n" : "");
}

static enum error_code cmd_nodes_print(yyjson_doc *doc, struct error *err)
{
    static const char *const titles[] = {
        "NAME", "STATE", "ROLE", "DEVICES", "MEMORY (FREE / TOTAL)", "ADDRESSES", NULL};
    struct answer answer = {0};
    struct table table = {titles};
    struct buffer below = {0};
    yyjson_val *node;
    size_t i, n;
    yyjson_arr_foreach(answer_list(&answer, yyjson_doc_get_root(doc), "nodes"), i, n, node)
    {
        cmd_nodes_add_row(&answer, node, &table);
        say_waiting(&answer, node, &below);
        say_problem(&answer, node, "problem", "", &below);
        cmd_nodes_say_dial(&answer, node, &below);
        cmd_nodes_say_drivers(&answer, node, &below);
        say_problem(&answer, node, "lends_nothing", "lends nothing now: ", &below);
        say_unmeasured(&answer, node, &below);
    }
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        code = table_print(&table, err);
    if (!code && below.size)
        printf("\n%s", below.data);
    table_deinit(&table);
    buffer_deinit(&below);
    return code;
}

static int cmd_nodes_run(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--summary") == 0)
        return nodes_summary_run();
    return ask_and_show(&command_nodes, argc, argv, cmd_nodes_print);
}

const struct command command_nodes = {
    .name = "nodes",
    .summary = "list the machines of the cluster, and those that wait to be let in",
    .usage = usage,
    .run = cmd_nodes_run,
};
