/* medley remove: a machine leaves the cluster, and is not let in again. */
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <stdio.h>

static const char usage[] =
    "Usage: medley remove NODE [--rotate] [--json]\n"
    "\n"
    "Takes a machine out of the cluster: every member refuses its certificate at once, and what\n"
    "ran on it is placed on the others. NODE is a name or an id (medley nodes). The machine can\n"
    "only come back as a new member: medley admit, or a new code from medley invite.\n"
    "\n";

struct remove_args {
    bool rotates, json;
};

static const struct option_row own_options[] = {
    {.name = "rotate",
     .help = "then give the cluster's authority a new key, which a removed admin\n"
             "does not know (medley authority rotate)",
     OPTION_TRUE(struct remove_args, rotates)},
    {.name = "json", .help = "for programs", OPTION_TRUE(struct remove_args, json)},
};

static const struct option_section sections[] = {{OPTION_ROWS(own_options), .column = 19}, {0}};

static const struct ask_done removed = {.key = "removed", .after = " is removed from the cluster"};

static enum error_code cmd_remove_print(yyjson_doc *doc, struct error *err)
{
    const enum error_code code = ask_print_done(doc, &removed, err);
    if (!code && yyjson_get_bool(yyjson_obj_get(yyjson_doc_get_root(doc), "was_admin")))
        printf(
            "It was an admin, and has known the authority's key: `medley authority rotate` makes "
            "another\n");
    return code;
}

static int cmd_remove_run(int argc, char **argv)
{
    struct remove_args args = {0};
    const char *node = NULL;
    if (!options_parse(&command_remove, argc, argv, &args) ||
        !option_rest(&command_remove, argc, argv, "which machine? medley nodes lists them", &node))
        return EXIT_USAGE;
    yyjson_mut_doc *question = daemon_question("remove");
    daemon_question_text(question, "node", node);
    if (!args.rotates)
        return ask_show(&command_remove, question, args.json, cmd_remove_print);
    const int status = ask_do(&command_remove, question, args.json, &removed);
    return status == EXIT_OK ? ask_rotation(&command_remove, args.json) : status;
}

const struct command command_remove = {
    .name = "remove",
    .summary = "take a machine out of the cluster, for good",
    .usage = usage,
    .options = sections,
    .run = cmd_remove_run,
};
