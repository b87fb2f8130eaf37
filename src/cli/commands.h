/* Every command of the medley binary, one file each; main.c lists them for the user. */
#pragma once

#include "cli/command.h"

extern const struct command command_devices;
