/* medley ca: the certificate that clients of the API must trust. */
#include "base/buffer.h"
#include "base/state_folder.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "trust/api_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley ca export [--out FILE]\n"
    "\n"
    "Prints the certificate of the authority that signs for the API of this machine and of all\n"
    "others in its cluster, as PEM. Clients that trust it can use https://. It holds no secret.\n"
    "docs/api-tls.md says how to make curl, Python, Node, browsers and systems trust it. A "
    "machine\n"
    "that has served outside of a cluster has an authority of its own, which follows.\n"
    "\n";

struct ca_flags {
    const char *out;
};

static const struct option_row own_options[] = {
    {.name = "out",
     .value = "FILE",
     .help = "write it there (default: standard output)",
     OPTION_TEXT(struct ca_flags, out)},
};

static const struct option_section sections[] = {{OPTION_ROWS(own_options), .column = 14}, {0}};

static enum error_code ca_write(const char *path, const struct buffer *text, struct error *err)
{
    FILE *file = path ? fopen(path, "w") : stdout;
    if (!file)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    bool done = fwrite(text->data, 1, text->size, file) == text->size && fflush(file) == 0;
    const int problem = errno;
    if (path && fclose(file) != 0)
        done = false;
    return done ? ERROR_NONE
                : error_set(err, ERROR_IO, "%s: %s", path ? path : "standard output",
                            strerror(problem));
}

static enum error_code ca_export(const struct ca_flags *flags, struct error *err)
{
    char folder[PATH_MAX];
    struct buffer text = {0};
    if (!state_folder(folder, sizeof folder))
        return error_set(err, ERROR_INVALID,
                         "there is no folder that an authority could be in; set MEDLEY_STATE_DIR");
    enum error_code code = api_files_export(folder, &text, err);
    if (!code)
        code = ca_write(flags->out, &text, err);
    buffer_deinit(&text);
    return code;
}

static int cmd_ca_run(int argc, char **argv)
{
    struct ca_flags flags = {0};
    struct error err;
    const char *word = NULL;
    if (!options_parse(&command_ca, argc, argv, &flags) ||
        !option_rest(&command_ca, argc, argv, "what shall be done? medley ca export", &word))
        return EXIT_USAGE;
    if (strcmp(word, "export") != 0) {
        command_misused(&command_ca, "'%s' is not something that it does; medley ca export", word);
        return EXIT_USAGE;
    }
    return ca_export(&flags, &err) ? command_fail(&command_ca, &err) : EXIT_OK;
}

const struct command command_ca = {
    .name = "ca",
    .summary = "the certificate that clients of the API must trust",
    .usage = usage,
    .options = sections,
    .run = cmd_ca_run,
};
