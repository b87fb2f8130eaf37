/* medley forget: the cluster knows a model no more. */
#include "cli/ask.h"
#include "cli/commands.h"

static const char usage[] = "Usage: medley forget MODEL [--json]\n"
                            "\n"
                            "Makes the cluster forget a model (medley status lists them): it is "
                            "not served any more, and its\n"
                            "instances are unloaded. No file is deleted.\n"
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
    .summary = "make the cluster forget a model; files stay where they are",
    .usage = usage,
    .run = cmd_forget_run,
};
