#include "pipeline/slots.h"

#include "base/limits.h"
#include "base/mem.h"
#include "engine/batch_shape.h"
#include "pipeline/sequence.h"

#include <assert.h>

enum error_code slot_table_init(struct slot_table *table, uint32_t n_slots, uint32_t context,
                                uint32_t cells, struct error *err)
{
    *table = (struct slot_table){.n_slots = n_slots};
    assert(n_slots && n_slots <= LIMIT_SEQUENCES && context);
    table->slots = mem_new_array(n_slots, sizeof *table->slots);
    table->tokens = mem_new_array((size_t)n_slots * context, sizeof *table->tokens);
    if (!table->slots || !table->tokens) {
        slot_table_deinit(table);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u slots of %u tokens",
                         n_slots, context);
    }
    for (uint32_t i = 0; i < n_slots; i++)
        table->slots[i].tokens = table->tokens + (size_t)i * context;
    enum error_code code =
        cells ? kv_map_init(&table->map, n_slots, context, cells, err) : ERROR_NONE;
    if (!code && cells && !(table->marks = mem_new_array(table->map.n_extents, sizeof(bool))))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for marks of %u cells", cells);
    if (code)
        slot_table_deinit(table);
    return code;
}

void slot_table_deinit(struct slot_table *table)
{
    mem_free(table->slots);
    mem_free(table->tokens);
    mem_free(table->marks);
    kv_map_deinit(&table->map);
    *table = (struct slot_table){0};
}

/* ---- cells ---------------------------------------------------------------------------- */

bool slot_table_is_pool(const struct slot_table *table)
{
    return table->map.n_extents > 0;
}

static void slot_table_claim(struct slot_table *table, uint32_t slot, uint32_t first, uint32_t end)
{
    struct kv_claim claim;
    for (uint32_t i = first / KV_PADDING; i < kv_map_extents(end) && first < end; i++) {
        const bool there = kv_map_claim(&table->map, slot, i, &claim);
        assert(there);
    }
}

void slot_table_place(struct slot_table *table, uint32_t index, uint32_t n)
{
    struct slot *slot = &table->slots[index];
    if (slot_table_is_pool(table) && n)
        slot_table_claim(table, index, slot->n_placed, slot->n_placed + n);
    else if (slot_table_is_pool(table))
        kv_map_cut(&table->map, index, 0);
    slot->n_placed = n ? slot->n_placed + n : 0;
    const uint32_t cells = table->window_cells;
    const uint32_t start = table->window && slot->n_placed > cells ? slot->n_placed - cells : 0;
    if (!n || start > slot->start)
        slot->start = start;
}

/* Its sequence's prompt is being computed, which all that is known of it will be. */
static bool slot_is_filling(const struct slot_table *table, uint32_t index)
{
    const struct slot *slot = &table->slots[index];
    return slot->sequence && !slot->parked && !table->whole_only;
}

static uint32_t slot_shared(const struct slot_table *table, uint32_t index, const int32_t *prompt,
                            uint32_t reusable, uint64_t cache_key, bool under_way)
{
    const struct slot *slot = &table->slots[index];
    uint32_t most = slot->broken || slot->cache_key != cache_key ? 0
                    : under_way                                  ? slot->n_known
                                                                 : slot->n_placed;
    if (most > reusable)
        most = reusable;
    uint32_t n = 0;
    while (n < most && slot->tokens[n] == prompt[n])
        n++;
    if (table->whole_only && n < slot->n_placed)
        return 0;
    return slot->start <= kv_window_start(table->window, n) ? n : 0;
}

void slot_table_cut(struct slot_table *table, uint32_t index, uint32_t length)
{
    assert(length <= table->slots[index].n_placed);
    table->slots[index].n_placed = length;
    if (slot_table_is_pool(table))
        kv_map_cut(&table->map, index, length);
}

void slot_table_copy(struct slot_table *table, uint32_t from, uint32_t to, uint32_t length)
{
    assert(!table->slots[to].n_placed && length <= table->slots[from].n_placed);
    table->slots[to].n_placed = length;
    table->slots[to].start = table->slots[from].start;
    if (!slot_table_is_pool(table))
        return;
    kv_map_share(&table->map, from, to, length);
    slot_table_claim(table, to, length / KV_PADDING * KV_PADDING, length);
}

uint32_t slot_table_copyable(const struct slot_table *table, uint32_t length)
{
    const bool fits = !slot_table_is_pool(table) || table->map.n_unused;
    const uint32_t most = fits ? length : length / KV_PADDING * KV_PADDING;
    return most >= SLOT_COPY_MIN && (!table->whole_only || most == length) ? most : 0;
}

uint32_t slot_table_source(const struct slot_table *table, uint32_t except, const int32_t *prompt,
                           uint32_t reusable, uint64_t cache_key, bool under_way, uint32_t *source)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        if (i == except || (under_way && !slot_is_filling(table, i)))
            continue;
        const uint32_t n = slot_shared(table, i, prompt, reusable, cache_key, under_way);
        if (n > longest) {
            longest = n;
            *source = i;
        }
    }
    return longest;
}

/* The free slot other than `except` whose cache is worth least: an empty one, else the longest
 * unused. */
static uint32_t slot_table_least_valuable(const struct slot_table *table, uint32_t except)
{
    uint32_t best = SLOT_NONE;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        const struct slot *slot = &table->slots[i];
        if (slot->sequence || i == except)
            continue;
        if (best == SLOT_NONE || (slot->n_placed == 0) > (table->slots[best].n_placed == 0) ||
            ((slot->n_placed == 0) == (table->slots[best].n_placed == 0) &&
             slot->served < table->slots[best].served))
            best = i;
    }
    return best;
}

bool slot_table_choose(const struct slot_table *table, const int32_t *prompt, uint32_t reusable,
                       uint64_t cache_key, struct slot_choice *out)
{
    uint32_t source = SLOT_NONE, longest = 0, own = SLOT_NONE, own_longest = 0;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        uint32_t n = slot_shared(table, i, prompt, reusable, cache_key, false);
        if (n > longest) {
            longest = n;
            source = i;
        }
        if (!table->slots[i].sequence && n > own_longest) {
            own_longest = n;
            own = i;
        }
    }
    uint32_t other = slot_table_least_valuable(table, own);
    if (own == SLOT_NONE && other == SLOT_NONE)
        return false;
    bool own_is_good =
        own != SLOT_NONE && (other == SLOT_NONE || own_longest >= table->slots[own].n_placed / 2);
    if (own_is_good && own_longest + SLOT_COPY_MIN > longest) {
        *out = (struct slot_choice){.slot = own, .keep = own_longest};
        return true;
    }
    *out = (struct slot_choice){.slot = own_is_good && other == SLOT_NONE ? own : other};
    assert(out->slot != SLOT_NONE && !table->slots[out->slot].sequence);
    if (longest >= SLOT_COPY_MIN) {
        assert(source != out->slot); /* else it would be kept, not copied */
        out->copy_from = source;
        out->copy = longest;
    }
    return true;
}
