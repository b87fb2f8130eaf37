#include "model/merging.h"

#include "base/work_limit.h"

static bool queue_pair(struct merging *merging, const struct merging_rule *rule, const void *self,
                       int32_t left, int32_t right)
{
    const struct symbol *symbols = merging->list.symbols;
    struct merge_candidate candidate;
    if (left < 0 || right < 0 || !rule->pair(self, &symbols[left], &symbols[right], &candidate))
        return true;
    candidate.left = (uint32_t)left;
    return merge_heap_push(&merging->heap, candidate);
}

bool merging_run(struct merging *merging, const struct merging_rule *rule, const void *self)
{
    const struct symbol *symbols = merging->list.symbols;
    for (size_t i = 1; i < merging->list.count; i++) {
        if (!work_limit_goes_on() || !queue_pair(merging, rule, self, (int32_t)i - 1, (int32_t)i))
            return false;
    }
    for (struct merge_candidate best; merge_heap_pop(&merging->heap, &best);) {
        if (!work_limit_goes_on())
            return false;
        const struct symbol *left = &symbols[best.left];
        if (!left->size || left->next < 0 || !rule->is_same(&best, left, &symbols[left->next]))
            continue;
        symbol_list_join(&merging->list, best.left, (int32_t)best.result);
        if (!queue_pair(merging, rule, self, left->previous, (int32_t)best.left) ||
            !queue_pair(merging, rule, self, (int32_t)best.left, left->next))
            return false;
    }
    return true;
}

void merging_deinit(struct merging *merging)
{
    symbol_list_deinit(&merging->list);
    merge_heap_deinit(&merging->heap);
}
