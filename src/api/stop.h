/* Stop strings over text that comes in pieces.
 *
 * Push the text as it is generated; out comes what is certain not to be the beginning of a
 * stop string. When one is complete the matcher says so, and neither it nor anything after it
 * comes out. Of several that match, the one that starts first wins. Input is whole UTF-8
 * characters and so are the stop strings, hence so is the output: a match can only begin and
 * end between characters.
 *
 * A zeroed matcher has no stop strings. The stop strings' bytes are the caller's and must
 * outlive the matcher. */
#pragma once

#include "base/buffer.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text { /* bytes of somebody else's; not NUL-terminated */
    const char *data;
    size_t size;
};

struct stop_matcher {
    const struct text *strings; /* each of 1 to LIMIT_STOP_BYTES bytes */
    uint32_t n_strings;
    struct buffer held; /* text that may yet become a stop string */
    bool stopped;
    const struct text *met; /* the string that was met */
};

/* Appends to `out` what may go out now. True: a stop string was met (and from then on nothing comes
 * out). */
bool stop_push(struct stop_matcher *matcher, const char *text, size_t size, struct buffer *out);
/* The generation is over: appends what was held back. True: there was a stop string in it after all
 * (a shorter one inside the beginning of a longer one). */
bool stop_finish(struct stop_matcher *matcher, struct buffer *out);
void stop_deinit(struct stop_matcher *matcher);
