/* Which extents of a pool of cache cells each sequence has. Pure.
 *
 * An extent is KV_PADDING cells; position p of a sequence is in its extent p / KV_PADDING. A slot
 * takes extents as its sequence grows, so that the memory of one long sequence serves many short
 * ones. Where sequences begin alike, whole extents belong to all of them (Kwon et al. 2023,
 * arXiv:2309.06180, has pages in place of extents); who writes into such a one gets a copy of it
 * first.
 *
 * Extents that stand together can be read without a copy (graph_attention.c), so a slot's next one
 * is that behind its last where nobody has it. Slots begin at even distances in the pool, as if
 * each had its share of it; where that is taken, where most stands unused.
 *
 * Everything follows from the order of the calls. A driver and its stages each keep a map and make
 * the same calls in the same order: that of the micro-batches. So the driver knows what every stage
 * has left, and no map ever travels. A stage that was spared some rows, because they failed, has
 * more left.
 *
 * Invariant: every extent is either unused, or is had by n_refs slots.
 *
 * Example:
 *
 *     kv_map_init(&map, 3, 1024, 8 * KV_PADDING, &err);
 *     struct kv_claim claim;
 *     if (kv_map_need(&map, slot, 0, 300) <= map.n_unused)
 *         kv_map_claim(&map, slot, 0, &claim), kv_map_claim(&map, slot, 1, &claim);
 *     cell = kv_map_cell(&map, slot, 299);
 *     kv_map_deinit(&map);
 *
 * Threading: its owner's. Nothing is allocated but by kv_map_init(). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_map {
    uint32_t n_slots, n_each;               /* extents of a slot, at most */
    uint32_t n_extents, n_unused, n_shared; /* had by several slots */
    uint32_t *extents;                      /* [n_slots][n_each]: a slot's, in order of position */
    uint32_t *n_held;                       /* [n_slots] */
    uint32_t *n_refs;                       /* [n_extents]: slots that have it */
};

/* `cells` of the pool, whole extents. ERROR_NO_MEMORY. */
enum error_code kv_map_init(struct kv_map *map, uint32_t n_slots, uint32_t context, uint32_t cells,
                            struct error *err);
void kv_map_deinit(struct kv_map *map); /* a zeroed one is fine */

/* Of so many tokens. */
uint32_t kv_map_extents(uint32_t n_tokens);

/* How many unused extents it takes to write positions `first` to `end` - 1, which continue what the
 * slot has. */
uint32_t kv_map_need(const struct kv_map *map, uint32_t slot, uint32_t first, uint32_t end);

struct kv_claim { /* the same: nothing is to be copied */
    uint32_t from, to;
};

/* Makes the slot's extent `index`, which it has or which is its next, its own to write in. `out`:
 * an extent whose cells are to be copied first. False: none is unused, and nothing has changed. */
bool kv_map_claim(struct kv_map *map, uint32_t slot, uint32_t index, struct kv_claim *out);

/* Extents behind the first `length` tokens are given back. */
void kv_map_cut(struct kv_map *map, uint32_t slot, uint32_t length);

/* Slot `to` has nothing but the whole extents of the first `length` tokens of `from`, which both
 * have now. What is left of `length` is to be copied. */
void kv_map_share(struct kv_map *map, uint32_t from, uint32_t to, uint32_t length);

/* Extents that become unused when the slot is emptied. */
uint32_t kv_map_alone(const struct kv_map *map, uint32_t slot);

/* The slot's first `n` extents, or all of them if it has fewer, stand together. */
bool kv_map_is_run(const struct kv_map *map, uint32_t slot, uint32_t n);

/* Of a position that was claimed. */
uint32_t kv_map_cell(const struct kv_map *map, uint32_t slot, uint32_t position);
