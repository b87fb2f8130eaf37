/* `--limit NAME=VALUE` of the commands that serve the API. */
#pragma once

#include "api/limits.h"
#include "cli/options.h"

/* The row's flag is a struct api_limits. May be given many times. */
bool option_take_limit(const struct command *command, const struct option_row *row,
                       const char *value, void *flags);

#define OPTION_LIMIT(type, field)                                                                  \
    .name = "limit", .value = "NAME=VALUE",                                                        \
    .help = "a limit of what clients may take, as memory=1GiB; docs/api-limits.md has all\n"       \
            "(may be repeated)",                                                                   \
    OPTION_INTO(type, field, option_take_limit)
