#include "pipeline/slots.h"

#include "base/limits.h"
#include "base/mem.h"
#include "engine/batch_shape.h"
#include "pipeline/sequence.h"

#include <assert.h>
#include <string.h>

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

/* ---- checkpoints ------------------------------------------------------------------------ */

static bool slot_begins_like(const struct slot_table *table, uint32_t index, uint32_t like,
                             uint32_t length)
{
    const struct slot *slot = &table->slots[index], *other = &table->slots[like];
    return index != like && !slot->broken && slot->cache_key == other->cache_key &&
           slot->n_placed >= length &&
           memcmp(slot->tokens, other->tokens, length * sizeof *slot->tokens) == 0;
}

/* The slot is about to have no more than `length` tokens. */
static void slot_cut_checkpoints(struct slot_table *table, uint32_t index, uint32_t length)
{
    for (uint32_t i = 0; i < table->checkpoints.n; i++) {
        struct checkpoint *at = &table->checkpoints.list[i];
        if (!at->id || at->slot != index || at->length <= length)
            continue;
        uint32_t other = 0;
        while (other < table->n_slots && !slot_begins_like(table, other, index, at->length))
            other++;
        if (other < table->n_slots)
            at->slot = other;
        else
            checkpoint_forget(&table->checkpoints, i);
    }
}

void slot_table_forget_checkpoints(struct slot_table *table)
{
    for (uint32_t i = 0; i < table->checkpoints.n; i++)
        checkpoint_forget(&table->checkpoints, i);
}

void slot_table_forget_taken(struct slot_table *table, uint32_t index)
{
    struct slot *slot = &table->slots[index];
    for (uint32_t i = 0; i < table->checkpoints.n && slot->taken; i++) {
        if (table->checkpoints.list[i].id == slot->taken)
            checkpoint_forget(&table->checkpoints, i);
    }
    slot->taken = 0;
}

void slot_table_place(struct slot_table *table, uint32_t index, uint32_t n)
{
    struct slot *slot = &table->slots[index];
    if (!n)
        slot_cut_checkpoints(table, index, 0);
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

/* Tokens that the slot's text has in common with the prompt. */
static uint32_t slot_common(const struct slot_table *table, uint32_t index, const int32_t *prompt,
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
    return n;
}

/* Of `common[index]` tokens, those that it has the states of: a checkpoint is also of other slots
 * that begin with its text. */
static uint32_t slot_shared(const struct slot_table *table, uint32_t index, const uint32_t *common,
                            uint32_t *checkpoint)
{
    uint32_t n = common[index];
    const struct slot *slot = &table->slots[index];
    *checkpoint = CHECKPOINT_NONE;
    if (table->whole_only && n < slot->n_placed) {
        uint32_t longest = 0;
        for (uint32_t i = 0; i < table->checkpoints.n; i++) {
            const struct checkpoint *at = &table->checkpoints.list[i];
            if (!at->id || at->length > n || at->length > common[at->slot] || at->length <= longest)
                continue;
            longest = at->length;
            *checkpoint = i;
        }
        n = longest;
    }
    return slot->start <= kv_window_start(table->window, n) ? n : 0;
}

void slot_table_cut(struct slot_table *table, uint32_t index, uint32_t length)
{
    assert(length <= table->slots[index].n_placed);
    slot_cut_checkpoints(table, index, length);
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
                           uint32_t reusable, uint64_t cache_key, bool under_way, uint32_t *source,
                           uint32_t *checkpoint)
{
    uint32_t longest = 0, common[LIMIT_SEQUENCES], own;
    for (uint32_t i = 0; i < table->n_slots; i++)
        common[i] = slot_common(table, i, prompt, reusable, cache_key, under_way);
    *checkpoint = CHECKPOINT_NONE;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        if (i == except || (under_way && !slot_is_filling(table, i)))
            continue;
        const uint32_t n = slot_shared(table, i, common, &own);
        if (n > longest) {
            longest = n;
            *source = i;
            *checkpoint = own;
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

/* What of a prompt is in the slots. */
struct slot_prefixes {
    uint32_t longest, source, of_source; /* in any: tokens, slot, checkpoint */
    uint32_t own_longest, own, of_own;   /* in a free one */
    uint32_t common;                     /* with any, whether there are states of it or not */
};

static struct slot_prefixes slot_table_prefixes(const struct slot_table *table,
                                                const int32_t *prompt, uint32_t reusable,
                                                uint64_t cache_key)
{
    struct slot_prefixes out = {.source = SLOT_NONE, .own = SLOT_NONE};
    uint32_t common[LIMIT_SEQUENCES], checkpoint;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        common[i] = slot_common(table, i, prompt, reusable, cache_key, false);
        out.common = common[i] > out.common ? common[i] : out.common;
    }
    for (uint32_t i = 0; i < table->n_slots; i++) {
        const uint32_t n = slot_shared(table, i, common, &checkpoint);
        if (n > out.longest) {
            out.longest = n;
            out.source = i;
            out.of_source = checkpoint;
        }
        const bool gives_up_less =
            n && n == out.own_longest && table->slots[i].n_placed < table->slots[out.own].n_placed;
        if (!table->slots[i].sequence && (n > out.own_longest || gives_up_less)) {
            out.own_longest = n;
            out.own = i;
            out.of_own = checkpoint;
        }
    }
    if (out.own != SLOT_NONE && out.own_longest == out.longest) { /* then no other free one is */
        out.source = out.own;
        out.of_source = out.of_own;
    }
    return out;
}

bool slot_table_choose(const struct slot_table *table, const int32_t *prompt, uint32_t reusable,
                       uint64_t cache_key, struct slot_choice *out)
{
    const struct slot_prefixes p = slot_table_prefixes(table, prompt, reusable, cache_key);
    const uint32_t other = slot_table_least_valuable(table, p.own);
    if (p.own == SLOT_NONE && other == SLOT_NONE)
        return false;
    const bool own_is_good =
        p.own != SLOT_NONE &&
        (other == SLOT_NONE || p.own_longest >= table->slots[p.own].n_placed / 2);
    *out = (struct slot_choice){.checkpoint = CHECKPOINT_NONE, .common = p.common};
    if (own_is_good && p.own_longest + SLOT_COPY_MIN > p.longest) {
        out->slot = p.own;
        out->keep = p.own_longest;
        out->checkpoint = p.of_own;
        return true;
    }
    out->slot = own_is_good && other == SLOT_NONE ? p.own : other;
    assert(out->slot != SLOT_NONE && !table->slots[out->slot].sequence);
    if (p.longest >= SLOT_COPY_MIN) {
        assert(p.source != out->slot); /* else it would be kept, not copied */
        out->copy_from = p.source;
        out->copy = p.longest;
        out->checkpoint = p.of_source;
    }
    return true;
}
