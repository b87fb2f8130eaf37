/* Small files that nobody else may read, in a folder of their own.
 *
 * A file here is whole or not there: it is written beside its place, synced, and renamed. It is
 * refused when it, or the folder, is open to others or belongs to somebody else: a key that others
 * can read has been given away, and the message has the command that mends it. Links, pipes and
 * files beyond LIMIT_SECRET_BYTES are refused, too.
 *
 * A folder that is open is locked: two processes that start at once take turns. Threads: none. */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct secret_folder {
    int fd;
    char path[PATH_MAX]; /* for messages */
};

/* Bytes that are wiped before they are freed, with a NUL behind. Zeroed: none. */
struct secret {
    uint8_t *bytes;
    size_t size;
};

/* Makes the folder (0700) and those above it where they are missing. Waits LIMIT_SECRET_LOCK_MS for
 * the lock. */
enum error_code secret_folder_open(const char *path, struct secret_folder *out, struct error *err);
void secret_folder_close(struct secret_folder *folder);

/* ERROR_NOT_FOUND when there is no such file. */
enum error_code secret_read(const struct secret_folder *folder, const char *name,
                            struct secret *out, struct error *err);
enum error_code secret_replace(const struct secret_folder *folder, const char *name,
                               const void *bytes, size_t size, struct error *err);

/* No such file is no error. */
enum error_code secret_remove(const struct secret_folder *folder, const char *name,
                              struct error *err);

void secret_wipe(struct secret *secret);
