/* Checksums of what a store has in its file: against accidents, not against people. Pure. */
#pragma once

#include "cluster/log.h"

/* What the file's one row of state holds. It seals the rest: a disk that has kept some pages of one
 * moment and some of another has rows that are each right, but do not belong together. */
struct store_state {
    uint64_t member;
    struct lineage lineage;
    uint64_t term, vote;
    uint64_t entries;  /* all entries' checksums, ^ */
    uint64_t snapshot; /* its checksum; 0: none */
};

uint64_t store_sum_state(const struct store_state *state);
uint64_t store_sum_entry(uint64_t index, const struct log_entry *entry);
uint64_t store_sum_snapshot(const struct log_snapshot *snapshot);
