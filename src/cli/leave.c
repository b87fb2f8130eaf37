/* medley leave: this machine leaves its cluster. */
#include "cli/ask.h"
#include "cli/commands.h"

#include <stdio.h>

static const char usage[] =
    "Usage: medley leave [--json]\n"
    "\n"
    "Takes this machine out of its cluster: tells the others, forgets its keys and its copy of\n"
    "the cluster's log, and ends its node. `medley up` then starts as a machine that nobody\n"
    "knows. Fetched models stay on the disk.\n"
    "\n"
    "  --json           for programs\n";

static enum error_code cmd_leave_print(yyjson_doc *answer, struct error *err)
{
    const char *name = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(answer), "left"));
    if (!name)
        return error_set(err, ERROR_IO,
                         "the node's answer makes no sense; do both have the same version?");
    printf("this machine leaves its cluster; `medley up` starts it again, as a stranger\n");
    return ERROR_NONE;
}

static int cmd_leave_run(int argc, char **argv)
{
    return ask_and_show(&command_leave, argc, argv, cmd_leave_print);
}

const struct command command_leave = {
    .name = "leave",
    .summary = "take this machine out of its cluster",
    .usage = usage,
    .run = cmd_leave_run,
};
