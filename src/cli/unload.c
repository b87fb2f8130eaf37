/* medley unload: an instance gives its memory back. */
#include "cli/ask.h"
#include "cli/commands.h"

static const char usage[] =
    "Usage: medley unload INSTANCE [--json]\n"
    "\n"
    "Unloads an instance of a model (medley status lists them): its memory is given back on all "
    "machines.\n"
    "The cluster still knows the model and loads it again for the next request.\n"
    "\n"
    "  --json           for programs\n";

static int cmd_unload_run(int argc, char **argv)
{
    static const struct ask_about about = {
        .missing = "which instance? medley status lists them",
        .key = "instance",
        .done = {.key = "unloaded", .after = " is unloaded"},
    };
    return ask_about(&command_unload, argc, argv, &about);
}

const struct command command_unload = {
    .name = "unload",
    .summary = "unload a model that runs, and give its memory back",
    .usage = usage,
    .run = cmd_unload_run,
};
