/* What the command line says. Each returns false after saying what is wrong with it
 * (command_misused). */
#pragma once

#include "cli/command.h"

#include <stdbool.h>
#include <stdint.h>

/* `name` is how the user wrote it: "-n" or "--top-k". */
bool option_u32(const struct command *command, const char *name, const char *text, uint32_t min,
                uint32_t max, uint32_t *out);
bool option_u64(const struct command *command, const char *name, const char *text, uint64_t *out);
bool option_float(const struct command *command, const char *name, const char *text,
                  float *out); /* finite */

/* For a command that knows no option but --json and takes one word, or none where `missing` is
 * NULL; else that is what is said when the word is not there. */
struct option_words {
    bool json;
    const char *word;
};
bool option_words(const struct command *command, int argc, char **argv, const char *missing,
                  struct option_words *out);
/* The words after the options that getopt_long() has taken. */
bool option_rest(const struct command *command, int argc, char **argv, const char *missing,
                 const char **out);
/* What getopt_long() has just refused. */
bool option_unknown(const struct command *command, char **argv);
