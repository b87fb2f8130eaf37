/* medley drain: a machine is emptied of everything that runs on it, and goes on being a member. */
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "Usage: medley drain NODE [--undo] [--json]\n"
    "\n"
    "Moves everything off a machine while it goes on answering, and places nothing on it any\n"
    "more: before maintenance, say. What the others have no room for stays, and medley status\n"
    "says so. NODE is a name or an id (medley nodes).\n"
    "\n"
    "  --undo           use the machine again\n"
    "  --json           for programs\n";

struct drain_args {
    bool undo, json;
    const char *node;
};

static bool cmd_drain_parse(int argc, char **argv, struct drain_args *out)
{
    static const struct option options[] = {
        {"undo", no_argument, NULL, 'u'}, {"json", no_argument, NULL, 'j'}, {0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(&command_drain, argv);
        *(option == 'u' ? &out->undo : &out->json) = true;
    }
    return option_rest(&command_drain, argc, argv, "which machine? medley nodes lists them",
                       &out->node);
}

static int cmd_drain_run(int argc, char **argv)
{
    static const struct ask_done drained = {
        .key = "drained", .after = " is used for nothing new; what runs there moves away"};
    static const struct ask_done undrained = {.key = "undrained", .after = " may be used again"};
    struct drain_args args = {0};
    if (!cmd_drain_parse(argc, argv, &args))
        return EXIT_USAGE;
    yyjson_mut_doc *question = daemon_question("drain");
    daemon_question_text(question, "node", args.node);
    if (question)
        yyjson_mut_obj_add_bool(question, yyjson_mut_doc_get_root(question), "undo", args.undo);
    return ask_do(&command_drain, question, args.json, args.undo ? &undrained : &drained);
}

const struct command command_drain = {
    .name = "drain",
    .summary = "move everything off a machine, and place nothing on it",
    .usage = usage,
    .run = cmd_drain_run,
};
