/* SHA-256 of bytes, at once or piece by piece, and its 64 letters for names of files and messages.
 * Any thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_BYTES = 32, DIGEST_TEXT = 2 * DIGEST_BYTES + 1 };

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

/* A zeroed one is valid; digest_run_end() frees what digest_run_begin() took. */
struct digest_run {
    void *context;
};

enum error_code digest_of(const void *bytes, size_t size, struct digest *out, struct error *err);

enum error_code digest_run_begin(struct digest_run *run, struct error *err);
enum error_code digest_run_add(struct digest_run *run, const void *bytes, size_t size,
                               struct error *err);
/* Always ends the run; `out` may be NULL where it is given up. */
enum error_code digest_run_end(struct digest_run *run, struct digest *out, struct error *err);

/* The digest of a range of an open file. ERROR_INVALID: the file ends before. `part_done` (may be
 * NULL) is called after every piece; false from it ends with ERROR_CANCELLED. */
enum error_code digest_file(int fd, uint64_t offset, uint64_t size,
                            bool (*part_done)(void *arg, uint64_t bytes), void *arg,
                            struct digest *out, struct error *err);

bool digest_equal(const struct digest *a, const struct digest *b);
const char *digest_text(const struct digest *digest,
                        char out[DIGEST_TEXT]);          /* lower-case hexadecimal */
bool digest_parse(const char *text, struct digest *out); /* exactly those 64 letters */
