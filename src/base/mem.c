#include "base/mem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint fail_countdown;

static bool must_fail(void)
{
    unsigned left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);
    while (left && !atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
    }
    return left == 1;
}

void mem_fail_nth(unsigned nth)
{
    atomic_store(&fail_countdown, nth);
}

void *mem_new(size_t size)
{
    return mem_new_array(1, size);
}

void *mem_new_array(size_t count, size_t size)
{
    if (must_fail())
        return NULL;
    return calloc(count ? count : 1, size ? size : 1);
}

void *mem_resize(void *old, size_t count, size_t size)
{
    if (must_fail() || (size && count > SIZE_MAX / size))
        return NULL;
    size_t bytes = count * size;
    return realloc(old, bytes ? bytes : 1);
}

char *mem_copy_text(const char *text, size_t length)
{
    if (length == SIZE_MAX)
        return NULL;
    char *copy = mem_new(length + 1);
    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

void mem_free(void *memory)
{
    free(memory);
}
