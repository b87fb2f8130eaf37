#include "audit/lines.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

void lines_begin(struct lines *lines, int fd)
{
    lines->fd = fd;
    lines->offset = 0;
    lines->from = lines->n = 0;
}

/* False: the file has no more, or the buffer no room, or it cannot be read. */
static bool lines_fill(struct lines *lines, enum lines_found *found, struct error *err)
{
    if (lines->from) {
        memmove(lines->buffer, lines->buffer + lines->from, lines->n);
        lines->from = 0;
    }
    if (lines->n > AUDIT_LINE_BYTES)
        return false;
    const ssize_t got = pread(lines->fd, lines->buffer + lines->n, sizeof lines->buffer - lines->n,
                              (off_t)(lines->offset + lines->n));
    if (got < 0 && errno == EINTR)
        return true;
    if (got < 0) {
        error_set(err, ERROR_IO, "reading the audit record: %s", strerror(errno));
        *found = LINES_FAILED;
        return false;
    }
    lines->n += (size_t)got;
    return got > 0;
}

static enum lines_found lines_take(struct lines *lines, const char **line, size_t *size,
                                   size_t taken, enum lines_found found)
{
    assert(taken <= lines->n);
    *line = lines->buffer + lines->from;
    *size = found == LINES_WHOLE ? taken - 1 : taken;
    lines->from += taken;
    lines->n -= taken;
    lines->offset += taken;
    return found;
}

enum lines_found lines_next(struct lines *lines, const char **line, size_t *size, struct error *err)
{
    enum lines_found found = LINES_END;
    for (;;) {
        const char *at = lines->buffer + lines->from;
        const char *end = lines->n ? memchr(at, '\n', lines->n) : NULL;
        if (end)
            return lines_take(lines, line, size, (size_t)(end - at) + 1, LINES_WHOLE);
        if (!lines_fill(lines, &found, err))
            break;
    }
    if (found == LINES_FAILED || !lines->n)
        return found;
    return lines_take(lines, line, size, lines->n, LINES_TORN);
}
