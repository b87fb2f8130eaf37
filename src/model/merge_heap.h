/* The queue of pairs that could be merged next: a binary heap with the best pair on top, and of
 * equally good ones the leftmost. Used by both families; `rank` is the merge's rank (BPE) or an
 * order-preserving image of the negated score (SPM). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge_candidate {
    uint32_t rank;
    uint32_t left; /* the left symbol */
    int32_t first,
        second; /* what both symbols were when this was queued; another one now: outdated */
    uint32_t result;
};

struct merge_heap {
    struct merge_candidate *items;
    size_t count, capacity;
};

bool merge_heap_push(struct merge_heap *heap,
                     struct merge_candidate item); /* false: out of memory */
bool merge_heap_pop(struct merge_heap *heap, struct merge_candidate *out); /* false: empty */
void merge_heap_deinit(struct merge_heap *heap);
