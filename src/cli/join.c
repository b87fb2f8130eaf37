/* medley join: this machine's node becomes a member of a cluster, by code or by hand. */
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/options.h"
#include "join/join_invite.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley join [CODE] [HOST[:PORT]]\n"
    "\n"
    "Makes this machine's node a member of a cluster. With a CODE (run medley invite on a\n"
    "member), that is all. Without one, both machines show four words: compare them, say yes\n"
    "here, and on the member run medley admit. HOST is a member; without it, the local network\n"
    "is searched.\n"
    "\n"
    "A code has eight letters and digits (K7QM-4XZD). Small letters and missing hyphens do not\n"
    "matter. If a host's name looks like a code, write it with its port.\n";

struct join_args {
    const char *code, *host; /* NULL: not given */
};

static bool is_code(const char *word)
{
    char digits[JOIN_CODE_DIGITS];
    struct error err;
    return join_code_parse(word, digits, &err) == ERROR_NONE;
}

static bool cmd_join_parse(int argc, char **argv, struct join_args *args)
{
    static const struct option options[] = {{0}};
    opterr = 0;
    if (getopt_long(argc, argv, "", options, NULL) != -1)
        return option_unknown(&command_join, argv);
    const int n_words = argc - optind;
    if (n_words > 2) {
        command_misused(&command_join, "unexpected argument '%s'", argv[optind + 2]);
        return false;
    }
    if (n_words == 2 || (n_words == 1 && is_code(argv[optind])))
        args->code = argv[optind];
    if (n_words && !args->code)
        args->host = argv[optind];
    if (n_words == 2)
        args->host = argv[optind + 1];
    struct error err;
    char digits[JOIN_CODE_DIGITS];
    if (!args->code || !join_code_parse(args->code, digits, &err))
        return true;
    command_misused(&command_join, "%s", err.text);
    return false;
}

static enum error_code cmd_join_compare(struct daemon_client *client, yyjson_val *object,
                                        struct error *err)
{
    struct answer answer = {0};
    struct error unheard;
    bool agree = false;
    const char *words = answer_text(&answer, object, "words"),
               *with = answer_text(&answer, object, "with");
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        code =
            compare_ask(words, with, "medley join CODE, with a code of medley invite", &agree, err);
    if (code || !agree)
        compare_send(client, false, &unheard);
    if (code)
        return code;
    return agree ? compare_send(client, true, err)
                 : error_set(err, ERROR_CANCELLED, "the words differ: not joined");
}

static enum error_code print_joined(yyjson_val *object, struct error *err)
{
    struct answer answer = {0};
    struct buffer line = {0};
    buffer_text(&line, "joined the cluster ");
    answer_clean(&line, answer_text(&answer, object, "cluster"));
    buffer_text(&line, " through ");
    answer_clean(&line, answer_text(&answer, object, "through"));
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        printf("%s\n", line.data ? line.data : "");
    buffer_deinit(&line);
    return code;
}

/* One line of the node. Lines of a newer one, which are unknown here, are passed over. */
static enum error_code cmd_join_take(struct daemon_client *client, yyjson_val *root, bool *joined,
                                     struct error *err)
{
    struct answer answer = {0};
    yyjson_val *words = answer_object_if(&answer, root, "compare"),
               *done = answer_object_if(&answer, root, "joined");
    if (answer_failed(&answer, err))
        return err->code;
    if (yyjson_obj_get(root, "searching"))
        fprintf(stderr, "looking for the cluster …\n");
    if (words)
        return cmd_join_compare(client, words, err);
    *joined = done != NULL;
    return done ? print_joined(done, err) : ERROR_NONE;
}

static enum error_code cmd_join_converse(struct daemon_client *client, const void *arg,
                                         struct error *err)
{
    const struct join_args *args = arg;
    bool joined = false;
    yyjson_mut_doc *question = daemon_question("join");
    daemon_question_text(question, "code", args->code);
    daemon_question_text(question, "host", args->host);
    enum error_code code = daemon_client_send(client, question, err);
    while (!code && !joined) {
        yyjson_doc *doc = NULL;
        code = daemon_client_receive(client, &doc, err);
        if (!code)
            code = cmd_join_take(client, yyjson_doc_get_root(doc), &joined, err);
        yyjson_doc_free(doc);
    }
    return code;
}

static int cmd_join_run(int argc, char **argv)
{
    struct join_args args = {0};
    return cmd_join_parse(argc, argv, &args) ? ask_converse(&command_join, cmd_join_converse, &args)
                                             : EXIT_USAGE;
}

const struct command command_join = {
    .name = "join",
    .summary = "make this machine a member of a cluster",
    .usage = usage,
    .run = cmd_join_run,
};
