#include "cli/ask.h"

#include "cli/answer.h"
#include "cli/options.h"

#include <stdio.h>

int ask_converse(const struct command *command,
                 enum error_code (*converse)(struct daemon_client *client, const void *args,
                                             struct error *err),
                 const void *args)
{
    struct daemon_client *client = NULL;
    struct error err;
    enum error_code code = daemon_client_open(&client, &err);
    if (!code)
        code = converse(client, args, &err);
    daemon_client_close(client);
    return code ? command_fail(command, &err) : EXIT_OK;
}

/* Shown with `print`, or said with `done`. */
static int ask_node(const struct command *command, yyjson_mut_doc *question, bool json,
                    enum error_code (*print)(yyjson_doc *answer, struct error *err),
                    const struct ask_done *done)
{
    struct error err;
    yyjson_doc *doc = NULL;
    enum error_code code = daemon_ask(question, !done || !done->takes_long, &doc, &err);
    if (!code && json)
        code = answer_print_json(doc, false, &err);
    else if (!code)
        code = print ? print(doc, &err) : ask_print_done(doc, done, &err);
    yyjson_doc_free(doc);
    return code ? command_fail(command, &err) : EXIT_OK;
}

int ask_show(const struct command *command, yyjson_mut_doc *question, bool json,
             enum error_code (*print)(yyjson_doc *answer, struct error *err))
{
    return ask_node(command, question, json, print, NULL);
}

int ask_and_show(const struct command *command, int argc, char **argv,
                 enum error_code (*print)(yyjson_doc *answer, struct error *err))
{
    struct option_words words;
    if (!option_words(command, argc, argv, NULL, &words))
        return EXIT_USAGE;
    return ask_show(command, daemon_question(command->name), words.json, print);
}

enum error_code ask_print_done(yyjson_doc *doc, const struct ask_done *done, struct error *err)
{
    struct answer answer = {0};
    struct buffer name = {0};
    answer_clean(&name, answer_text(&answer, yyjson_doc_get_root(doc), done->key));
    enum error_code code = answer_failed(&answer, err);
    if (!code)
        printf("%s%s%s\n", done->before ? done->before : "", name.data ? name.data : "",
               done->after);
    buffer_deinit(&name);
    return code;
}

int ask_do(const struct command *command, yyjson_mut_doc *question, bool json,
           const struct ask_done *done)
{
    return ask_node(command, question, json, NULL, done);
}

int ask_rotation(const struct command *command, bool json)
{
    static const struct ask_done rotated = {
        .key = "rotated",
        .after = " has a new key; the old one is retired when every member has a new certificate"};
    yyjson_mut_doc *question = daemon_question("authority");
    daemon_question_text(question, "what", "rotate");
    return ask_do(command, question, json, &rotated);
}

int ask_about(const struct command *command, int argc, char **argv, const struct ask_about *about)
{
    struct option_words words;
    if (!option_words(command, argc, argv, about->missing, &words))
        return EXIT_USAGE;
    yyjson_mut_doc *question = daemon_question(command->name);
    daemon_question_text(question, about->key, words.word);
    return ask_do(command, question, words.json, &about->done);
}
