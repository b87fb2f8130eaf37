/* medley forget: the cluster knows a model no more. */
#include "cli/ask.h"
#include "cli/commands.h"

static const char usage[] =
    "Usage: medley forget MODEL [--json]\n"
    "\n"
    "Removes a model from the cluster (medley status lists them): the API no longer serves it,\n"
    "and its instances are unloaded. No file is deleted.\n"
    "\n"
    "  --json           for programs\n";

static int cmd_forget_run(int argc, char **argv)
{
    static const struct ask_about about = {
        .missing = "which model? medley status lists them",
        .key = "model",
        .done = {.key = "forgotten", .after = " is forgotten"},
    };
    return ask_about(&command_forget, argc, argv, &about);
}

const struct command command_forget = {
    .name = "forget",
    .summary = "remove a model from the cluster; files stay",
    .usage = usage,
    .run = cmd_forget_run,
};
