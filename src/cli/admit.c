/* medley admit: lets a machine into the cluster that waits for it, after its words were
 * compared. */
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/options.h"

#include <getopt.h>
#include <stdio.h>

static const char usage[] =
    "Usage: medley admit NODE [--yes-the-words-are WORDS]\n"
    "\n"
    "Lets in a machine that waits (medley nodes lists them). Both machines show four words.\n"
    "Compare them: if they are the same on both, nobody sits between the machines, and you may\n"
    "say yes. NODE is a name or an id. If the other machine is out of sight, use a code instead:\n"
    "medley invite.\n"
    "\n"
    "  --yes-the-words-are WORDS   for programs: the words that the other machine shows. If they\n"
    "                              are the same here, it is let in without a question\n";

struct admit_args {
    const char *node, *words; /* words NULL: somebody is asked */
};

static bool cmd_admit_parse(int argc, char **argv, struct admit_args *args)
{
    static const struct option options[] = {{"yes-the-words-are", required_argument, NULL, 'w'},
                                            {0}};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option != 'w')
            return option_unknown(&command_admit, argv);
        args->words = optarg;
    }
    return option_rest(&command_admit, argc, argv,
                       "which machine? medley nodes lists those that wait", &args->node);
}

/* Where the words differ, or the answer is no, the node is told, too; what it says to that does not
 * matter. */
static enum error_code cmd_admit_decide(struct daemon_client *client, const struct admit_args *args,
                                        yyjson_val *compare, struct error *err)
{
    struct answer answer = {0};
    struct error unheard;
    bool agree = false;
    const char *words = answer_text(&answer, compare, "words"),
               *name = answer_text(&answer, compare, "name");
    enum error_code code = answer_failed(&answer, err);
    if (!code && args->words)
        agree = compare_equal(words, args->words);
    else if (!code)
        code = compare_ask(words, name, "medley admit NODE --yes-the-words-are \"WORDS\"", &agree,
                           err);
    if (code || !agree)
        compare_send(client, false, &unheard);
    if (code || agree)
        return code ? code : compare_send(client, true, err);
    struct buffer clean = {0};
    answer_clean(&clean, name);
    error_set(err, ERROR_CANCELLED, "%s is not let in%s", clean.data ? clean.data : "it",
              args->words ? ": the words here differ, so somebody may sit between the two machines"
                          : "");
    buffer_deinit(&clean);
    return ERROR_CANCELLED;
}

static enum error_code cmd_admit_converse(struct daemon_client *client, const void *arg,
                                          struct error *err)
{
    static const struct ask_done done = {.key = "admitted", .after = " is in the cluster"};
    const struct admit_args *args = arg;
    struct answer answer = {0};
    yyjson_doc *doc = NULL;
    yyjson_mut_doc *question = daemon_question("admit");
    daemon_question_text(question, "node", args->node);
    enum error_code code = daemon_client_send(client, question, err);
    if (!code)
        code = daemon_client_receive(client, &doc, err);
    if (code)
        return code;
    yyjson_val *compare = answer_object(&answer, yyjson_doc_get_root(doc), "compare");
    code = answer_failed(&answer, err);
    if (!code)
        code = cmd_admit_decide(client, args, compare, err);
    yyjson_doc_free(doc);
    if (!code)
        code = daemon_client_receive(client, &doc, err);
    if (code)
        return code;
    code = ask_print_done(doc, &done, err);
    yyjson_doc_free(doc);
    return code;
}

static int cmd_admit_run(int argc, char **argv)
{
    struct admit_args args = {0};
    return cmd_admit_parse(argc, argv, &args)
               ? ask_converse(&command_admit, cmd_admit_converse, &args)
               : EXIT_USAGE;
}

const struct command command_admit = {
    .name = "admit",
    .summary = "let in a machine that waits, after comparing words",
    .usage = usage,
    .run = cmd_admit_run,
};
