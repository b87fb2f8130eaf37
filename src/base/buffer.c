#include "base/buffer.h"

#include "base/mem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool buffer_reserve(struct buffer *buffer, size_t extra)
{
    if (buffer->failed || extra > SIZE_MAX / 2 - buffer->size) {
        buffer->failed = true;
        return false;
    }
    size_t needed = buffer->size + extra + 1;
    if (needed <= buffer->capacity)
        return true;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < needed)
        capacity *= 2;
    char *data = mem_resize(buffer->data, capacity, 1);
    if (!data) {
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void *buffer_extend(struct buffer *buffer, size_t size)
{
    if (!buffer_reserve(buffer, size))
        return NULL;
    char *bytes = buffer->data + buffer->size;
    buffer->size += size;
    buffer->data[buffer->size] = '\0';
    return bytes;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t size)
{
    void *room = buffer_extend(buffer, size);
    if (room && size)
        memcpy(room, bytes, size);
}

void buffer_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) {
        buffer->failed = true;
    } else if (buffer_reserve(buffer, (size_t)length)) {
        vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, again);
        buffer->size += (size_t)length;
    }
    va_end(again);
}

void buffer_drop_front(struct buffer *buffer, size_t size)
{
    assert(size <= buffer->size);
    if (!size)
        return;
    memmove(buffer->data, buffer->data + size, buffer->size - size + 1);
    buffer->size -= size;
}

void buffer_clear(struct buffer *buffer)
{
    buffer->size = 0;
    buffer->failed = false;
    if (buffer->data)
        buffer->data[0] = '\0';
}

void buffer_deinit(struct buffer *buffer)
{
    if (!buffer)
        return;
    mem_free(buffer->data);
    *buffer = (struct buffer){0};
}
