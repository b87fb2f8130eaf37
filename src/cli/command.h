/* Commands of the medley binary: one file and one const entry per command, listed in main.c.
 *
 * run() gets the words after the command's name as argv[1..] (argv[0] is the name), so that
 * getopt_long works on them, and returns an exit status: EXIT_OK, EXIT_FAILED (it could not
 * be done) or EXIT_USAGE (the words are wrong). Errors go to stderr through command_fail(). */
#pragma once

#include "base/error.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct option_section;

struct command {
    const char *name;
    const char *summary; /* one line for `medley help` */
    /* `medley help NAME` and `medley NAME --help`: the usage, the options, the rest. */
    const char *usage;
    const struct option_section *options; /* cli/options.h; NULL: the usage says all */
    const char *usage_end;                /* NULL: nothing */
    int (*run)(int argc, char **argv);
};

/* Prints "medley NAME: text" and returns EXIT_FAILED, or EXIT_USAGE for ERROR_INVALID. */
int command_fail(const struct command *command, const struct error *err);
/* For wrong words: the text, then where the help is. Returns EXIT_USAGE. */
int command_misused(const struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
