/* Makes a manifest (manifest.h) from a model's file: reads all of it, on several threads. */
#pragma once

#include "weights/manifest.h"

struct gguf_file;

struct manifest_options {
    uint32_t n_threads; /* 0: one; at most 64 */
    /* Called some ten times a second on the caller's thread, and at the end; false cancels. NULL:
     * nobody looks. */
    bool (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *arg;
};

/* ERROR_INVALID: the file changes while it is read. ERROR_UNSUPPORTED: a tensor's name is not
 * printable. ERROR_CANCELLED: progress() said so. `file` is no memory. */
enum error_code manifest_make(const struct gguf_file *file, const struct manifest_options *options,
                              struct manifest *out, struct error *err);

/* The same without the parts' SHA-256, of a file of which the header alone has to be there. */
enum error_code manifest_list(const struct gguf_file *file, struct manifest *out,
                              struct error *err);

/* Whether the manifest's parts are exactly the tensors that the (checked) header in the file
 * describes. */
enum error_code manifest_agrees(const struct manifest *manifest, const struct gguf_file *file,
                                struct error *err);
