/* Made-up writes for tests of the store, and whether two logs are the same. Needs cmocka's
 * assertions. */
#pragma once

#include "cluster/log.h"

void store_writes_seed(uint64_t seed);
uint64_t store_writes_draw(uint64_t below);

/* A write that a replica could make, given what is saved: entries behind the last or in the place
 * of the last, term and vote, a snapshot of its own or from a leader, a reset for another lineage.
 * The caller clears it. */
struct log_write store_writes_next(const struct log_saved *saved);
/* `n` entries of up to 512 bytes from `first` on. */
void store_writes_entries(struct log_write *write, uint64_t first, uint32_t n, uint64_t term);

bool store_writes_same(const struct log_saved *a, const struct log_saved *b);
