/* medley completion: what a shell completes, and the manual page, both made of the help texts. */
#include "base/buffer.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley completion bash|zsh|fish|man\n"
    "\n"
    "Prints a script with which a shell completes Medley's commands and options, or all help as a\n"
    "manual page. To have them from the next shell on:\n"
    "\n"
    "  medley completion bash >~/.local/share/bash-completion/completions/medley\n"
    "  medley completion zsh >FOLDER/_medley          # FOLDER is one of $fpath\n"
    "  medley completion fish >~/.config/fish/completions/medley.fish\n"
    "  medley completion man >~/.local/share/man/man1/medley.1\n";

enum {
    OPTION_TEXT_MAX = 40,    /* bytes of an option's name */
    COMPLETION_OPTIONS = 128 /* of one command */
};

struct option_names {
    char names[COMPLETION_OPTIONS][OPTION_TEXT_MAX];
    size_t n;
};

static void names_add(struct option_names *out, const char *name, size_t length)
{
    if (length < 2 || length >= OPTION_TEXT_MAX || out->n == COMPLETION_OPTIONS)
        return;
    for (size_t i = 0; i < out->n; i++) {
        if (strlen(out->names[i]) == length && memcmp(out->names[i], name, length) == 0)
            return;
    }
    memcpy(out->names[out->n], name, length);
    out->names[out->n++][length] = '\0';
}

/* The options that a help text names: "-t, --threads N", "[--json]". */
static void names_find(struct option_names *out, const char *help)
{
    *out = (struct option_names){0};
    for (const char *at = help; *at; at++) {
        const bool begins = at == help || strchr(" [(|\n`", at[-1]);
        size_t length = strspn(at, "-");
        if (*at != '-' || !begins || length > 2)
            continue;
        while (isalnum((unsigned char)at[length]) || (length > 2 && at[length] == '-'))
            length++;
        if (at[0] == '-' && (at[1] == '-' ? length > 3 : length == 2))
            names_add(out, at, length);
        at += length - 1;
    }
}

/* Of a command that has its options in a table. */
static void names_take(struct option_names *out, const struct option_section *sections)
{
    *out = (struct option_names){0};
    for (; sections->rows; sections++) {
        for (size_t i = 0; i < sections->n_rows; i++) {
            const struct option_row *row = &sections->rows[i];
            char name[OPTION_TEXT_MAX];
            if (row->letter)
                names_add(out, (const char[]){'-', row->letter}, 2);
            if (row->name && snprintf(name, sizeof name, "--%s", row->name) < (int)sizeof name)
                names_add(out, name, strlen(name));
        }
    }
}

static char *help_of(const struct command *command, struct buffer *text)
{
    text->size = 0;
    options_help(command, text);
    buffer_append(text, "", 1);
    return text->failed ? NULL : (char *)text->data;
}

/* In single quotes of a shell. */
static void put_quoted(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        *text == '\'' ? fputs("'\\''", stdout) : putchar(*text);
    putchar('\'');
}

typedef void (*put_command_fn)(const struct command *command, const struct option_names *names);

static bool put_commands(const struct command *const *commands, put_command_fn put)
{
    struct buffer text = {0};
    struct option_names names;
    for (size_t i = 0; commands[i]; i++) {
        const char *help = help_of(commands[i], &text);
        if (!help)
            break;
        if (commands[i]->options)
            names_take(&names, commands[i]->options);
        else
            names_find(&names, help);
        put(commands[i], &names);
    }
    const bool failed = text.failed;
    buffer_deinit(&text);
    return !failed;
}

/* ---- bash ------------------------------------------------------------------------------------ */

static void put_for_bash(const struct command *command, const struct option_names *names)
{
    printf("        %s) words='", command->name);
    for (size_t i = 0; i < names->n; i++)
        printf("%s%s", i ? " " : "", names->names[i]);
    printf("' ;;\n");
}

static bool completion_bash(const struct command *const *commands)
{
    printf("# Made by `medley completion bash`.\n_medley() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
           "    if [ \"$COMP_CWORD\" = 1 ] || [ \"${COMP_WORDS[1]}\" = help ]; then\n"
           "        words='help");
    for (size_t i = 0; commands[i]; i++)
        printf(" %s", commands[i]->name);
    printf("'\n        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n        return\n    fi\n"
           "    case ${COMP_WORDS[1]} in\n");
    const bool done = put_commands(commands, put_for_bash);
    printf("    esac\n"
           "    case $word in\n"
           "        -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
           "        *) COMPREPLY=() ;; # files, by -o default\n"
           "    esac\n}\ncomplete -o default -F _medley medley\n");
    return done;
}

/* ---- zsh ------------------------------------------------------------------------------------- */

static void put_for_zsh(const struct command *command, const struct option_names *names)
{
    printf("    %s) options=(", command->name);
    for (size_t i = 0; i < names->n; i++)
        printf("%s%s", i ? " " : "", names->names[i]);
    printf(") ;;\n");
}

static bool completion_zsh(const struct command *const *commands)
{
    printf("#compdef medley\n# Made by `medley completion zsh`.\n"
           "local -a commands options\ncommands=(\n    'help:explain a command'\n");
    for (size_t i = 0; commands[i]; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s:%s", commands[i]->name, commands[i]->summary);
        printf("    ");
        put_quoted(line);
        putchar('\n');
    }
    printf(")\nif (( CURRENT == 2 )) || [[ $words[2] == help ]]; then\n"
           "    _describe 'command' commands\n    return\nfi\ncase $words[2] in\n");
    const bool done = put_commands(commands, put_for_zsh);
    printf("esac\n"
           "if [[ $words[CURRENT] == -* ]]; then compadd -- $options; else _files; fi\n");
    return done;
}

/* ---- fish ------------------------------------------------------------------------------------ */

static void put_for_fish(const struct command *command, const struct option_names *names)
{
    printf("complete -c medley -f -n __fish_use_subcommand -a %s -d ", command->name);
    put_quoted(command->summary);
    putchar('\n');
    for (size_t i = 0; i < names->n; i++) {
        const bool is_long = names->names[i][1] == '-';
        printf("complete -c medley -n '__fish_seen_subcommand_from %s' -%c %s\n", command->name,
               is_long ? 'l' : 's', names->names[i] + (is_long ? 2 : 1));
    }
}

static bool completion_fish(const struct command *const *commands)
{
    printf("# Made by `medley completion fish`.\n");
    return put_commands(commands, put_for_fish);
}

/* ---- the manual page ------------------------------------------------------------------------- */

/* As it stands, with nothing that roff takes for its own. */
static void put_roff(const char *text)
{
    for (bool at_start = true; *text; text++) {
        if (at_start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        switch (*text) {
        case '\\':
            fputs("\\e", stdout);
            break;
        case '-':
            fputs("\\-", stdout);
            break;
        case '`':
            fputs("\\(ga", stdout);
            break;
        case '\'':
            fputs("\\(aq", stdout);
            break;
        default:
            putchar(*text);
        }
        at_start = *text == '\n';
    }
}

static bool completion_man(const struct command *const *commands)
{
    struct buffer text = {0};
    printf(".TH MEDLEY 1 \"\" \"Medley " MEDLEY_VERSION "\" \"User Commands\"\n"
           ".SH NAME\nmedley \\- one computer for large language models, out of the machines you "
           "own\n.SH SYNOPSIS\n.B medley\n.I COMMAND\n[\\fIOPTION\\fR...]\n.SH COMMANDS\n");
    for (size_t i = 0; commands[i]; i++) {
        const char *help = help_of(commands[i], &text);
        if (!help)
            break;
        printf(".SS medley %s\n", commands[i]->name);
        put_roff(commands[i]->summary);
        printf(".\n.PP\n.nf\n");
        put_roff(help);
        printf(".fi\n");
    }
    printf(".SH ENVIRONMENT\n.TP\n.B MEDLEY_LOG\ndebug shows what Medley does.\n.TP\n"
           ".B MEDLEY_STATE_DIR\nWhere a node keeps its keys, its models and what it knows.\n");
    const bool failed = text.failed;
    buffer_deinit(&text);
    return !failed;
}

static int completion_run(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool (*put)(const struct command *const *commands);
    } forms[] = {
        {"bash", completion_bash},
        {"zsh", completion_zsh},
        {"fish", completion_fish},
        {"man", completion_man},
    };
    if (argc != 2)
        return command_misused(&command_completion, "for which shell? bash, zsh, fish, or man");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].name, argv[1]) != 0)
            continue;
        if (forms[i].put(command_list()))
            return EXIT_OK;
        return command_fail(&command_completion,
                            &(struct error){ERROR_NO_MEMORY, "not enough memory"});
    }
    return command_misused(&command_completion, "'%s' is none of bash, zsh, fish and man", argv[1]);
}

const struct command command_completion = {
    .name = "completion",
    .summary = "print what a shell completes, or the manual page",
    .usage = usage,
    .run = completion_run,
};
