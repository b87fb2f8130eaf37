/* A set of a model's parts (manifest.h): one bit a part. A zeroed set is empty and holds none.
 * Pure. */
#pragma once

#include "base/error.h"
#include "base/mem.h"

#include <assert.h>
#include <stdint.h>

struct part_set {
    uint32_t n_parts; /* that there may be */
    uint64_t *bits;
};

static inline enum error_code part_set_init(struct part_set *set, uint32_t n_parts,
                                            struct error *err)
{
    *set =
        (struct part_set){n_parts, mem_new_array(((size_t)n_parts + 63) / 64, sizeof *set->bits)};
    return set->bits || !n_parts ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

static inline void part_set_deinit(struct part_set *set)
{
    mem_free(set->bits);
    *set = (struct part_set){0};
}

static inline bool part_set_has(const struct part_set *set, uint32_t part)
{
    return part < set->n_parts && (set->bits[part / 64] >> (part % 64) & 1);
}

static inline void part_set_add(struct part_set *set, uint32_t part)
{
    assert(part < set->n_parts);
    set->bits[part / 64] |= UINT64_C(1) << (part % 64);
}

static inline void part_set_remove(struct part_set *set, uint32_t part)
{
    assert(part < set->n_parts);
    set->bits[part / 64] &= ~(UINT64_C(1) << (part % 64));
}

static inline void part_set_add_all(struct part_set *set)
{
    for (uint32_t i = 0; i < set->n_parts; i++)
        part_set_add(set, i);
}

static inline uint32_t part_set_count(const struct part_set *set)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < (set->n_parts + 63) / 64; i++)
        n += (uint32_t)__builtin_popcountll(set->bits[i]);
    return n;
}
