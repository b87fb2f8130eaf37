/* Extents of a pool that are in host memory for a while, because the device that has the pool needs
 * its memory for others. The pool on the device is then smaller than the map (kv_map.h) says: each
 * extent has a *place* on the device or is *away*, and comes back, with the same bits, before a
 * batch reads or writes it; the one that was used longest ago makes room. Who asks the map sees
 * nothing of it.
 *
 * Only a pool in memory of the device's own moves. It never gets smaller than a context and one
 * extent, so that any one sequence can be computed.
 *
 * A batch: kv_away_begin(); kv_away_pin() for each slot; kv_cache_claim() for what is new;
 * kv_away_fetch(), and then `here` has the slots' places until the next call.
 *
 * When the pool has been allocated anew, its tensors are others: graphs over the old ones are of no
 * use any more (kv_away_take_moved()).
 *
 * The owner's thread. All of it is a no-op for a cache that does not move. */
#pragma once

#include "engine/kv_cache.h"

struct kv_away {
    uint32_t n_here;     /* places on the device; all of them are extents' while that is all */
    uint64_t batch;      /* the present one */
    uint64_t bytes_away; /* in host memory */
    uint32_t *places;    /* [n_extents]; KV_NOWHERE */
    uint32_t *tenants;   /* [n_extents]: of a place; KV_NOWHERE */
    void **bytes;        /* [n_extents] in host memory; NULL */
    uint64_t *used;      /* [n_extents]: the batch that used it last */
    struct kv_map here;  /* the map with places for extents; n_held is the map's */
    uint64_t tried;      /* the batch in which growing failed last; 0: never */
    bool moved;
};
enum { KV_NOWHERE = UINT32_MAX };
enum { KV_AWAY_RESTED = 16 }; /* batches in which an extent was not used: it need not be here */

enum error_code kv_away_init(struct kv_cache *kv, struct error *err);
void kv_away_deinit(struct kv_cache *kv);

void kv_away_begin(struct kv_cache *kv);
/* The slot's extents `first` to `end` - 1, as far as it has them, are used. */
void kv_away_pin(struct kv_cache *kv, uint32_t slot, uint32_t first, uint32_t end);
/* There will be places for what is pinned and for `n_new` more. ERROR_NO_MEMORY: neither on the
 * device, nor in host memory for what would have to make room; nothing is lost. */
enum error_code kv_away_reserve(struct kv_cache *kv, uint32_t n_new, struct error *err);
/* A place for an extent of which nothing is to be kept; it was reserved, and is pinned now. */
void kv_away_take(struct kv_cache *kv, uint32_t extent);
/* What is pinned of the slot is on the device. ERROR_NO_MEMORY as above. */
enum error_code kv_away_fetch(struct kv_cache *kv, uint32_t slot, struct error *err);
bool kv_away_take_moved(struct kv_cache *kv);

/* The map as the device has it: places in the extents' stead. */
const struct kv_map *kv_away_map(const struct kv_cache *kv);
uint32_t kv_away_place(const struct kv_cache *kv, uint32_t extent);
/* Rows of a part of a layer (kv_cache_part()) of an extent, wherever it is. */
void kv_away_get(const struct kv_cache *kv, uint32_t layer, int part, uint32_t extent,
                 uint32_t first, uint32_t n, void *out);

/* What was not used of late goes to host memory, and the device has the rest of the pool's memory
 * again; the bytes. 0: it is hardly less, or host memory lacks. */
uint64_t kv_away_shrink(struct kv_cache *kv);
/* All of it comes back. False: the device has no memory for that; all is as before. */
bool kv_away_grow(struct kv_cache *kv);
uint64_t kv_away_pool_bytes(const struct kv_cache *kv); /* on the device */
