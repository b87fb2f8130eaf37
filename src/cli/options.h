/* Numbers on the command line. Each returns false after saying what is wrong with `text` (command_misused). */
#pragma once

#include "cli/command.h"

#include <stdbool.h>
#include <stdint.h>

/* `name` is how the user wrote it: "-n" or "--top-k". */
bool option_u32(const struct command *command, const char *name, const char *text, uint32_t min, uint32_t max,
                uint32_t *out);
bool option_u64(const struct command *command, const char *name, const char *text, uint64_t *out);
bool option_float(const struct command *command, const char *name, const char *text, float *out); /* finite */
