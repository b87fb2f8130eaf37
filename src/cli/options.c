#include "cli/options.h"

#include "base/amount.h"
#include "model/weight_type.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_u64(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno;
}

bool option_u32(const struct command *command, const char *name, const char *text, uint32_t min,
                uint32_t max, uint32_t *out)
{
    uint64_t value;
    if (!read_u64(text, &value) || value < min || value > max) {
        command_misused(command, "%s takes a whole number from %u to %u, not '%s'", name, min, max,
                        text);
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

bool option_precision(const struct command *command, const char *name, const char *text, int *out)
{
    struct error err;
    if (weight_type_find(text, out, &err) == ERROR_NONE)
        return true;
    command_misused(command, "%s: %s", name, err.text);
    return false;
}

bool option_u64(const struct command *command, const char *name, const char *text, uint64_t *out)
{
    if (read_u64(text, out))
        return true;
    command_misused(command, "%s takes a whole number, not '%s'", name, text);
    return false;
}

bool option_float(const struct command *command, const char *name, const char *text, float *out)
{
    char *end;
    *out = strtof(text, &end);
    if (*text && !*end && isfinite(*out))
        return true;
    command_misused(command, "%s takes a number, not '%s'", name, text);
    return false;
}

bool option_unknown(const struct command *command, char **argv)
{
    command_misused(command, "unknown or incomplete option '%s'", argv[optind - 1]);
    return false;
}

bool option_rest(const struct command *command, int argc, char **argv, const char *missing,
                 const char **out)
{
    const int n_words = missing ? 1 : 0;
    if (argc - optind > n_words)
        command_misused(command, "unexpected argument '%s'", argv[optind + n_words]);
    else if (argc - optind < n_words)
        command_misused(command, "%s", missing);
    else
        *out = missing ? argv[optind] : NULL;
    return argc - optind == n_words;
}

bool option_words(const struct command *command, int argc, char **argv, const char *missing,
                  struct option_words *out)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    *out = (struct option_words){0};
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option != 'j')
            return option_unknown(command, argv);
        out->json = true;
    }
    return option_rest(command, argc, argv, missing, &out->word);
}

/* ---- tables: taking -------------------------------------------------------------------------- */

enum { OPTIONS_MAX = 64, LINE_WIDTH = 92 };

static bool option_is_there(const struct option_row *row)
{
    return row->name || row->letter;
}

const char *option_name(const struct option_row *row)
{
    static _Thread_local char name[32];
    if (row->name)
        snprintf(name, sizeof name, "--%s", row->name);
    else
        snprintf(name, sizeof name, "-%c", row->letter);
    return name;
}

static void *option_flag(const struct option_row *row, void *flags)
{
    return (char *)flags + row->offset;
}

bool option_take_true(const struct command *command, const struct option_row *row,
                      const char *value, void *flags)
{
    (void)command;
    assert(!value && !row->value);
    return *(bool *)option_flag(row, flags) = true;
}

bool option_take_text(const struct command *command, const struct option_row *row,
                      const char *value, void *flags)
{
    (void)command;
    *(const char **)option_flag(row, flags) = value;
    return true;
}

bool option_take_float(const struct command *command, const struct option_row *row,
                       const char *value, void *flags)
{
    return option_float(command, option_name(row), value, option_flag(row, flags));
}

bool option_take_u64(const struct command *command, const struct option_row *row, const char *value,
                     void *flags)
{
    return option_u64(command, option_name(row), value, option_flag(row, flags));
}

bool option_take_u32(const struct command *command, const struct option_row *row, const char *value,
                     void *flags)
{
    assert(row->lowest <= row->highest && row->highest <= UINT32_MAX);
    return option_u32(command, option_name(row), value, (uint32_t)row->lowest,
                      (uint32_t)row->highest, option_flag(row, flags));
}

bool option_take_bytes(const struct command *command, const struct option_row *row,
                       const char *value, void *flags)
{
    static const struct amount_rule rule = {.plain_bytes = 1};
    struct error err;
    if (!amount_read(option_name(row), value, &rule, option_flag(row, flags), &err))
        return true;
    command_misused(command, "%s", err.text);
    return false;
}

/* ---- tables: parsing ------------------------------------------------------------------------- */

/* What getopt_long() asks for; a long option's value is its row's place in `rows`, from 256 on. */
struct option_words_known {
    const struct option_row *rows[OPTIONS_MAX];
    const struct option_section *sections[OPTIONS_MAX];
    int n_rows;
    struct option long_options[2 * OPTIONS_MAX + 1];
    int n_long;
    char letters[2 * OPTIONS_MAX + 1];
    int n_letters;
};
enum { OPTIONS_FIRST = 256 };

static void options_know_name(struct option_words_known *known, const char *name, bool takes)
{
    if (name)
        known->long_options[known->n_long++] = (struct option){
            name, takes ? required_argument : no_argument, NULL, OPTIONS_FIRST + known->n_rows};
}

static void options_know(struct option_words_known *known, const struct option_section *section,
                         const struct option_row *row)
{
    assert(known->n_rows < OPTIONS_MAX && row->take);
    options_know_name(known, row->name, row->value);
    options_know_name(known, row->alias, row->value);
    if (row->letter)
        known->letters[known->n_letters++] = row->letter;
    if (row->letter && row->value)
        known->letters[known->n_letters++] = ':';
    known->sections[known->n_rows] = section;
    known->rows[known->n_rows++] = row;
}

static void options_know_all(struct option_words_known *known, const struct command *command)
{
    *known = (struct option_words_known){0};
    for (const struct option_section *section = command->options; section->rows; section++) {
        for (size_t i = 0; i < section->n_rows; i++) {
            if (option_is_there(&section->rows[i]))
                options_know(known, section, &section->rows[i]);
        }
    }
}

static int options_find(const struct option_words_known *known, int option)
{
    if (option >= OPTIONS_FIRST)
        return option - OPTIONS_FIRST;
    int found = 0;
    while (known->rows[found]->letter != option)
        found++;
    return found;
}

static bool options_take(const struct command *command, const struct option_words_known *known,
                         int index, const char *value, void *flags)
{
    const struct option_row *row = known->rows[index];
    void *into = (char *)flags + known->sections[index]->offset;
    if (row->mark)
        *((bool *)((char *)into + row->mark)) = true;
    return row->take(command, row, value, into);
}

bool options_parse(const struct command *command, int argc, char **argv, void *flags)
{
    struct option_words_known known;
    options_know_all(&known, command);
    for (int i = 0; i < known.n_rows; i++) {
        const struct option_row *row = known.rows[i];
        const bool taken = !row->standard || row->take(command, row, row->standard,
                                                       (char *)flags + known.sections[i]->offset);
        assert(taken); /* a default that its own option refuses */
    }
    opterr = 0;
    for (int option;
         (option = getopt_long(argc, argv, known.letters, known.long_options, NULL)) != -1;) {
        if (option == '?')
            return option_unknown(command, argv);
        if (!options_take(command, &known, options_find(&known, option), optarg, flags))
            return false;
    }
    return true;
}

/* ---- tables: the help ------------------------------------------------------------------------ */

/* "-t, --threads N" */
static int options_label(const struct option_row *row, char *label, size_t size)
{
    int used = 0;
    if (row->letter)
        used += snprintf(label, size, "-%c%s", row->letter, row->name ? ", " : "");
    if (row->name)
        used += snprintf(label + used, size - (size_t)used, "--%s", row->name);
    if (row->value)
        used += snprintf(label + used, size - (size_t)used, " %s", row->value);
    assert(used > 0 && (size_t)used < size);
    return used;
}

/* Lines after the first begin where the first does; %s is the default. */
static void options_help_row(const struct option_row *row, int column, struct buffer *out)
{
    char label[80];
    options_label(row, label, sizeof label);
    buffer_printf(out, "  %-*s ", column - 3, label);
    for (const char *at = row->help; *at; at++) {
        if (at[0] == '%' && at[1] == 's') {
            assert(row->standard);
            buffer_text(out, row->standard);
            at++;
        } else {
            buffer_append(out, at, 1);
            if (*at == '\n')
                buffer_printf(out, "%*s", column, "");
        }
    }
    buffer_text(out, "\n");
}

/* One behind the other. */
static void options_help_rows(const struct option_section *section, struct buffer *out)
{
    int width = 0;
    for (size_t i = 0; i < section->n_rows; i++) {
        char label[80];
        if (!option_is_there(&section->rows[i]))
            continue;
        const int length = 2 + options_label(&section->rows[i], label, sizeof label);
        if (width && width + length > LINE_WIDTH) {
            buffer_text(out, "\n");
            width = 0;
        }
        buffer_printf(out, "  %s", label);
        width += length;
    }
    buffer_text(out, section->end ? section->end : "\n");
}

static void options_help_section(const struct option_section *section, struct buffer *out)
{
    if (section->title)
        buffer_text(out, section->title);
    if (!section->column) {
        options_help_rows(section, out);
        return;
    }
    for (size_t i = 0; i < section->n_rows; i++) {
        if (option_is_there(&section->rows[i]))
            options_help_row(&section->rows[i], section->column, out);
    }
    if (section->end)
        buffer_text(out, section->end);
}

void options_help(const struct command *command, struct buffer *out)
{
    buffer_text(out, command->usage);
    for (const struct option_section *section = command->options; section && section->rows;
         section++)
        options_help_section(section, out);
    if (command->usage_end)
        buffer_text(out, command->usage_end);
}
