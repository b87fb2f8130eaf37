/* medley links: what was measured between the machines. */
#include "base/size_text.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/links_graph.h"
#include "cli/options.h"
#include "cli/table.h"

#include <getopt.h>

static const char usage[] =
    "Usage: medley links [--dot] [--json]\n"
    "\n"
    "Lists the links between the machines of the cluster, each direction by itself: class,\n"
    "latency, jitter, loss, bandwidth. They are measured all the time; - means not yet.\n"
    "\n"
    "  --dot            a graph for Graphviz: medley links --dot | dot -Tsvg\n"
    "  --json           for programs; what is unknown is null\n";

static void show_time(struct answer *answer, yyjson_val *link, const char *key, struct table *table)
{
    uint64_t ns;
    if (answer_count_if(answer, link, key, &ns))
        table_cell(table, "%s", time_text((double)ns * 1e-9).text);
    else
        table_cell(table, "-");
}

static void show_loss(struct answer *answer, yyjson_val *link, struct table *table)
{
    uint64_t ppm;
    if (answer_count_if(answer, link, "loss_ppm", &ppm))
        table_cell(table, "%.*f %%", ppm && ppm < 1000 ? 3 : 1, (double)ppm * 1e-4);
    else
        table_cell(table, "-");
}

static void show_bandwidth(struct answer *answer, yyjson_val *link, struct table *table)
{
    uint64_t bytes_per_s;
    if (answer_count_if(answer, link, "bytes_per_s", &bytes_per_s))
        table_cell(table, "%s", bandwidth_text((double)bytes_per_s).text);
    else
        table_cell(table, "-");
}

static void cmd_links_add_row(struct answer *answer, yyjson_val *link, struct table *table)
{
    const char *class = answer_text_if(answer, link, "class");
    table_cell(table, "%s", answer_text(answer, link, "from"));
    table_cell(table, "%s", answer_text(answer, link, "to"));
    table_cell(table, "%s", answer_flag(answer, link, "up") ? "up" : "down");
    table_cell(table, "%s", class && class[0] ? class : "-");
    show_time(answer, link, "latency_ns", table);
    show_time(answer, link, "jitter_ns", table);
    show_loss(answer, link, table);
    show_bandwidth(answer, link, table);
}

static enum error_code cmd_links_print(yyjson_doc *doc, struct error *err)
{
    static const char *const titles[] = {"FROM",   "TO",   "STATE",     "CLASS", "LATENCY",
                                         "JITTER", "LOSS", "BANDWIDTH", NULL};
    struct answer answer = {0};
    struct table table = {titles};
    yyjson_val *link;
    size_t i, n;
    yyjson_arr_foreach(answer_list(&answer, yyjson_doc_get_root(doc), "links"), i, n, link)
        cmd_links_add_row(&answer, link, &table);
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        code = table_print(&table, err);
    table_deinit(&table);
    return code;
}

static int cmd_links_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"dot", no_argument, NULL, 'd'}, {"json", no_argument, NULL, 'j'}, {NULL, 0, NULL, 0}};
    bool dot = false, json = false;
    const char *word;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option != 'd' && option != 'j') {
            option_unknown(&command_links, argv);
            return EXIT_USAGE;
        }
        dot = dot || option == 'd';
        json = json || option == 'j';
    }
    if (!option_rest(&command_links, argc, argv, NULL, &word))
        return EXIT_USAGE;
    return ask_show(&command_links, daemon_question("links"), json,
                    dot ? links_print_graph : cmd_links_print);
}

const struct command command_links = {
    .name = "links",
    .summary = "list the links between machines: latency, bandwidth, loss",
    .usage = usage,
    .run = cmd_links_run,
};
