/* Every command of the medley binary, one file each; main.c lists them for the user. */
#pragma once

#include "cli/command.h"

extern const struct command command_devices;
extern const struct command command_top;
extern const struct command command_inspect;
extern const struct command command_run;
extern const struct command command_plan;
extern const struct command command_serve;
extern const struct command command_bench;
extern const struct command command_logits;
extern const struct command command_tokenize;
extern const struct command command_detokenize;
extern const struct command command_render;
