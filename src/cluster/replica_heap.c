/* libraft's memory. */
#include "cluster/replica_impl.h"

#include <pthread.h>
#include <stdlib.h>

/* libraft lets a list of members grow by one at a time: with room to spare it is copied rarely. */
static void *resize(void *data, void *old, size_t size)
{
    size_t rounded = 64;
    (void)data;
    while (rounded < size && rounded <= SIZE_MAX / 4)
        rounded *= 2;
    return realloc(old, rounded < size ? size : rounded);
}

static void *raft_heap_allocate(void *data, size_t size)
{
    (void)data;
    return malloc(size);
}

static void raft_heap_release(void *data, void *memory)
{
    (void)data;
    free(memory);
}

static void *allocate_zeroed(void *data, size_t count, size_t size)
{
    (void)data;
    return calloc(count, size);
}

static void *allocate_aligned(void *data, size_t alignment, size_t size)
{
    (void)data;
    return aligned_alloc(alignment, size);
}

static void release_aligned(void *data, size_t alignment, void *memory)
{
    (void)data, (void)alignment;
    free(memory);
}

static void install_raft_heap(void)
{
    static struct raft_heap heap = {.malloc = raft_heap_allocate,
                                    .free = raft_heap_release,
                                    .calloc = allocate_zeroed,
                                    .realloc = resize,
                                    .aligned_alloc = allocate_aligned,
                                    .aligned_free = release_aligned};
    raft_heap_set(&heap);
}

void replica_set_heap(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_raft_heap);
}
