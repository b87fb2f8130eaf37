#include "base/mem.h"

#include "base/work_limit.h"

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

/* The block that was asked for, or NULL when it is more than the work at hand may take. */
static void *mem_charge_new(void *memory)
{
    if (!memory || work_limit_charge(0, work_limit_size_of(memory)))
        return memory;
    free(memory);
    return NULL;
}

void *mem_new_array(size_t count, size_t size)
{
    if (must_fail())
        return NULL;
    void *memory = calloc(count ? count : 1, size ? size : 1);
    return work_limit_current() ? mem_charge_new(memory) : memory;
}

static void *mem_resize_charged(void *old, size_t bytes)
{
    const size_t before = work_limit_size_of(old);
    if (!work_limit_charge(before, bytes))
        return NULL;
    void *moved = realloc(old, bytes);
    /* The block may be a little larger than what was asked for. */
    work_limit_correct((int64_t)work_limit_size_of(moved ? moved : old) - (int64_t)bytes);
    return moved;
}

void *mem_resize(void *old, size_t count, size_t size)
{
    if (must_fail() || (size && count > SIZE_MAX / size))
        return NULL;
    size_t bytes = count * size;
    bytes = bytes ? bytes : 1;
    return work_limit_current() ? mem_resize_charged(old, bytes) : realloc(old, bytes);
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
    if (work_limit_current())
        work_limit_charge(work_limit_size_of(memory), 0);
    free(memory);
}
