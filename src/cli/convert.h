/* What the files of `medley convert` share. */
#pragma once

#include "cli/options.h"
#include "precision/output_file.h"
#include "precision/weight_choice.h"

struct convert_flags {
    const char *model, *to, *out;
    uint32_t n_threads;
    bool pure, json;
};

struct convert_result {
    char path[PATH_MAX];
    uint64_t bytes, bytes_before;
    uint64_t n_tensors, n_changed;
    uint64_t n_again; /* of those changed, that were quantised before */
};
