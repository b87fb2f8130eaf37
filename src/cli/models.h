/* What the parts of `medley models` share. */
#pragma once

#include "base/limits.h"
#include "library/library.h"

struct models_flags {
    const char *folders[LIMIT_LIBRARY_FOLDERS];
    uint32_t n_folders;
    bool paths, json;
};
