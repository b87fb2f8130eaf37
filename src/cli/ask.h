/* What commands that are clients of this machine's node share: a question and its one answer, or a
 * conversation. All return an exit status, after command_fail() for what went wrong. --json prints
 * the answer as it is. */
#pragma once

#include "cli/command.h"
#include "cli/daemon.h"

/* Opens a connection, has `converse` say and hear on it what it likes, and closes it. */
int ask_converse(const struct command *command,
                 enum error_code (*converse)(struct daemon_client *client, const void *args,
                                             struct error *err),
                 const void *args);

/* One question, which it takes; `print` shows the answer to people. */
int ask_show(const struct command *command, yyjson_mut_doc *question, bool json,
             enum error_code (*print)(yyjson_doc *answer, struct error *err));
/* The same for a command without words, whose name is the question's. */
int ask_and_show(const struct command *command, int argc, char **argv,
                 enum error_code (*print)(yyjson_doc *answer, struct error *err));

/* What is said when something was done with a thing: {"removed":"tower"} -> "tower is removed" on
 * stdout. */
struct ask_done {
    const char *key;            /* "removed" */
    const char *before, *after; /* NULL, " is removed" */
    bool takes_long;            /* the node may be silent for as long as it likes */
};
enum error_code ask_print_done(yyjson_doc *answer, const struct ask_done *done, struct error *err);
int ask_do(const struct command *command, yyjson_mut_doc *question, bool json,
           const struct ask_done *done);
/* A new key for the cluster's authority: `--rotate`, after one that knew the old has gone. */
int ask_rotation(const struct command *command, bool json);
/* The same for a command of one word, whose name is the question's:
 * {"do":"remove","node":"tower"}. */
struct ask_about {
    const char *missing; /* "which node? …" */
    const char *key;     /* "node" */
    struct ask_done done;
};
int ask_about(const struct command *command, int argc, char **argv, const struct ask_about *about);
