/* The lines of an open file, one after the other, each at most AUDIT_LINE_BYTES long. For the room
 * itself. */
#pragma once

#include "audit/entry.h"
#include "base/error.h"

enum { LINES_BUFFER_BYTES = 16 * 1024 };

struct lines {
    int fd;
    uint64_t offset; /* of the file: where the next line begins */
    size_t from, n;  /* of the buffer: what is there */
    char buffer[LINES_BUFFER_BYTES];
};

enum lines_found {
    LINES_WHOLE,
    LINES_TORN, /* the file's last one, without a line feed, or one that is too long: a piece */
    LINES_END,
    LINES_FAILED,
};

void lines_begin(struct lines *lines, int fd);
/* `line` is good until the next call, and has no line feed. */
enum lines_found lines_next(struct lines *lines, const char **line, size_t *size,
                            struct error *err);
