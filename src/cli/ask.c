#include "cli/ask.h"

#include "cli/answer.h"
#include "cli/daemon.h"
#include "cli/options.h"

#include <stdio.h>

int ask_and_show(const struct command *command, int argc, char **argv,
                 enum error_code (*print)(yyjson_doc *answer, struct error *err))
{
    struct option_words words;
    struct error err;
    yyjson_doc *doc = NULL;
    if (!option_words(command, argc, argv, NULL, &words))
        return EXIT_USAGE;
    enum error_code code = daemon_ask(daemon_question(command->name), &doc, &err);
    if (!code)
        code = words.json ? answer_print_json(doc, false, &err) : print(doc, &err);
    yyjson_doc_free(doc);
    return code ? command_fail(command, &err) : EXIT_OK;
}

enum error_code ask_print_done(yyjson_doc *doc, const struct ask_about *about, struct error *err)
{
    struct answer answer = {0};
    struct buffer name = {0};
    answer_clean(&name, answer_text(&answer, yyjson_doc_get_root(doc), about->done));
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        printf("%s%s\n", name.data ? name.data : "", about->after);
    buffer_deinit(&name);
    return code;
}

int ask_about(const struct command *command, int argc, char **argv, const struct ask_about *about)
{
    struct option_words words;
    struct error err;
    yyjson_doc *doc = NULL;
    if (!option_words(command, argc, argv, about->missing, &words))
        return EXIT_USAGE;
    yyjson_mut_doc *question = daemon_question(command->name);
    daemon_question_text(question, about->key, words.word);
    enum error_code code = daemon_ask(question, &doc, &err);
    if (!code)
        code = words.json ? answer_print_json(doc, false, &err) : ask_print_done(doc, about, &err);
    yyjson_doc_free(doc);
    return code ? command_fail(command, &err) : EXIT_OK;
}
