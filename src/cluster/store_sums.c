#include "cluster/store_sums.h"

#include "base/fnv.h"

static uint64_t checksum_of(const uint64_t *numbers, size_t n)
{
    return fnv(FNV_BASIS, numbers, n * sizeof *numbers);
}

uint64_t store_sum_state(const struct store_state *s)
{
    return checksum_of((const uint64_t[]){s->member, s->lineage.generation, s->lineage.founder,
                                          s->term, s->vote, s->entries, s->snapshot},
                       7);
}

uint64_t store_sum_entry(uint64_t index, const struct log_entry *entry)
{
    const uint64_t sum =
        checksum_of((const uint64_t[]){index, entry->term, entry->type, entry->size}, 4);
    return fnv(sum, entry->bytes, entry->size);
}

uint64_t store_sum_snapshot(const struct log_snapshot *s)
{
    const uint64_t sum = checksum_of(
        (const uint64_t[]){s->index, s->term, s->members_index, s->members_size, s->state_size}, 5);
    return fnv(fnv(sum, s->members, s->members_size), s->state, s->state_size);
}
