/* Small files of the node's state that are no secret: read whole within a limit, replaced whole, and durable. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <limits.h>
#include <stdint.h>

/* "folder/name" + extension. ERROR_INVALID: longer than a path may be. */
enum error_code plain_path(const char *folder, const char *name, const char *extension, char out[PATH_MAX],
                           struct error *err);

/* The folder and those above it, where they are missing (0700). */
enum error_code plain_folder_make(const char *path, struct error *err);

/* ERROR_NOT_FOUND: no such file. ERROR_INVALID: larger than bytes_max, not a regular file, or of another user (who
 * could make us believe anything). out is appended to. */
enum error_code plain_read(const char *path, uint64_t bytes_max, struct buffer *out, struct error *err);

/* Written beside its place, synced, renamed, and the folder synced: it is the old one or the new one, whole. */
enum error_code plain_replace(const char *path, const void *bytes, size_t size, struct error *err);

/* All of it, at an offset, in spite of signals. errno's value, 0: done; a short file is EIO for reading. */
int plain_pwrite(int fd, const void *bytes, size_t size, uint64_t offset);
int plain_pread(int fd, void *bytes, size_t size, uint64_t offset);

/* Syncs the folder that holds `path`, so that names in it last. */
void plain_sync_folder_of(const char *path);
