/* What the command line says. Each function that returns a bool returns false after saying what is
 * wrong (command_misused).
 *
 * A command with several options has them in a table: their names, what they take, their defaults,
 * where their values go and what the help says of them. options_parse() and options_help() are made
 * of it, so that an option that the help or the parser forgot cannot be.
 *
 *     struct bench_flags { struct session_flags session; uint32_t n_prompt; … };
 *     static const struct option_row rows[] = {
 *         {.letter = 'p', .alias = "prompt", .value = "N", .standard = "512",
 *          .help = "tokens of the prompt (default %s; 0: leave it out)", OPTION_U32(
 *          struct bench_flags, n_prompt, 0, LIMIT_CONTEXT - 1)},
 *     };
 *     static const struct option_section sections[] = {
 *         {.rows = rows, .n_rows = …, .column = 19},
 *         {.rows = session_options, …, .offset = offsetof(struct bench_flags, session)},
 *         {0},
 *     };
 *     … if (!options_parse(&command_bench, argc, argv, &flags)) return EXIT_USAGE; */
#pragma once

#include "base/buffer.h"
#include "cli/command.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- tables ---------------------------------------------------------------------------------- */

struct option_row;
/* Puts a value into the flags that the row's offsets count from. */
typedef bool (*option_take_fn)(const struct command *command, const struct option_row *row,
                               const char *value, void *flags);

struct option_row {
    const char *name;  /* "threads"; NULL: the letter is its name. A row without either is none */
    char letter;       /* 't'; 0: it has none */
    const char *alias; /* another name, which the help leaves out */
    const char *value; /* what it takes, in the help's words: "N"; NULL: nothing */
    const char *help;  /* lines; %s is where the default stands */
    const char *standard; /* the default, as a user would write it; NULL: a zeroed flag */
    option_take_fn take;
    size_t offset;            /* of the flag */
    size_t mark;              /* of a bool that becomes true when it is given; 0: none */
    uint64_t lowest, highest; /* of a whole number */
};

struct option_section {
    const char *title; /* what the help says before; NULL: nothing */
    const struct option_row *rows;
    size_t n_rows;
    size_t offset; /* in the command's flags, of what its rows' offsets count from */
    int column;    /* where the help of a row begins; 0: rows stand one behind the other, without */
    const char *end; /* what the help says after; NULL: a line's end */
};

#define OPTION_ROWS(array) .rows = array, .n_rows = sizeof array / sizeof *array

/* For a row: where the value goes, and how. */
#define OPTION_INTO(type, field, taker) .take = (taker), .offset = offsetof(type, field)
#define OPTION_TRUE(type, field) OPTION_INTO(type, field, option_take_true)
#define OPTION_TEXT(type, field) OPTION_INTO(type, field, option_take_text)
#define OPTION_FLOAT(type, field) OPTION_INTO(type, field, option_take_float)
#define OPTION_U64(type, field) OPTION_INTO(type, field, option_take_u64)
#define OPTION_U32(type, field, low, high)                                                         \
    OPTION_INTO(type, field, option_take_u32), .lowest = (low), .highest = (high)
/* A uint64_t of bytes: an amount as base/amount.h reads it, or a plain number of bytes. */
#define OPTION_BYTES(type, field) OPTION_INTO(type, field, option_take_bytes)

bool option_take_true(const struct command *command, const struct option_row *row,
                      const char *value, void *flags);
bool option_take_text(const struct command *command, const struct option_row *row,
                      const char *value, void *flags); /* the word itself, of argv */
bool option_take_float(const struct command *command, const struct option_row *row,
                       const char *value, void *flags);
bool option_take_u64(const struct command *command, const struct option_row *row, const char *value,
                     void *flags);
bool option_take_u32(const struct command *command, const struct option_row *row, const char *value,
                     void *flags);
bool option_take_bytes(const struct command *command, const struct option_row *row,
                       const char *value, void *flags);

/* How the user writes it: "--threads", "-n". Valid until the next call on this thread. */
const char *option_name(const struct option_row *row);

/* Sets the defaults, then what the words say. Words that are no options are left behind optind. */
bool options_parse(const struct command *command, int argc, char **argv, void *flags);
/* The whole help of a command, with or without a table. */
void options_help(const struct command *command, struct buffer *out);

/* ---- single values --------------------------------------------------------------------------- */

/* `name` is how the user wrote it: "-n" or "--top-k". */
bool option_u32(const struct command *command, const char *name, const char *text, uint32_t min,
                uint32_t max, uint32_t *out);
bool option_u64(const struct command *command, const char *name, const char *text, uint64_t *out);
bool option_float(const struct command *command, const char *name, const char *text,
                  float *out); /* finite */

/* A type of weights, "q4_k", as enum ggml_type (model/weight_type.h). */
bool option_precision(const struct command *command, const char *name, const char *text, int *out);

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
