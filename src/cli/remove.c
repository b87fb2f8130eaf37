/* medley remove: a machine leaves the cluster, and is not let in again. */
#include "cli/ask.h"
#include "cli/commands.h"

static const char usage[] = "Usage: medley remove NODE [--json]\n"
                            "\n"
                            "Takes a machine out of the cluster: its certificate is refused at "
                            "once, everywhere, and what ran on\n"
                            "it is placed anew on the others. NODE is its name or its id (medley "
                            "nodes). It comes back only as a\n"
                            "new member: medley admit, or a new code from medley invite.\n"
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
    .summary = "take a machine out of the cluster; it is refused from then on",
    .usage = usage,
    .run = cmd_remove_run,
};
