/* A byte string that grows. A zeroed buffer is empty and valid; buffer_deinit() frees it.
 * When memory runs out, `failed` is set and every later append is a no-op, so that a
 * caller may append many times and check once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data; /* NUL after the last byte whenever it is not NULL */
    size_t size;
    size_t capacity;
    bool failed;
};

void buffer_append(struct buffer *buffer, const void *bytes, size_t size);
void *buffer_extend(struct buffer *buffer,
                    size_t size); /* the new bytes, not set; NULL when memory ran out */
void buffer_text(struct buffer *buffer, const char *text);
void buffer_printf(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void buffer_drop_front(struct buffer *buffer, size_t size); /* removes the first bytes */
void buffer_clear(struct buffer *buffer);                   /* empty, memory kept */
void buffer_deinit(struct buffer *buffer);
