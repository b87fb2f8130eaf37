#include "cli/rope_option.h"

#include "base/limits.h"

static bool rope_option_take_one(const struct command *command, int option, const char *value,
                                 struct rope_stretch *out)
{
    switch (option) {
    case OPTION_ROPE_SCALE:
        return option_float(command, "--rope-scale", value, &out->factor);
    case OPTION_ROPE_BASE:
        return option_float(command, "--rope-freq-base", value, &out->base);
    case OPTION_ROPE_ORIGINAL:
        return option_u32(command, "--yarn-orig-ctx", value, 1, LIMIT_CONTEXT, &out->n_original);
    default:
        break;
    }
    if (rope_choice_find(value, &out->type, NULL) == ERROR_NONE)
        return true;
    command_misused(command, "--rope-scaling takes none, linear or yarn, not '%s'", value);
    return false;
}

bool rope_option_take(const struct command *command, int option, const char *value,
                      struct rope_stretch *out)
{
    struct rope_stretch one = {0};
    struct error err;
    if (!rope_option_take_one(command, option, value, out) ||
        !rope_option_take_one(command, option, value, &one))
        return false;
    if (rope_stretch_check(&one, &err) == ERROR_NONE)
        return true;
    command_misused(command, "%s", err.text);
    return false;
}
