#include "engine/kv_away.h"

#include "base/mem.h"
#include "engine/batch_shape.h"

#include <assert.h>
#include <ggml-backend.h>
#include <string.h>

/* ---- an extent ------------------------------------------------------------------------- */

/* 0: the layer has no such part, or slots do not share it. */
static size_t away_row_bytes(const struct kv_cache *kv, uint32_t layer, int part)
{
    const struct ggml_tensor *rows = kv_cache_part(kv, layer, part);
    return rows && !kv_cache_part_is_ring(kv, layer, part) ? rows->nb[1] : 0;
}

static uint64_t away_extent_bytes(const struct kv_cache *kv)
{
    return KV_PADDING * (kv_cache_is_pool(kv) ? kv_cache_bytes_per_cell(kv) : 0);
}

/* Where rows of a part of a layer (kv_cache_part()) begin in an extent's bytes. */
static size_t away_offset(const struct kv_cache *kv, uint32_t layer, int part)
{
    size_t rows = 0;
    for (uint32_t i = 0; i <= layer; i++) {
        for (int k = 0; k < (i == layer ? part : KV_PARTS); k++)
            rows += away_row_bytes(kv, i, k);
    }
    return KV_PADDING * rows;
}

static bool away_is_all_here(const struct kv_cache *kv)
{
    return !kv->away || kv->away->n_here == kv->map.n_extents;
}

static bool away_is_pinned(const struct kv_cache *kv, uint32_t extent)
{
    return kv->map.n_refs[extent] && kv->away->used[extent] == kv->away->batch;
}

/* Copies all of an extent between its place and `bytes`. */
static void away_move(struct kv_cache *kv, uint32_t extent, char *bytes, bool out)
{
    const size_t cell = (size_t)kv->away->places[extent] * KV_PADDING;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        for (int part = 0; part < KV_PARTS; part++) {
            struct ggml_tensor *rows = kv_cache_part(kv, i, part);
            const size_t row = away_row_bytes(kv, i, part);
            if (row && out)
                ggml_backend_tensor_get(rows, bytes, cell * row, KV_PADDING * row);
            else if (row)
                ggml_backend_tensor_set(rows, bytes, cell * row, KV_PADDING * row);
            bytes += KV_PADDING * row;
        }
    }
}

static void away_forget_bytes(struct kv_cache *kv, uint32_t extent)
{
    if (!kv->away->bytes[extent])
        return;
    mem_free(kv->away->bytes[extent]);
    kv->away->bytes[extent] = NULL;
    kv->away->bytes_away -= away_extent_bytes(kv);
}

static void away_leave(struct kv_away *away, uint32_t extent)
{
    if (away->places[extent] == KV_NOWHERE)
        return;
    away->tenants[away->places[extent]] = KV_NOWHERE;
    away->places[extent] = KV_NOWHERE;
}

static void away_settle(struct kv_away *away, uint32_t extent, uint32_t place)
{
    assert(place < away->n_here && away->tenants[place] == KV_NOWHERE);
    away->tenants[place] = extent;
    away->places[extent] = place;
}

/* To host memory, but stays where it is; false: there is no memory. */
static bool away_save(struct kv_cache *kv, uint32_t extent)
{
    struct kv_away *away = kv->away;
    if (away->places[extent] == KV_NOWHERE || away->bytes[extent])
        return true;
    if (!(away->bytes[extent] = mem_new(away_extent_bytes(kv))))
        return false;
    away->bytes_away += away_extent_bytes(kv);
    away_move(kv, extent, away->bytes[extent], true);
    return true;
}

/* From host memory to its place; nothing, where nothing was kept of it. */
static void away_restore(struct kv_cache *kv, uint32_t extent)
{
    if (!kv->away->bytes[extent])
        return;
    away_move(kv, extent, kv->away->bytes[extent], false);
    away_forget_bytes(kv, extent);
}

/* ---- a pool of another size ------------------------------------------------------------ */

static void away_forget_places(struct kv_away *away, uint32_t n_extents, uint32_t n_here)
{
    away->n_here = n_here;
    for (uint32_t i = 0; i < n_extents; i++)
        away->places[i] = away->tenants[i] = KV_NOWHERE;
}

/* What stays: extents that stand where they did before anything was moved. */
static void away_come_home(struct kv_cache *kv)
{
    for (uint32_t i = 0; i < kv->map.n_extents; i++) {
        away_settle(kv->away, i, i);
        away_restore(kv, i);
    }
}

static void away_bring(struct kv_cache *kv, uint32_t extent)
{
    struct kv_away *away = kv->away;
    uint32_t place = 0;
    if (away->places[extent] != KV_NOWHERE)
        return;
    while (place < away->n_here && away->tenants[place] != KV_NOWHERE)
        place++;
    assert(place < away->n_here); /* as reserved */
    away_settle(away, extent, place);
    away_restore(kv, extent);
}

/* As many as there are places, first what was used last. */
static void away_fill(struct kv_cache *kv)
{
    const struct kv_away *away = kv->away;
    for (uint32_t n = 0; n < away->n_here; n++) {
        uint32_t last = KV_NOWHERE;
        for (uint32_t i = 0; i < kv->map.n_extents; i++) {
            if (kv->map.n_refs[i] && away->places[i] == KV_NOWHERE &&
                (last == KV_NOWHERE || away->used[i] > away->used[last]))
                last = i;
        }
        if (last == KV_NOWHERE)
            return;
        away_bring(kv, last);
    }
}

/* All that slots have goes to host memory first. False: there is no memory for that, and nothing
 * has changed. */
static bool away_save_all(struct kv_cache *kv)
{
    uint32_t n = 0;
    bool *was_here = mem_new_array(kv->map.n_extents, sizeof *was_here);
    bool saved = was_here;
    for (; n < kv->map.n_extents && saved; n++) {
        was_here[n] = kv->map.n_refs[n] && !kv->away->bytes[n];
        saved = !was_here[n] || away_save(kv, n);
    }
    for (uint32_t i = 0; i < n && !saved && was_here; i++) {
        if (was_here[i])
            away_forget_bytes(kv, i);
    }
    mem_free(was_here);
    return saved;
}

/* False: the device has no memory for so many; then for as many as before; then for none. */
static bool away_resize(struct kv_cache *kv, uint32_t n_here)
{
    struct kv_away *away = kv->away;
    const uint32_t before = away->n_here, n_extents = kv->map.n_extents;
    assert(n_here && n_here <= n_extents);
    if (!away_save_all(kv))
        return false;
    away->moved = true;
    bool is_there = kv_cache_alloc_pool(kv, n_here);
    const bool as_asked = is_there;
    if (!is_there && before)
        is_there = kv_cache_alloc_pool(kv, n_here = before);
    away_forget_places(away, n_extents, is_there ? n_here : 0);
    if (away_is_all_here(kv))
        away_come_home(kv);
    else
        away_fill(kv);
    return as_asked;
}

/* Of which any one sequence can be computed. */
static uint32_t away_least(const struct kv_cache *kv)
{
    const uint32_t least = kv->map.n_each + 1;
    return least < kv->map.n_extents ? least : kv->map.n_extents;
}

uint64_t kv_away_shrink(struct kv_cache *kv)
{
    const struct kv_away *away = kv->away;
    const uint64_t before = kv_away_pool_bytes(kv);
    uint32_t n_used = 0;
    for (uint32_t i = 0; away && i < kv->map.n_extents; i++)
        n_used += kv->map.n_refs[i] && away->used[i] + KV_AWAY_RESTED > away->batch;
    if (!away)
        return 0;
    if (n_used < away_least(kv))
        n_used = away_least(kv);
    /* each time costs a copy of all that slots have */
    if (n_used > away->n_here / 4 * 3 || !away_resize(kv, n_used))
        return 0;
    return before - kv_away_pool_bytes(kv);
}

bool kv_away_grow(struct kv_cache *kv)
{
    if (away_is_all_here(kv) || away_resize(kv, kv->map.n_extents))
        return true;
    kv->away->tried = kv->away->batch;
    return false;
}

uint64_t kv_away_pool_bytes(const struct kv_cache *kv)
{
    return kv->away ? kv->away->n_here * away_extent_bytes(kv) : 0;
}

/* ---- a batch --------------------------------------------------------------------------- */

/* What no slot has any more is kept nowhere. */
static void away_sweep(struct kv_cache *kv)
{
    for (uint32_t i = 0; i < kv->map.n_extents; i++) {
        if (kv->map.n_refs[i])
            continue;
        away_leave(kv->away, i);
        away_forget_bytes(kv, i);
    }
}

void kv_away_begin(struct kv_cache *kv)
{
    if (!kv->away)
        return;
    kv->away->batch++;
    if (!away_is_all_here(kv))
        away_sweep(kv);
}

void kv_away_pin(struct kv_cache *kv, uint32_t slot, uint32_t first, uint32_t end)
{
    const uint32_t *extents = kv->map.extents + (size_t)slot * kv->map.n_each;
    for (uint32_t i = first; kv->away && i < end && i < kv->map.n_held[slot]; i++)
        kv->away->used[extents[i]] = kv->away->batch;
}

/* A free place; else the one that was used longest ago, whose extent goes to host memory.
 * KV_NOWHERE: that has no room. */
static uint32_t away_make_place(struct kv_cache *kv)
{
    struct kv_away *away = kv->away;
    uint32_t oldest = KV_NOWHERE;
    for (uint32_t i = 0; i < away->n_here; i++) {
        const uint32_t extent = away->tenants[i];
        if (extent != KV_NOWHERE && !away_is_pinned(kv, extent) &&
            (oldest == KV_NOWHERE || away->used[extent] < away->used[away->tenants[oldest]]))
            oldest = i;
    }
    assert(oldest != KV_NOWHERE); /* there are as many places as are needed */
    const uint32_t extent = away->tenants[oldest];
    if (kv->map.n_refs[extent] && !away_save(kv, extent))
        return KV_NOWHERE;
    away_leave(away, extent);
    return oldest;
}

static enum error_code away_refuse(const struct kv_cache *kv, uint32_t n, struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u of the KV cache's %u cells",
                     n * KV_PADDING, kv->map.n_extents * KV_PADDING);
}

enum error_code kv_away_reserve(struct kv_cache *kv, uint32_t n_new, struct error *err)
{
    const struct kv_away *away = kv->away;
    uint32_t n = n_new, n_missing = n_new, n_free = 0;
    if (away_is_all_here(kv))
        return ERROR_NONE;
    for (uint32_t i = 0; i < kv->map.n_extents; i++)
        n += away_is_pinned(kv, i);
    assert(n <= kv->map.n_extents);
    n = n < away_least(kv) ? away_least(kv) : n;
    if (n > away->n_here && !away_resize(kv, n))
        return away_refuse(kv, n, err);
    for (uint32_t i = 0; i < kv->map.n_extents; i++)
        n_missing += away_is_pinned(kv, i) && away->places[i] == KV_NOWHERE;
    for (uint32_t i = 0; i < away->n_here; i++)
        n_free += away->tenants[i] == KV_NOWHERE;
    for (; n_free < n_missing; n_free++) {
        if (away_make_place(kv) == KV_NOWHERE)
            return away_refuse(kv, n, err);
    }
    return ERROR_NONE;
}

void kv_away_take(struct kv_cache *kv, uint32_t extent)
{
    if (!kv->away)
        return;
    kv->away->used[extent] = kv->away->batch;
    if (away_is_all_here(kv))
        return;
    away_leave(kv->away, extent);
    away_forget_bytes(kv, extent);
    away_bring(kv, extent);
}

enum error_code kv_away_fetch(struct kv_cache *kv, uint32_t slot, struct error *err)
{
    const uint32_t at = slot * kv->map.n_each;
    const enum error_code code = kv_away_reserve(kv, 0, err);
    for (uint32_t i = 0; !code && !away_is_all_here(kv) && i < kv->map.n_held[slot]; i++) {
        const uint32_t extent = kv->map.extents[at + i];
        if (away_is_pinned(kv, extent))
            away_bring(kv, extent);
        kv->away->here.extents[at + i] = kv->away->places[extent];
    }
    return code;
}

bool kv_away_take_moved(struct kv_cache *kv)
{
    const bool moved = kv->away && kv->away->moved;
    if (moved)
        kv->away->moved = false;
    return moved;
}

/* ---- where things are ------------------------------------------------------------------ */

const struct kv_map *kv_away_map(const struct kv_cache *kv)
{
    if (away_is_all_here(kv))
        return &kv->map;
    kv->away->here.n_extents = kv->away->n_here;
    return &kv->away->here;
}

uint32_t kv_away_place(const struct kv_cache *kv, uint32_t extent)
{
    if (away_is_all_here(kv))
        return extent;
    assert(kv->away->places[extent] < kv->away->n_here);
    return kv->away->places[extent];
}

void kv_away_get(const struct kv_cache *kv, uint32_t layer, int part, uint32_t extent,
                 uint32_t first, uint32_t n, void *out)
{
    const struct ggml_tensor *rows = kv_cache_part(kv, layer, part);
    const size_t row = away_row_bytes(kv, layer, part);
    const bool is_here = away_is_all_here(kv) || kv->away->places[extent] != KV_NOWHERE;
    assert(first + n <= KV_PADDING);
    if (is_here)
        ggml_backend_tensor_get(
            rows, out, ((size_t)kv_away_place(kv, extent) * KV_PADDING + first) * row, n * row);
    else if (kv->away->bytes[extent])
        memcpy(out,
               (const char *)kv->away->bytes[extent] + away_offset(kv, layer, part) + first * row,
               n * row);
    else
        memset(out, 0, n * row);
}

/* ---- its life -------------------------------------------------------------------------- */

enum error_code kv_away_init(struct kv_cache *kv, struct error *err)
{
    const uint32_t n = kv->map.n_extents;
    struct kv_away *away = kv->away = mem_new(sizeof *away);
    if (!away)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the KV cache's index");
    away->here = kv->map;
    away->here.extents =
        mem_new_array((size_t)kv->map.n_slots * kv->map.n_each, sizeof *away->here.extents);
    away->places = mem_new_array(n, sizeof *away->places);
    away->tenants = mem_new_array(n, sizeof *away->tenants);
    away->bytes = mem_new_array(n, sizeof *away->bytes);
    away->used = mem_new_array(n, sizeof *away->used);
    if (!away->here.extents || !away->places || !away->tenants || !away->bytes || !away->used) {
        kv_away_deinit(kv);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the KV cache's index");
    }
    away_forget_places(away, n, n);
    away_come_home(kv);
    return ERROR_NONE;
}

void kv_away_deinit(struct kv_cache *kv)
{
    if (!kv->away)
        return;
    for (uint32_t i = 0; kv->away->bytes && i < kv->map.n_extents; i++)
        mem_free(kv->away->bytes[i]);
    mem_free(kv->away->here.extents);
    mem_free(kv->away->places);
    mem_free(kv->away->tenants);
    mem_free(kv->away->bytes);
    mem_free(kv->away->used);
    mem_free(kv->away);
    kv->away = NULL;
}
