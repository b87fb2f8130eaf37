#include "cli/compare.h"

#include "cli/answer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_yes(const char *line)
{
    char word[8] = "";
    if (sscanf(line, " %7s", word) != 1)
        return false;
    for (char *c = word; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return strcmp(word, "y") == 0 || strcmp(word, "yes") == 0;
}

enum error_code compare_ask(const char *words, const char *name, const char *otherwise, bool *agree,
                            struct error *err)
{
    struct buffer question = {0};
    *agree = false;
    if (!isatty(STDIN_FILENO))
        return error_set(err, ERROR_UNSUPPORTED,
                         "a person must compare words, and there is no terminal to ask on: %s",
                         otherwise);
    answer_clean(&question, words);
    buffer_text(&question, "\nAre these the words on ");
    answer_clean(&question, name);
    buffer_text(&question, "? [y/N] ");
    if (question.failed) {
        buffer_deinit(&question);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the words");
    }
    fputs(question.data, stderr);
    fflush(stderr);
    buffer_deinit(&question);
    char *line = NULL;
    size_t capacity = 0;
    *agree = getline(&line, &capacity, stdin) >= 0 && is_yes(line);
    free(line);
    return ERROR_NONE;
}

static const char *next_letter(const char *text)
{
    while (*text == ' ' || *text == '-')
        text++;
    return text;
}

bool compare_equal(const char *a, const char *b)
{
    for (a = next_letter(a), b = next_letter(b); *a && *b;
         a = next_letter(a + 1), b = next_letter(b + 1)) {
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
    }
    return !*a && !*b;
}

enum error_code compare_send(struct daemon_client *client, bool agree, struct error *err)
{
    yyjson_mut_doc *reply = daemon_question(NULL);
    yyjson_mut_obj_add_bool(reply, yyjson_mut_doc_get_root(reply), "agree", agree);
    return daemon_client_send(client, reply, err);
}
