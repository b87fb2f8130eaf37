/* What the parts of `medley models` share. */
#pragma once

#include "base/limits.h"
#include "library/library.h"

struct models_flags {
    const char *folders[LIMIT_LIBRARY_FOLDERS];
    uint32_t n_folders;
    bool paths, json, yes;
    uint64_t unused_days, space_bytes; /* of gc */
    const char *what, *name;           /* "gc", "pin", …; NULL: list */
};

int models_gc(const struct models_flags *flags);
int models_remove(const struct models_flags *flags);
int models_pin(const struct models_flags *flags, bool pinned);
