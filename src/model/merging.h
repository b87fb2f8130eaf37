/* Merging a word's symbols, as both families do: all neighbours that may be merged are queued, and
 * the best pair becomes one symbol until none is left. With the queue a word of n characters costs
 * O(n log n). Zeroed is empty.
 *
 *     symbol_list_reset(&merging.list, size);  symbol_list_append(&merging.list, …) …
 *     merging_run(&merging, &rule, session);
 *     … merging.list.symbols, from 0 on by their `next` … */
#pragma once

#include "model/merge_heap.h"
#include "model/symbol_list.h"

struct merging {
    struct symbol_list list;
    struct merge_heap heap;
};

struct merging_rule { /* of a family */
    /* Whether two neighbours may be merged, and then the pair but for its place. */
    bool (*pair)(const void *self, const struct symbol *left, const struct symbol *right,
                 struct merge_candidate *out);
    /* Whether they are still what was queued. */
    bool (*is_same)(const struct merge_candidate *queued, const struct symbol *left,
                    const struct symbol *right);
};

bool merging_run(struct merging *merging, const struct merging_rule *rule,
                 const void *self); /* false: out of memory */
void merging_deinit(struct merging *merging);
