/* medley heat: the devices of the cluster, hottest first. */
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/live_client.h"
#include "cli/live_rows.h"
#include "cli/options.h"

#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "Usage: medley heat [--follow] [--json]\n"
    "\n"
    "Shows all devices of the cluster, hottest first: the temperature now and in 10 seconds at\n"
    "this power, the limit, when it would be reached, the share of its time that its governor\n"
    "lets it compute, and what the governor does: free, lower precision, slowed, paused.\n"
    "\"-\" is not known: the device has no sensor, or its machine is down.\n"
    "\n"
    "  --follow         again whenever something has changed, until Ctrl-C\n"
    "  --json           for programs: one object per line; what is unknown is null\n";

struct heat_args {
    bool follow, json;
};

static bool cmd_heat_parse(int argc, char **argv, struct heat_args *args)
{
    static const struct option options[] = {
        {"follow", no_argument, NULL, 'f'}, {"json", no_argument, NULL, 'j'}, {0}};
    const char *none;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "f", options, NULL)) != -1;) {
        if (option == 'f')
            args->follow = true;
        else if (option == 'j')
            args->json = true;
        else
            return option_unknown(&command_heat, argv);
    }
    return option_rest(&command_heat, argc, argv, NULL, &none);
}

static enum error_code cmd_heat_print(const struct live_client *live, bool json, struct error *err)
{
    struct live_rows rows;
    struct buffer text = {0};
    bool good = live_rows_read(yyjson_mut_doc_get_root(live->view), true, &rows);
    if (good && json)
        good = live_rows_write(&rows, &text);
    else if (good)
        live_rows_show_heat(&rows, 0, &text);
    good = good && !text.failed;
    if (good)
        fwrite(text.data, 1, text.size, stdout);
    fflush(stdout);
    live_rows_deinit(&rows);
    buffer_deinit(&text);
    return good ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "not enough memory for the devices");
}

static enum error_code cmd_heat_converse(struct daemon_client *client, const void *arg,
                                         struct error *err)
{
    const struct heat_args *args = arg;
    struct live_client live = {0};
    daemon_client_hurry(client); /* it tells something twice a second */
    enum error_code code = live_client_begin(&live, client, err);
    if (!code)
        code = cmd_heat_print(&live, args->json, err);
    while (!code && args->follow && !ferror(stdout)) {
        bool changed;
        code = live_client_take(&live, client, &changed, err);
        if (!code && changed && !args->json)
            printf("\n");
        if (!code && changed)
            code = cmd_heat_print(&live, args->json, err);
    }
    live_client_deinit(&live);
    return code;
}

static int cmd_heat_run(int argc, char **argv)
{
    struct heat_args args = {0};
    return cmd_heat_parse(argc, argv, &args) ? ask_converse(&command_heat, cmd_heat_converse, &args)
                                             : EXIT_USAGE;
}

const struct command command_heat = {
    .name = "heat",
    .summary = "show the cluster's devices, hottest first",
    .usage = usage,
    .run = cmd_heat_run,
};
