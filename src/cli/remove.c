/* medley remove: a machine leaves the cluster, and is not let in again. */
#include "cli/ask.h"
#include "cli/commands.h"

static const char usage[] =
    "Usage: medley remove NODE [--json]\n"
    "\n"
    "Takes a machine out of the cluster: every member refuses its certificate at once, and what\n"
    "ran on it is placed on the others. NODE is a name or an id (medley nodes). The machine can\n"
    "only come back as a new member: medley admit, or a new code from medley invite.\n"
    "\n"
    "  --json           for programs\n";

static int cmd_remove_run(int argc, char **argv)
{
    static const struct ask_about about = {
        .missing = "which machine? medley nodes lists them",
        .key = "node",
        .done = {.key = "removed", .after = " is removed from the cluster"},
    };
    return ask_about(&command_remove, argc, argv, &about);
}

const struct command command_remove = {
    .name = "remove",
    .summary = "take a machine out of the cluster, for good",
    .usage = usage,
    .run = cmd_remove_run,
};
