#include "pipeline/slots.h"

#include "base/limits.h"
#include "base/mem.h"
#include "engine/batch_shape.h"
#include "pipeline/sequence.h"

#include <assert.h>

enum error_code slot_table_init(struct slot_table *table, uint32_t n_slots, uint32_t context,
                                struct error *err)
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
    return ERROR_NONE;
}

void slot_table_deinit(struct slot_table *table)
{
    mem_free(table->slots);
    mem_free(table->tokens);
    *table = (struct slot_table){0};
}

void slot_table_place(struct slot_table *table, uint32_t index, uint32_t n)
{
    struct slot *slot = &table->slots[index];
    slot->n_placed = n ? slot->n_placed + n : 0;
    const uint32_t cells = table->window_cells;
    const uint32_t start = table->window && slot->n_placed > cells ? slot->n_placed - cells : 0;
    if (!n || start > slot->start)
        slot->start = start;
}

static uint32_t slot_common_prefix(const struct slot_table *table, uint32_t index,
                                   const int32_t *prompt, uint32_t reusable, uint64_t cache_key)
{
    const struct slot *slot = &table->slots[index];
    uint32_t most = slot->broken || slot->cache_key != cache_key ? 0 : slot->n_placed;
    if (most > reusable)
        most = reusable;
    uint32_t n = 0;
    while (n < most && slot->tokens[n] == prompt[n])
        n++;
    if (table->whole_only && n < slot->n_placed)
        return 0;
    return slot->start <= kv_window_start(table->window, n) ? n : 0;
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
        uint32_t n = slot_common_prefix(table, i, prompt, reusable, cache_key);
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
