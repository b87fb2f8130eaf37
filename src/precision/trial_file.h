/* A copy of a model's file in which one group of tensors at a time is of another type, to measure
 * what that costs.
 *
 * The copy is written once. A trial appends the group's tensors and points the header at them, so
 * it costs the group's bytes and not the model's. It has no name: open it by `path`, in this
 * process. Whoever has the file open sees it change: close it between trials. */
#pragma once

#include "model/gguf_header.h"
#include "precision/output_file.h"

struct trial_file {
    struct output_file copy;
    const struct gguf_file *file; /* the original */
    struct gguf_header header;
    char path[64];
};

/* `beside`: a path in the folder that the copy goes to; whether a file is there does not matter. */
enum error_code trial_file_open(struct trial_file *trial, const struct gguf_file *file,
                                const char *beside, struct error *err);
void trial_file_close(struct trial_file *trial); /* a zeroed one is fine */

/* Tensors i with groups[i] == group get types[i]; all others are as in the original. */
enum error_code trial_file_set(struct trial_file *trial, const uint32_t *groups, uint32_t group,
                               const int *types, struct error *err);
