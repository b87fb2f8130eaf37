#include "cli/limit_option.h"

bool option_take_limit(const struct command *command, const struct option_row *row,
                       const char *value, void *flags)
{
    struct error err;
    struct api_limits *limits = (struct api_limits *)(void *)((char *)flags + row->offset);
    if (api_limits_set(limits, value, &err) == ERROR_NONE)
        return true;
    command_misused(command, "%s: %s", option_name(row), err.text);
    return false;
}
