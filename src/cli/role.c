/* medley role: who may let machines in. */
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley role NODE admin|member [--rotate] [--json]\n"
    "\n"
    "Makes a machine an admin, or a plain member. Admins let machines in, remove them, give roles\n"
    "and hold the key of the cluster's authority; for that, run the commands on one of them. "
    "Plain\n"
    "members do everything else. A cluster keeps at least one admin; have two, for when one is\n"
    "lost. NODE is a name or an id (medley nodes).\n"
    "\n"
    "  --rotate         then give the cluster's authority a new key, which a plain member does\n"
    "                   not know (medley authority rotate)\n"
    "  --json           for programs\n";

struct role_args {
    bool json, rotates;
    const char *node, *role;
};

static bool cmd_role_parse(int argc, char **argv, struct role_args *out)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"rotate", no_argument, NULL, 'r'}, {0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(&command_role, argv);
        *(option == 'r' ? &out->rotates : &out->json) = true;
    }
    if (optind < argc)
        out->node = argv[optind++];
    if (!out->node) {
        command_misused(&command_role, "which machine? medley nodes lists them");
        return false;
    }
    return option_rest(&command_role, argc, argv, "which role? admin or member", &out->role);
}

static int cmd_role_run(int argc, char **argv)
{
    static const struct ask_done admin = {.key = "admin", .after = " is an admin now"};
    static const struct ask_done member = {
        .key = "member",
        .after = " is a plain member now. It has known the authority's key: `medley authority "
                 "rotate` makes another"};
    static const struct ask_done rotated = {.key = "member", .after = " is a plain member now"};
    struct role_args args = {0};
    if (!cmd_role_parse(argc, argv, &args))
        return EXIT_USAGE;
    const bool to_admin = strcmp(args.role, "admin") == 0;
    if (!to_admin && strcmp(args.role, "member") != 0)
        return command_misused(&command_role, "a role is admin or member, not '%s'", args.role);
    yyjson_mut_doc *question = daemon_question("role");
    daemon_question_text(question, "node", args.node);
    daemon_question_text(question, "role", args.role);
    const int status = ask_do(&command_role, question, args.json,
                              to_admin       ? &admin
                              : args.rotates ? &rotated
                                             : &member);
    return status == EXIT_OK && args.rotates ? ask_rotation(&command_role, args.json) : status;
}

const struct command command_role = {
    .name = "role",
    .summary = "make a machine an admin of the cluster, or a plain member",
    .usage = usage,
    .run = cmd_role_run,
};
