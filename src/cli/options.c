#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>

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

bool option_u64(const struct command *command, const char *name, const char *text, uint64_t *out)
{
    if (read_u64(text, out))
        return true;
    command_misused(command, "%s takes a whole number from 0 on, not '%s'", name, text);
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
        command_misused(command, "'%s' is one word too many", argv[optind + n_words]);
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
