/* Manifests that were made, so that a model is hashed once: one file a model's path, in a folder of
 * the state.
 *
 * An entry holds the file's identity (file_identity.h) as it was before the hashing began. It is
 * believed while the file still has it, and never else: another size, inode, device, or time of
 * change, or a damaged entry, and the manifest is made anew. A file that was changed a moment ago
 * is hashed, but not remembered (file_identity_is_recent).
 *
 *     byte 0  4  magic "MdMc"
 *          4  4  format: 1
 *          8  40 size, inode, device, modification and change time (ns), 8 bytes each
 *         48  32 SHA-256 of the manifest's bytes
 *         80     the manifest (manifest.h) */
#pragma once

#include "weights/file_identity.h"
#include "weights/manifest_make.h"

/* The model's manifest, from the folder (STATE/manifests, made when it is missing) where that holds
 * it, else made and kept. A folder that cannot be written is logged and no failure. `was_cached`
 * may be NULL. */
enum error_code manifest_of_file(const char *folder, const struct gguf_file *file,
                                 const struct manifest_options *options, struct manifest *out,
                                 bool *was_cached, struct error *err);

/* An entry's bytes, for the tests. */
void manifest_entry_write(const struct file_identity *identity, const struct manifest *manifest,
                          struct buffer *out);
/* ERROR_INVALID: damaged, or of another file. */
enum error_code manifest_entry_read(const void *bytes, size_t size,
                                    const struct file_identity *identity, struct manifest *out,
                                    struct error *err);
