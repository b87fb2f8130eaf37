#include "engine/kv_map.h"

#include "base/mem.h"
#include "engine/batch_shape.h"

#include <assert.h>

enum error_code kv_map_init(struct kv_map *map, uint32_t n_slots, uint32_t context, uint32_t cells,
                            struct error *err)
{
    assert(n_slots && context && cells && cells % KV_PADDING == 0);
    *map = (struct kv_map){
        .n_slots = n_slots, .n_each = kv_map_extents(context), .n_extents = cells / KV_PADDING};
    map->extents = mem_new_array((size_t)n_slots * map->n_each, sizeof *map->extents);
    map->n_held = mem_new_array(n_slots, sizeof *map->n_held);
    map->n_refs = mem_new_array(map->n_extents, sizeof *map->n_refs);
    map->n_unused = map->n_extents;
    if (!map->extents || !map->n_held || !map->n_refs) {
        kv_map_deinit(map);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the map of %u cache cells",
                         cells);
    }
    return ERROR_NONE;
}

void kv_map_deinit(struct kv_map *map)
{
    mem_free(map->extents);
    mem_free(map->n_held);
    mem_free(map->n_refs);
    *map = (struct kv_map){0};
}

uint32_t kv_map_extents(uint32_t n_tokens)
{
    return kv_cells(n_tokens) / KV_PADDING;
}

static uint32_t *kv_map_slot(const struct kv_map *map, uint32_t slot)
{
    assert(slot < map->n_slots);
    return map->extents + (size_t)slot * map->n_each;
}

uint32_t kv_map_need(const struct kv_map *map, uint32_t slot, uint32_t first, uint32_t end)
{
    const uint32_t *extents = kv_map_slot(map, slot);
    uint32_t n = 0;
    assert(first < end && kv_map_extents(end) <= map->n_each);
    for (uint32_t i = first / KV_PADDING; i < kv_map_extents(end); i++)
        n += i >= map->n_held[slot] || map->n_refs[extents[i]] > 1;
    return n;
}

static void kv_map_release(struct kv_map *map, uint32_t extent)
{
    assert(map->n_refs[extent] && map->n_unused < map->n_extents);
    --map->n_refs[extent];
    map->n_shared -= map->n_refs[extent] == 1;
    map->n_unused += map->n_refs[extent] == 0;
}

/* The first of the most unused extents that stand together. */
static uint32_t kv_map_largest_gap(const struct kv_map *map, uint32_t *n_out)
{
    uint32_t best = 0;
    *n_out = 0;
    for (uint32_t i = 0, n; i < map->n_extents; i += n + 1) {
        for (n = 0; i + n < map->n_extents && !map->n_refs[i + n];)
            n++;
        if (n > *n_out) {
            best = i;
            *n_out = n;
        }
    }
    return best;
}

/* An unused extent for the slot's `index`. */
static uint32_t kv_map_choose(const struct kv_map *map, uint32_t slot, uint32_t index)
{
    const uint32_t *extents = kv_map_slot(map, slot), n_share = map->n_extents / map->n_slots;
    const uint32_t wanted = index ? extents[index - 1] + 1 : slot * n_share;
    uint32_t n_gap;
    assert(map->n_unused);
    return wanted < map->n_extents && !map->n_refs[wanted] ? wanted
                                                           : kv_map_largest_gap(map, &n_gap);
}

bool kv_map_claim(struct kv_map *map, uint32_t slot, uint32_t index, struct kv_claim *out)
{
    uint32_t *extents = kv_map_slot(map, slot);
    const bool is_next = index == map->n_held[slot];
    assert(index < map->n_each && index <= map->n_held[slot]);
    if (!is_next && map->n_refs[extents[index]] == 1) {
        *out = (struct kv_claim){extents[index], extents[index]};
        return true;
    }
    if (!map->n_unused)
        return false;
    const uint32_t extent = kv_map_choose(map, slot, index);
    assert(!map->n_refs[extent]);
    map->n_refs[extent] = 1;
    map->n_unused--;
    *out = (struct kv_claim){is_next ? extent : extents[index], extent};
    if (is_next)
        map->n_held[slot]++;
    else
        kv_map_release(map, extents[index]);
    extents[index] = extent;
    return true;
}

void kv_map_cut(struct kv_map *map, uint32_t slot, uint32_t length)
{
    const uint32_t *extents = kv_map_slot(map, slot);
    while (map->n_held[slot] > kv_map_extents(length))
        kv_map_release(map, extents[--map->n_held[slot]]);
}

void kv_map_share(struct kv_map *map, uint32_t from, uint32_t to, uint32_t length)
{
    const uint32_t *source = kv_map_slot(map, from), n = length / KV_PADDING;
    uint32_t *extents = kv_map_slot(map, to);
    assert(from != to && n <= map->n_held[from]);
    kv_map_cut(map, to, 0);
    for (; map->n_held[to] < n; map->n_held[to]++) {
        extents[map->n_held[to]] = source[map->n_held[to]];
        map->n_shared += map->n_refs[source[map->n_held[to]]]++ == 1;
    }
}

uint32_t kv_map_alone(const struct kv_map *map, uint32_t slot)
{
    const uint32_t *extents = kv_map_slot(map, slot);
    uint32_t n = 0;
    for (uint32_t i = 0; i < map->n_held[slot]; i++)
        n += map->n_refs[extents[i]] == 1;
    return n;
}

bool kv_map_is_run(const struct kv_map *map, uint32_t slot, uint32_t n)
{
    const uint32_t *extents = kv_map_slot(map, slot);
    uint32_t i = 1;
    n = n < map->n_held[slot] ? n : map->n_held[slot];
    while (i < n && extents[i] == extents[0] + i)
        i++;
    return i >= n;
}

uint32_t kv_map_cell(const struct kv_map *map, uint32_t slot, uint32_t position)
{
    const uint32_t *extents = kv_map_slot(map, slot);
    assert(position / KV_PADDING < map->n_held[slot]);
    return extents[position / KV_PADDING] * KV_PADDING + position % KV_PADDING;
}
