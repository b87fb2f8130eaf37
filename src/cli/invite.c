/* medley invite: a code that lets one machine in. */
#include "base/limits.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

static const char usage[] =
    "Usage: medley invite [--minutes N] [--role admin] [--json]\n"
    "\n"
    "Prints a code that lets one machine into the cluster. On that machine: medley join CODE.\n"
    "The code works once, for some minutes. This machine has one code at a time: a new one makes\n"
    "the one before void. Tell it to nobody who should not be in.\n"
    "\n"
    "  --minutes N      how long the code works, 1 to 1440 (default 10)\n"
    "  --role ROLE      admin: it may let others in, too; else member (medley role)\n"
    "  --json           for programs\n";

enum { MINUTE_MS = 60 * 1000, OPTION_MINUTES = 256, OPTION_ROLE, OPTION_JSON };

static bool cmd_invite_parse(int argc, char **argv, uint32_t *minutes, const char **role,
                             bool *json)
{
    static const struct option options[] = {{"minutes", required_argument, NULL, OPTION_MINUTES},
                                            {"role", required_argument, NULL, OPTION_ROLE},
                                            {"json", no_argument, NULL, OPTION_JSON},
                                            {0}};
    const struct command *command = &command_invite;
    const char *none;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == OPTION_JSON)
            *json = true;
        else if (option == OPTION_ROLE)
            *role = optarg;
        else if (option != OPTION_MINUTES)
            return option_unknown(command, argv);
        else if (!option_u32(command, "--minutes", optarg, 1, LIMIT_JOIN_CODE_MS_MAX / MINUTE_MS,
                             minutes))
            return false;
    }
    return option_rest(command, argc, argv, NULL, &none);
}

static void say_how_long(uint64_t seconds)
{
    const bool is_long = seconds >= 60;
    const uint64_t n = is_long ? (seconds + 30) / 60 : seconds;
    printf("The code lets one machine in, within %" PRIu64 " %s%s. There: medley join ", n,
           is_long ? "minute" : "second", n == 1 ? "" : "s");
}

static enum error_code cmd_invite_print(yyjson_doc *doc, struct error *err)
{
    struct answer answer = {0};
    struct buffer code_text = {0};
    answer_clean(&code_text, answer_text(&answer, yyjson_doc_get_root(doc), "code"));
    const uint64_t expires_s = answer_count(&answer, yyjson_doc_get_root(doc), "expires_s");
    const bool replaces =
        yyjson_get_bool(yyjson_obj_get(yyjson_doc_get_root(doc), "replaces_code"));
    enum error_code code = answer_failed(&answer, err);
    if (!code) {
        const char *text = code_text.data ? code_text.data : "";
        printf("%s\n", text);
        say_how_long(expires_s);
        printf("%s\n", text);
        if (replaces)
            printf("The code that was made before is void now.\n");
    }
    buffer_deinit(&code_text);
    return code;
}

static int cmd_invite_run(int argc, char **argv)
{
    uint32_t minutes = LIMIT_JOIN_CODE_MS / MINUTE_MS;
    const char *role = "member";
    bool json = false;
    if (!cmd_invite_parse(argc, argv, &minutes, &role, &json))
        return EXIT_USAGE;
    yyjson_mut_doc *question = daemon_question("invite");
    daemon_question_count(question, "minutes", minutes);
    daemon_question_text(question, "role", role);
    return ask_show(&command_invite, question, json, cmd_invite_print);
}

const struct command command_invite = {
    .name = "invite",
    .summary = "print a code that lets one machine into the cluster",
    .usage = usage,
    .run = cmd_invite_run,
};
