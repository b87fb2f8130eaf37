/* Sequences that share cache cells: who may begin, who has to wait. By the baton's holder.
 *
 * A sequence begins when there are probably cells for all of it. Where that was too hopeful, the
 * youngest is parked: its cells are given back, it keeps its slot, and when there is room its
 * tokens are computed again. What comes next depends on those alone (driver.h, Replay), so its
 * reader sees a pause and nothing else. The oldest is never parked, and a pool holds a whole
 * context, so it comes to its end. */
#include "pipeline/driver_state.h"

#include "engine/batch_shape.h"

#include <assert.h>
#include <string.h>

static uint32_t cells_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Of what it will probably have in the end. */
static uint32_t cells_likely(const struct driver *driver, const struct sequence *sequence,
                             uint32_t n_known)
{
    const struct request *request = &sequence->request;
    const uint32_t context = driver->options.context;
    uint32_t more = cells_smaller(request->n_predict, answers_median(&driver->answers));
    more = cells_smaller(more, context - cells_smaller(request->n_prompt, context));
    const uint32_t all = request->n_prompt + more;
    return kv_map_extents(all > n_known ? all : cells_smaller(n_known + 1, context));
}

/* Marks the slot's first `n` extents; those that were not marked. */
static uint32_t cells_mark(struct slot_table *table, uint32_t slot, uint32_t n)
{
    const uint32_t *extents = table->map.extents + (size_t)slot * table->map.n_each;
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < n && i < table->map.n_held[slot]; i++) {
        n_new += !table->marks[extents[i]];
        table->marks[extents[i]] = true;
    }
    return n_new;
}

/* Extents that running sequences have or will probably need, those counted that the new one begins
 * with: whole ones of a prefix. */
static uint32_t cells_promised(struct driver *driver, const struct slot_choice *choice,
                               bool *is_alone)
{
    struct slot_table *table = &driver->slots;
    uint32_t n = 0;
    memset(table->marks, 0, table->map.n_extents * sizeof *table->marks);
    *is_alone = true;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        const struct slot *slot = &table->slots[i];
        if (!slot->sequence || slot->parked)
            continue;
        *is_alone = false;
        const uint32_t likely = cells_likely(driver, slot->sequence, slot->n_known),
                       held = table->map.n_held[i];
        n += cells_mark(table, i, held) + (likely > held ? likely - held : 0);
    }
    n += cells_mark(table, choice->slot, choice->keep / KV_PADDING);
    return n + (choice->copy ? cells_mark(table, choice->copy_from, choice->copy / KV_PADDING) : 0);
}

static bool cells_are_likely(struct driver *driver, const struct sequence *sequence,
                             uint32_t n_known, const struct slot_choice *choice)
{
    bool is_alone;
    const uint32_t promised = cells_promised(driver, choice, &is_alone),
                   begins = (choice->keep + choice->copy) / KV_PADDING;
    return is_alone || promised + cells_likely(driver, sequence, n_known) - begins <=
                           driver->slots.map.n_extents;
}

bool step_grammar_fits(struct driver *driver, const struct constraint *constraint)
{
    uint64_t sum = constraint ? constraint_source(constraint)->size : 0;
    for (uint32_t i = 0; i < driver->n_setups && constraint; i++) {
        struct pick_setup *setup = &driver->setups[i];
        if (!driver->slots.slots[setup->slot].sequence)
            pick_setup_deinit(setup);
        if (setup->constraint)
            sum += constraint_source(setup->constraint)->size;
    }
    return sum <= LIMIT_WIRE_GRAMMARS;
}

bool step_cells_admit(struct driver *driver, const struct sequence *sequence,
                      const struct slot_choice *choice)
{
    return !slot_table_is_pool(&driver->slots) ||
           cells_are_likely(driver, sequence, sequence->request.n_prompt, choice);
}

bool step_cells_is_coming(const struct driver *driver, const struct sequence *sequence,
                          uint32_t reusable, const struct slot_choice *choice)
{
    uint32_t source, checkpoint;
    if (!slot_table_is_pool(&driver->slots))
        return false;
    const uint32_t coming =
        slot_table_source(&driver->slots, SLOT_NONE, sequence->request.prompt, reusable,
                          sequence->request.cache_key, true, &source, &checkpoint);
    /* only whole extents are shared */
    return coming / KV_PADDING > (choice->keep + choice->copy) / KV_PADDING;
}

/* ---- those that wait ----------------------------------------------------------------- */

static uint32_t cells_oldest_parked(const struct slot_table *table)
{
    uint32_t oldest = SLOT_NONE;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        const struct slot *slot = &table->slots[i];
        if (slot->parked &&
            (oldest == SLOT_NONE || slot->sequence->id < table->slots[oldest].sequence->id))
            oldest = i;
    }
    return oldest;
}

static bool cells_resume_one(struct driver *driver, uint32_t index)
{
    struct slot_table *table = &driver->slots;
    struct slot *slot = &table->slots[index];
    struct slot_choice choice = {.slot = index};
    const bool reuses = !driver->options.no_prefix_reuse && !sequence_wants_rows(slot->sequence);
    const uint32_t prefix =
        reuses ? slot_table_source(table, index, slot->tokens, slot->n_known - 1, slot->cache_key,
                                   false, &choice.copy_from, &choice.checkpoint)
               : 0;
    assert(slot->sequence && !slot->n_placed);
    choice.copy = slot_table_copyable(table, prefix);
    step_round_to_pictures(driver, slot->sequence, &choice);
    if (!cells_are_likely(driver, slot->sequence, slot->n_known, &choice))
        return false;
    if (choice.copy) {
        step_push_prefix(driver, index, choice.copy_from, choice.copy, choice.checkpoint);
        slot_table_copy(table, choice.copy_from, index, choice.copy);
    }
    slot->parked = false;
    return true;
}

bool step_cells_resume(struct driver *driver)
{
    uint32_t index;
    if (!slot_table_is_pool(&driver->slots))
        return true;
    while ((index = cells_oldest_parked(&driver->slots)) != SLOT_NONE) {
        if (step_operations_are_full(driver) || !cells_resume_one(driver, index))
            return false;
    }
    return true;
}

/* ---- making room --------------------------------------------------------------------- */

/* The longest unused slot without a sequence; first of those that have extents for themselves. */
static uint32_t cells_idle(const struct slot_table *table)
{
    uint32_t best = SLOT_NONE;
    bool best_frees = false;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        const struct slot *slot = &table->slots[i];
        if (slot->sequence || !table->map.n_held[i])
            continue;
        const bool frees = kv_map_alone(&table->map, i) > 0;
        if (best == SLOT_NONE || frees > best_frees ||
            (frees == best_frees && slot->served < table->slots[best].served)) {
            best = i;
            best_frees = frees;
        }
    }
    return best;
}

static uint32_t cells_youngest(const struct slot_table *table, uint32_t *n_running)
{
    uint32_t youngest = SLOT_NONE;
    *n_running = 0;
    for (uint32_t i = 0; i < table->n_slots; i++) {
        const struct slot *slot = &table->slots[i];
        if (!slot->sequence || slot->parked)
            continue;
        ++*n_running;
        if (youngest == SLOT_NONE || slot->sequence->id > table->slots[youngest].sequence->id)
            youngest = i;
    }
    return youngest;
}

static void cells_park(struct driver *driver, uint32_t index)
{
    struct slot *slot = &driver->slots.slots[index];
    assert(slot->sequence && !slot->parked);
    step_empty_slot(driver, index);
    slot->parked = true;
    slot->sequence->cached = 0;
    driver->gain.n_parked++;
}

static uint32_t cells_needed(const struct slot_table *table, const struct schedule *schedule,
                             const uint32_t *slots)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < schedule->n_shares; i++) {
        const uint32_t slot = slots[schedule->shares[i].item], first = table->slots[slot].n_placed;
        n += kv_map_need(&table->map, slot, first, first + schedule->shares[i].rows);
    }
    return n;
}

bool step_cells_make_room(struct driver *driver, const struct schedule *schedule,
                          const uint32_t *slots)
{
    const struct slot_table *table = &driver->slots;
    while (slot_table_is_pool(table) &&
           cells_needed(table, schedule, slots) > table->map.n_unused) {
        uint32_t n_running, index = cells_idle(table);
        if (index != SLOT_NONE) {
            step_empty_slot(driver, index);
            continue;
        }
        index = cells_youngest(table, &n_running);
        assert(n_running > 1); /* a pool holds a context */
        cells_park(driver, index);
        return false;
    }
    return true;
}

void step_cells_give_back(struct driver *driver)
{
    const struct memory_terms terms = memory_watch_terms(&driver->memory);
    const bool keeps = !terms.drops && pipeline_caches_all_move(&driver->pipeline);
    uint32_t index;
    pipeline_give_back(&driver->pipeline, &terms);
    if (terms.gives_back) /* the stages drop theirs */
        slot_table_forget_checkpoints(&driver->slots);
    if (!terms.gives_back || keeps || !slot_table_is_pool(&driver->slots))
        return;
    while (!step_operations_are_full(driver) && (index = cells_idle(&driver->slots)) != SLOT_NONE)
        step_empty_slot(driver, index);
}
