/* The driver's step: micro-batches that nobody wants any more. By the baton's holder
 * (driver_state.h). */
#include "pipeline/driver_state.h"

#include <assert.h>

/* Its requests have all ended, and what they leave in their slots is no more than what is lost. */
static bool step_may_halt(const struct driver *driver, const struct microbatch *microbatch,
                          bool closes)
{
    if (!microbatch->is_under_way || atomic_load(&microbatch->is_halted) || !microbatch->n_shares)
        return false;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        const struct sequence *sequence = driver->slots.slots[share->slot].sequence;
        if ((sequence && sequence->id == share->sequence) ||
            (driver->slots.whole_only && share->position && !closes))
            return false;
    }
    return true;
}

void step_halt(struct driver *driver, bool closes)
{
    for (uint32_t i = 0; i < driver->n_microbatches; i++) {
        if (step_may_halt(driver, &driver->microbatches[i], closes))
            driver_halt(driver, &driver->microbatches[i]);
    }
}

void step_settle_halted(struct driver *driver, const struct share *share)
{
    struct slot *slot = &driver->slots.slots[share->slot];
    struct sequence *sequence = slot->sequence;
    assert(slot->epoch == share->epoch);
    if (sequence && sequence->cached <= share->position)
        return; /* the next request, which begins before that and has said so to the stages */
    if (driver->slots.whole_only || !share->position) {
        slot->broken = true;
        if (sequence)
            step_start_over(driver, sequence);
        else
            step_empty_slot(driver, share->slot);
        return;
    }
    if (slot->n_placed <= share->position)
        return; /* guesses that have been cut off since */
    step_push_operation(driver,
                        (struct cache_operation){.slot = share->slot, .length = share->position});
    slot_table_cut(&driver->slots, share->slot, share->position);
    slot->epoch++; /* rows behind these that are under way are dropped */
    if (sequence)
        sequence->cached = share->position;
}
