/* Guesses that follow each other through a pipeline: while a micro-batch of the only stream is
 * under way, others go behind it with nothing but guesses, as if it had come back with what is
 * guessed.
 *
 * A guess stands in its slot behind those that are under way, so what is in the caches is what the
 * slot's tokens say, as for any draft (step_draft.c). For the stages the first guess of such a
 * micro-batch is a token like any other. The driver knows better: what comes back counts if all
 * before it was right, and the last token before it is that guess. If not, the slot is cut to what
 * is right, and what is still under way behind is void (slot.n_cuts).
 *
 * One device computes one micro-batch after the other, so none follows there. But a draft model on
 * another machine guesses beside it, and the next one has what it has said by then. By the baton's
 * holder (driver_state.h). */
#include "pipeline/driver_state.h"

#include "engine/batch_shape.h"
#include "pipeline/settings.h"

#include <assert.h>

enum { AHEAD_ALWAYS = 3 }; /* in tests: 1 to so many rows */

static_assert((int)SMALL_ROWS >= (int)SPECULATION_DRAFT_MAX, "they go in small micro-batches");

static uint32_t ahead_smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The slot of the only sequence that is computed; SLOT_NONE: there are several, or none. */
static uint32_t ahead_only_slot(const struct driver *driver)
{
    uint32_t only = SLOT_NONE;
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        if (!driver->slots.slots[i].sequence)
            continue;
        if (only != SLOT_NONE)
            return SLOT_NONE;
        only = i;
    }
    return only;
}

static bool ahead_is_alone(const struct driver *driver)
{
    return driver->may_draft && driver->options.speculate != SPECULATE_OFF && !driver->queue &&
           ahead_only_slot(driver) != SLOT_NONE;
}

bool step_ahead_is_possible(const struct driver *driver)
{
    return driver->pipe.n_devices && ahead_is_alone(driver);
}

bool step_beside_is_possible(const struct driver *driver)
{
    return !driver->pipe.n_devices && driver->drafter && drafter_is_apart(driver->drafter) &&
           ahead_is_alone(driver);
}

uint32_t step_ahead_begin(const struct driver *driver, struct slot *slot, uint32_t from,
                          uint32_t n_match, uint32_t most)
{
    struct sequence *sequence = slot->sequence;
    sequence->train = (struct draft_train){
        .distance = slot->n_known - from, .n_match = n_match, .n_known = slot->n_known};
    if (driver->options.speculate == SPECULATE_ALWAYS)
        return ahead_smaller(most, slot->n_known % AHEAD_ALWAYS);
    const struct speculation_train train =
        speculation_train(&sequence->speculation, &driver->costs, &driver->pipe, n_match, most, 0);
    if (driver->drafter && !train.n_drafted && !train.n_ahead)
        sequence->train.distance = 0; /* it may say more */
    return train.n_drafted;
}

/* Of the next micro-batch. */
static struct speculation_train ahead_train(const struct driver *driver, const struct slot *slot,
                                            uint32_t n_match)
{
    if (driver->options.speculate == SPECULATE_ALWAYS)
        return (struct speculation_train){.n_ahead = 1 + slot->n_placed % AHEAD_ALWAYS,
                                          .n_under_way = driver->pipe.n_under_way};
    return speculation_train(&slot->sequence->speculation, &driver->costs, &driver->pipe, n_match,
                             SPECULATION_DRAFT_MAX, step_draft_each_ns(driver, n_match));
}

/* What is right so far makes the match longer. */
static uint32_t ahead_match(const struct slot *slot)
{
    const struct draft_train *train = &slot->sequence->train;
    return train->is_of_model ? SPECULATION_OF_MODEL
                              : train->n_match + slot->n_known - train->n_known;
}

/* Puts guesses into the slot; how many. A model is asked for the next ones while it is too early to
 * send them. */
static uint32_t ahead_write(struct driver *driver, struct slot *slot, uint32_t n_match,
                            uint32_t most)
{
    const struct speculation_train train = ahead_train(driver, slot, n_match);
    const uint32_t n_rows = ahead_smaller(train.n_ahead, most);
    const uint32_t n_now = driver->n_in_flight < train.n_under_way ? n_rows : 0;
    if (slot->sequence->train.is_of_model)
        return step_draft_go_on(driver, slot, n_rows ? most : 0, n_now);
    return step_draft_write(slot, slot->n_placed,
                            slot->tokens + slot->n_placed - slot->sequence->train.distance, n_now);
}

/* Windows have cells for a micro-batch of rows behind what is known (kv_window_cells()). */
static uint32_t ahead_most(const struct driver *driver, const struct slot *slot)
{
    const uint32_t n_guessed = slot->n_placed - slot->n_known;
    const uint32_t most =
        ahead_smaller(step_draft_most(driver, slot, slot->n_known - 1), driver->options.batch_rows);
    return most > n_guessed ? ahead_smaller(most - n_guessed, SPECULATION_DRAFT_MAX) : 0;
}

static bool ahead_is_wanted(const struct driver *driver, const struct slot *slot)
{
    const struct sequence *sequence = slot->sequence;
    return sequence->generated && !slot->parked && !slot->broken &&
           (sequence->train.distance || (sequence->train.is_of_model && driver->drafter)) &&
           slot->n_placed >= slot->n_known && driver->n_in_flight > 0 &&
           !sequence_wants_rows(sequence) && !step_draft_is_awaited(driver, sequence->slot);
}

void step_ask_beside(struct driver *driver)
{
    if (!step_beside_is_possible(driver))
        return;
    struct slot *slot = &driver->slots.slots[ahead_only_slot(driver)];
    if (ahead_is_wanted(driver, slot))
        step_draft_go_on(driver, slot, ahead_most(driver, slot), 0);
}

bool step_ahead_form(struct driver *driver, struct microbatch *microbatch)
{
    if (!step_ahead_is_possible(driver) || memory_watch_terms(&driver->memory).divisor > 1)
        return false;
    struct slot *slot = &driver->slots.slots[ahead_only_slot(driver)];
    struct sequence *sequence = slot->sequence;
    if (!ahead_is_wanted(driver, slot))
        return false;
    const uint32_t n_match = ahead_match(slot),
                   n = ahead_write(driver, slot, n_match, ahead_most(driver, slot));
    if (!n)
        return false;
    const struct step_draft draft = {
        .n_tokens = n - 1, .n_match = n_match, .foreseen = -1, .is_ahead = true};
    microbatch_clear(microbatch);
    microbatch->is_ahead = true;
    step_add_share(driver, microbatch, sequence->slot, &draft, n);
    step_add_operations(driver, microbatch);
    sequence->drafted += n;
    driver->gain.drafted_tokens += n;
    return true;
}
