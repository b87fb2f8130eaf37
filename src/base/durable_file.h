/* Small files that are read whole within a limit and replaced whole: after a loss of power there is
 * the old one or the new one. With it their folders, locks, and reading and writing all of
 * something in spite of signals.
 *
 * A file is written beside its place as ".NAME.new", which nobody else may read (0600, whatever the
 * umask says), synced, renamed, and its folder synced. That name is always the same, so that what a
 * crash left behind is overwritten and not collected: two who replace the same file at once need a
 * lock of their own. Threads: none. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* "folder/name" + extension. ERROR_INVALID: longer than a path may be. */
enum error_code durable_path(const char *folder, const char *name, const char *extension,
                             char out[PATH_MAX], struct error *err);

/* ERROR_NOT_FOUND: no such file. ERROR_INVALID: larger than bytes_max, not a regular file, of
 * another user (who could make us believe anything), or with one of the bits of `forbidden` in its
 * mode. ERROR_IO: a link, too. out is appended to; after an error it has what it had. */
enum error_code durable_read(const char *path, uint64_t bytes_max, mode_t forbidden,
                             struct buffer *out, struct error *err);

/* ERROR_IO: the old one is there, or, if the folder could not be synced, the old or the new. */
enum error_code durable_replace(const char *path, const void *bytes, size_t size,
                                struct error *err);
/* The same in a folder that is open. errno's value, 0: done. */
int durable_replace_at(int folder, const char *name, const void *bytes, size_t size);

/* The folder and those above it, where they are missing (0700). */
enum error_code durable_make_folder(const char *path, struct error *err);
/* The folder that holds `path`: made likewise; and synced, so that names in it last (errno's
 * value). */
enum error_code durable_make_folder_of(const char *path, struct error *err);
int durable_sync_folder_of(const char *path);

/* Takes flock()'s exclusive lock, which goes when the descriptor is closed. ERROR_BUSY: another
 * process has held it for so long. */
enum error_code durable_lock(int fd, uint32_t ms, struct error *err);

/* All of it, at an offset. errno's value, 0: done; a short file is EIO for reading. */
int pwrite_all(int fd, const void *bytes, size_t size, uint64_t offset);
int pread_all(int fd, void *bytes, size_t size, uint64_t offset);
