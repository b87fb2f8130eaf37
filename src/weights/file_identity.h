/* Which file it is, and in which state: where two of these are equal, the bytes have not changed in
 * between, unless within the clock tick of one of them (see LIMIT_MANIFEST_RECENT_MS). The change
 * time counts too, because the modification time can be set back. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct gguf_file;

struct file_identity {
    uint64_t size, inode, device;
    int64_t mtime_ns, ctime_ns;
};

enum error_code file_identity_of(int fd, struct file_identity *out, struct error *err);
/* Of a model's file, or of all its parts in one. */
enum error_code file_identity_of_model(const struct gguf_file *file, struct file_identity *out,
                                       struct error *err);
bool file_identity_equal(const struct file_identity *a, const struct file_identity *b);
/* It changed less than LIMIT_MANIFEST_RECENT_MS ago, so that a further change might leave no
 * trace. */
bool file_identity_is_recent(const struct file_identity *identity);
