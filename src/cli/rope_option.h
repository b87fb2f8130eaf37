/* --rope-scaling and what goes with it, for commands that read their options by getopt_long(). */
#pragma once

#include "cli/options.h"
#include "model/rope_stretch.h"

enum { OPTION_ROPE_SCALING = 512, OPTION_ROPE_SCALE, OPTION_ROPE_BASE, OPTION_ROPE_ORIGINAL };

/* Rows of a struct option list. */
#define ROPE_LONG_OPTIONS                                                                          \
    {"rope-scaling", required_argument, NULL, OPTION_ROPE_SCALING},                                \
        {"rope-scale", required_argument, NULL, OPTION_ROPE_SCALE},                                \
        {"rope-freq-base", required_argument, NULL, OPTION_ROPE_BASE},                             \
    {                                                                                              \
        "yarn-orig-ctx", required_argument, NULL, OPTION_ROPE_ORIGINAL                             \
    }

#define ROPE_HELP                                                                                  \
    "  --rope-scaling TYPE\n"                                                                      \
    "                   rotate positions for a longer context than the model was trained for:\n"   \
    "                   none, linear or yarn (default: as its file says)\n"                        \
    "  --rope-scale N   so many times as long\n"                                                   \
    "  --rope-freq-base N\n"                                                                       \
    "                   base of the rotations' frequencies\n"                                      \
    "  --yarn-orig-ctx N\n"                                                                        \
    "                   tokens that it was trained for, where its file does not say\n"

/* One of those options. */
bool rope_option_take(const struct command *command, int option, const char *value,
                      struct rope_stretch *out);
