#include "model/merge_heap.h"

#include "base/mem.h"

static bool merge_heap_before(const struct merge_candidate *a, const struct merge_candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->left < b->left);
}

bool merge_heap_push(struct merge_heap *heap, struct merge_candidate item)
{
    if (heap->count == heap->capacity) {
        size_t capacity = heap->capacity ? heap->capacity * 2 : 64;
        struct merge_candidate *items = mem_resize(heap->items, capacity, sizeof *items);
        if (!items)
            return false;
        heap->items = items;
        heap->capacity = capacity;
    }
    size_t at = heap->count++;
    for (size_t parent; at > 0 && merge_heap_before(&item, &heap->items[parent = (at - 1) / 2]);
         at = parent)
        heap->items[at] = heap->items[parent];
    heap->items[at] = item;
    return true;
}

bool merge_heap_pop(struct merge_heap *heap, struct merge_candidate *out)
{
    if (!heap->count)
        return false;
    *out = heap->items[0];
    struct merge_candidate last = heap->items[--heap->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count &&
            merge_heap_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!merge_heap_before(&heap->items[child], &last))
            break;
        heap->items[at] = heap->items[child];
    }
    heap->items[at] = last;
    return true;
}

void merge_heap_deinit(struct merge_heap *heap)
{
    mem_free(heap->items);
    *heap = (struct merge_heap){0};
}
