#include "model/chat_template_heap.h"

#include "base/work_limit.h"

#include <quickjs/quickjs.h>
#include <stdlib.h>
#include <time.h>

enum { LARGE = 64 * 1024 };

struct script_block {
    struct script_block *next, **link; /* *link points at this block */
    size_t size;                       /* of the payload */
    _Alignas(16) unsigned char payload[];
};

uint64_t script_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool template_heap_refuses(struct script_heap *heap, size_t now, size_t wanted)
{
    if (wanted <= now)
        return false;
    if (wanted >= LARGE && script_clock_ns() > heap->deadline_ns) {
        heap->out_of_time = true;
        return true;
    }
    if (wanted > heap->limit || heap->used - now > heap->limit - wanted) {
        heap->out_of_memory = true;
        return true;
    }
    if (!work_limit_charge(now, wanted)) {
        heap->out_of_memory = true;
        return true;
    }
    return false;
}

/* Of what was charged, so many bytes are not needed after all. */
static void template_heap_return(size_t size)
{
    work_limit_correct(-(int64_t)size);
}

static void template_heap_insert(struct script_heap *heap, struct script_block *block, size_t size)
{
    block->size = size;
    block->link = &heap->blocks;
    block->next = heap->blocks;
    if (block->next)
        block->next->link = &block->next;
    heap->blocks = block;
    heap->used += sizeof *block + size;
}

static void template_heap_take_out(struct script_heap *heap, struct script_block *block)
{
    *block->link = block->next;
    if (block->next)
        block->next->link = block->link;
    heap->used -= sizeof *block + block->size;
}

static struct script_block *block_of(const void *payload)
{
    return (struct script_block *)((uintptr_t)payload - offsetof(struct script_block, payload));
}

static void *heap_malloc(JSMallocState *state, size_t size)
{
    struct script_heap *heap = state->opaque;
    if (size > SIZE_MAX - sizeof(struct script_block) ||
        template_heap_refuses(heap, 0, sizeof(struct script_block) + size))
        return NULL;
    struct script_block *block = malloc(sizeof *block + size);
    if (!block) {
        heap->out_of_memory = true;
        template_heap_return(sizeof *block + size);
        return NULL;
    }
    template_heap_insert(heap, block, size);
    state->malloc_count++;
    state->malloc_size = heap->used; /* from this QuickJS decides when to collect cycles */
    return block->payload;
}

static void heap_free(JSMallocState *state, void *payload)
{
    if (!payload)
        return;
    struct script_heap *heap = state->opaque;
    struct script_block *block = block_of(payload);
    template_heap_return(sizeof *block + block->size);
    template_heap_take_out(heap, block);
    free(block);
    state->malloc_count--;
    state->malloc_size = heap->used;
}

static void *heap_realloc(JSMallocState *state, void *payload, size_t size)
{
    if (!payload)
        return size ? heap_malloc(state, size) : NULL;
    if (size == 0) {
        heap_free(state, payload);
        return NULL;
    }
    struct script_heap *heap = state->opaque;
    struct script_block *block = block_of(payload);
    size_t old_size = block->size;
    if (size > SIZE_MAX - sizeof *block ||
        template_heap_refuses(heap, sizeof *block + old_size, sizeof *block + size))
        return NULL;
    template_heap_take_out(heap, block);
    struct script_block *moved = realloc(block, sizeof *block + size);
    if (moved) {
        template_heap_insert(heap, moved, size);
        if (size < old_size)
            template_heap_return(old_size - size);
    } else {
        heap->out_of_memory = true;
        if (size > old_size)
            template_heap_return(size - old_size);
        template_heap_insert(heap, block, old_size);
    }
    state->malloc_size = heap->used;
    return moved ? moved->payload : NULL;
}

static size_t heap_usable_size(const void *payload)
{
    return payload ? block_of(payload)->size : 0;
}

const struct JSMallocFunctions *script_heap_functions(void)
{
    static const struct JSMallocFunctions functions = {heap_malloc, heap_free, heap_realloc,
                                                       heap_usable_size};
    return &functions;
}

void script_heap_deinit(struct script_heap *heap)
{
    while (heap->blocks) {
        struct script_block *block = heap->blocks;
        template_heap_return(sizeof *block + block->size);
        template_heap_take_out(heap, block);
        free(block);
    }
}
