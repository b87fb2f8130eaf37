/* medley add: makes a model's file known to the cluster. */
#include "base/size_text.h"
#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/model_word.h"
#include "cli/options.h"

#include <stdio.h>
#include <unistd.h>

static const char usage[] =
    "Usage: medley add MODEL.gguf [--json]\n"
    "\n"
    "Registers a model with the cluster. Every machine's API offers it, and the first request\n"
    "loads it. The file stays where it is: a machine that computes part of the model fetches\n"
    "that part from here. The command reads the whole file once, to hash it.\n"
    "\n"
    "  --json           for programs\n";

/* One line of the node; *done with the last. */
static enum error_code cmd_add_take(yyjson_doc *doc, bool json, bool *done, struct error *err)
{
    yyjson_val *root = yyjson_doc_get_root(doc);
    struct answer answer = {0};
    struct buffer name = {0};
    yyjson_val *adding = answer_object_if(&answer, root, "adding");
    const char *model = answer_text_if(&answer, root, "model");
    const uint64_t bytes = adding ? answer_count(&answer, adding, "bytes") : 0;
    enum error_code code = answer_failed(&answer, err);
    if (code)
        return code;
    if (adding && isatty(STDERR_FILENO))
        fprintf(stderr, "reading %s …\n", size_text(bytes).text);
    *done = model != NULL;
    if (model && json)
        return answer_print_json(doc, false, err);
    if (model) {
        answer_clean(&name, model);
        printf("the cluster now knows %s\n", name.data ? name.data : "");
        buffer_deinit(&name);
    }
    return ERROR_NONE;
}

struct add_args {
    char path[PATH_MAX];
    bool json;
};

static enum error_code cmd_add_converse(struct daemon_client *client, const void *arg,
                                        struct error *err)
{
    const struct add_args *args = arg;
    bool done = false;
    yyjson_mut_doc *question = daemon_question("add");
    daemon_question_text(question, "path", args->path);
    enum error_code code = daemon_client_send(client, question, err);
    while (!code && !done) {
        yyjson_doc *doc = NULL;
        code = daemon_client_receive(client, &doc, err);
        if (!code)
            code = cmd_add_take(doc, args->json, &done, err);
        yyjson_doc_free(doc);
    }
    return code;
}

static int cmd_add_run(int argc, char **argv)
{
    struct option_words words;
    struct add_args args;
    struct error err;
    if (!option_words(&command_add, argc, argv, "which model? give a .gguf file", &words))
        return EXIT_USAGE;
    args.json = words.json;
    if (model_word_file(words.word, args.path, &err))
        return command_fail(&command_add, &err);
    return ask_converse(&command_add, cmd_add_converse, &args);
}

const struct command command_add = {
    .name = "add",
    .summary = "register a model with the cluster; the first request loads it",
    .usage = usage,
    .run = cmd_add_run,
};
