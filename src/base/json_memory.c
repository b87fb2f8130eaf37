#include "base/json_memory.h"

#include "base/mem.h"

static void *json_malloc(void *context, size_t size)
{
    (void)context;
    return mem_resize(NULL, size, 1); /* yyjson needs no zeroes */
}

static void *json_realloc(void *context, void *old, size_t old_size, size_t size)
{
    (void)context;
    (void)old_size;
    return mem_resize(old, size, 1);
}

static void json_free(void *context, void *memory)
{
    (void)context;
    mem_free(memory);
}

const yyjson_alc json_memory = {json_malloc, json_realloc, json_free, NULL};
