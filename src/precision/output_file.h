/* A large file that is there whole or not at all: written without a name where the file system can
 * (O_TMPFILE), else as ".NAME.XXXXXX", and given its name when it is synced. It never replaces a
 * file. A process that dies leaves nothing, or the hidden file. */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stdint.h>

struct output_file {
    int fd; /* for reading and writing */
    const char *path;
    char hidden[PATH_MAX]; /* ""; or the name that it has meanwhile */
};

/* Says that the path is taken: ERROR_INVALID. */
enum error_code output_file_refuse(const char *path, struct error *err);
/* `path` outlives it. ERROR_INVALID: `path` is there already. ERROR_IO: it cannot be written, or
 * the disk has no room for `size` bytes. */
enum error_code output_file_begin(struct output_file *file, const char *path, uint64_t size,
                                  struct error *err);
/* Syncs and names it. Closed in either case. */
enum error_code output_file_finish(struct output_file *file, struct error *err);
void output_file_abandon(struct output_file *file); /* closed; nothing stays */
