/* What the parts of `medley models` share. */
#pragma once

#include "base/limits.h"
#include "library/library.h"

#include <yyjson.h>

struct models_flags {
    const char *folders[LIMIT_LIBRARY_FOLDERS];
    uint32_t n_folders;
    bool paths, json, yes;
    uint64_t unused_days, space_bytes; /* of gc */
    const char *what, *name;           /* "gc", "pin", "show", …; NULL: list */
};

/* One model: what the list says of it, and what requests of it begin with. */
int models_show(const struct models_flags *flags);
/* The list's object of a model. */
void models_json_add(yyjson_mut_doc *doc, yyjson_mut_val *item, const struct library_model *model);
int models_gc(const struct models_flags *flags);
int models_remove(const struct models_flags *flags);
int models_pin(const struct models_flags *flags, bool pinned);
