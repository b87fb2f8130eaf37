/* What `medley up` may be told: its flags, and their rows (cli/options.h). */
#pragma once

#include "api/server.h"
#include "cli/options.h"
#include "gpu/gpu.h"
#include "node/daemon.h"

struct up_flags { /* all zero: every default */
    struct daemon_options node;
    struct gpu_options gpu_options;
    struct api_options api_options;
    const char *model;
    char listen_host[256];
    bool no_governor, in_process, no_sandbox, no_page;
};

extern const struct option_section up_sections[];
