/* medley lend: what this machine lends the cluster, shown and changed while its node runs. */
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "lending/lending.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley lend [on|off] [options]\n"
    "\n"
    "Shows what this machine lends the cluster, after changing what is said. What runs here "
    "beyond\n"
    "a new limit moves to other machines while it goes on answering; where they lack the room, it\n"
    "waits. The machine stays a member, and remembers this. `off` lends nothing until `on`.\n"
    "\n"
    "  --memory SIZE    at most so much of each memory, such as 8GiB; all\n"
    "  --share PERCENT  at most this part of each memory, such as 50%; all\n"
    "  --devices LIST   only these devices, by their ids (medley devices), with commas; all\n"
    "  --hours A-B      only then, by the local clock, such as 22:00-07:00; always\n"
    "  --battery WORD   yes or no: also while it runs on its battery\n"
    "  --used WORD      yes or no: also while others use more than half of it\n"
    "  --json           for programs\n";

static enum error_code cmd_lend_print(yyjson_doc *doc, struct error *err)
{
    static const char *const said[LENDING_SETTINGS] = {
        "memory", "share", "devices", "hours", "on battery", "while used", "now"};
    struct answer answer = {0};
    struct buffer out = {0};
    yyjson_val *lends = answer_object(&answer, yyjson_doc_get_root(doc), "lends");
    for (uint32_t i = 0; i < LENDING_SETTINGS; i++) {
        buffer_printf(&out, "%-11s", said[i]);
        answer_clean(&out, answer_text(&answer, lends, lending_setting(i)));
        buffer_text(&out, "\n");
    }
    const char *why = answer_text_if(&answer, lends, "nothing_now");
    if (why) {
        buffer_text(&out, "Nothing is lent now: ");
        answer_clean(&out, why);
        buffer_text(&out, ".\n");
    }
    const enum error_code code = answer_failed(&answer, err);
    if (!code)
        fputs(out.data ? out.data : "", stdout);
    buffer_deinit(&out);
    return code;
}

struct lend_args {
    const char *values[LENDING_SETTINGS]; /* by setting; NULL: as it was */
    bool json;
};

/* The last setting is the word's. */
static bool take_word(const char *word, struct lend_args *out)
{
    const bool on = word && strcmp(word, "on") == 0;
    if (!word)
        return true;
    if (!on && strcmp(word, "off") != 0) {
        command_misused(&command_lend, "on or off, not '%s'", word);
        return false;
    }
    out->values[LENDING_SETTINGS - 1] = on ? "yes" : "no";
    return true;
}

static bool cmd_lend_parse(int argc, char **argv, struct lend_args *out)
{
    static const struct option options[] = {
        {"memory", required_argument, NULL, 0},  {"share", required_argument, NULL, 1},
        {"devices", required_argument, NULL, 2}, {"hours", required_argument, NULL, 3},
        {"battery", required_argument, NULL, 4}, {"used", required_argument, NULL, 5},
        {"json", no_argument, NULL, 'j'},        {0}};
    struct lending lending = {0};
    struct error err;
    const char *word = NULL;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(&command_lend, argv);
        if (option == 'j') {
            out->json = true;
            continue;
        }
        out->values[option] = optarg;
        if (lending_set(&lending, lending_setting((uint32_t)option), optarg, &err)) {
            command_misused(&command_lend, "%s", err.text);
            return false;
        }
    }
    if (optind < argc)
        word = argv[optind++];
    if (optind < argc) {
        command_misused(&command_lend, "one word at most, not '%s', too", argv[optind]);
        return false;
    }
    return take_word(word, out);
}

static int cmd_lend_run(int argc, char **argv)
{
    struct lend_args args = {0};
    if (!cmd_lend_parse(argc, argv, &args))
        return EXIT_USAGE;
    yyjson_mut_doc *question = daemon_question("lend");
    for (uint32_t i = 0; i < LENDING_SETTINGS; i++) {
        if (args.values[i])
            daemon_question_text(question, lending_setting(i), args.values[i]);
    }
    return ask_show(&command_lend, question, args.json, cmd_lend_print);
}

const struct command command_lend = {
    .name = "lend",
    .summary = "show or change what this machine lends the cluster",
    .usage = usage,
    .run = cmd_lend_run,
};
