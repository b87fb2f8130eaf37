/* medley unload: an instance gives its memory back. */
#include "cli/ask.h"
#include "cli/commands.h"

static const char usage[] =
    "Usage: medley unload INSTANCE [--json]\n"
    "\n"
    "Unloads a model (medley status lists the instances) and frees its memory on all machines.\n"
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
    .summary = "unload a running model, and free its memory",
    .usage = usage,
    .run = cmd_unload_run,
};
