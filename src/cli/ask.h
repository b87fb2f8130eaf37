/* Commands that are one question to this machine's node and one answer. The command's name is the question's; --json
 * prints the answer as it is. Both return an exit status. */
#pragma once

#include "cli/command.h"

#include <yyjson.h>

/* No words: `print` shows the answer to people. */
int ask_and_show(const struct command *command, int argc, char **argv,
                 enum error_code (*print)(yyjson_doc *answer, struct error *err));

/* One word, which is a thing to do something with: {"do":"remove","node":"tower"} -> {"removed":"tower"}, and "tower is
 * removed" on stdout. */
struct ask_about {
    const char *missing; /* "which node? …" */
    const char *key;     /* "node" */
    const char *done;    /* "removed" */
    const char *after;   /* " is removed" */
};
enum error_code ask_print_done(yyjson_doc *answer, const struct ask_about *about, struct error *err);
int ask_about(const struct command *command, int argc, char **argv, const struct ask_about *about);
