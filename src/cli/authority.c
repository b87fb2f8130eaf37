/* medley authority: a new key for the authority that signs the cluster's certificates. */
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley authority rotate [--grace-days N] [--json]\n"
    "       medley authority retire [--json]\n"
    "\n"
    "The authority's key signs the members' certificates. `rotate` gives it a new one: after an\n"
    "admin was removed or made a plain member, say. Every member gets a new certificate by "
    "itself.\n"
    "When all have theirs, or after the time of grace, the old key is worth nothing. `retire` "
    "says\n"
    "so at once. A member that was away all that time has to `medley leave` and `medley join`.\n"
    "Clients that trust the API's certificates need the new `medley ca export`.\n"
    "\n"
    "  --grace-days N   how long to wait for members that are away, 0 to 366 (default 7)\n"
    "  --json           for programs\n";

struct authority_args {
    bool json, has_grace;
    uint32_t grace_days;
    const char *what;
};

static bool cmd_authority_parse(int argc, char **argv, struct authority_args *out)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"grace-days", required_argument, NULL, 'g'}, {0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'j')
            out->json = true;
        else if (option != 'g')
            return option_unknown(&command_authority, argv);
        else if (!option_u32(&command_authority, "--grace-days", optarg, 0, 366, &out->grace_days))
            return false;
        else
            out->has_grace = true;
    }
    return option_rest(&command_authority, argc, argv, "what? rotate or retire", &out->what);
}

static int cmd_authority_run(int argc, char **argv)
{
    static const struct ask_done rotated = {
        .key = "rotated",
        .after = " has a new key; the old one is retired when every member has a new certificate"};
    static const struct ask_done retired = {.key = "retired", .after = "'s old key is retired"};
    struct authority_args args = {0};
    if (!cmd_authority_parse(argc, argv, &args))
        return EXIT_USAGE;
    const bool rotates = strcmp(args.what, "rotate") == 0;
    if (!rotates && strcmp(args.what, "retire") != 0)
        return command_misused(&command_authority, "rotate or retire, not '%s'", args.what);
    yyjson_mut_doc *question = daemon_question("authority");
    daemon_question_text(question, "what", args.what);
    if (args.has_grace)
        daemon_question_count(question, "grace_s", args.grace_days * 86400);
    return ask_do(&command_authority, question, args.json, rotates ? &rotated : &retired);
}

const struct command command_authority = {
    .name = "authority",
    .summary = "give the cluster's authority a new key",
    .usage = usage,
    .run = cmd_authority_run,
};
