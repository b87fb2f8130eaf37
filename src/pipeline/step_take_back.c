/* The driver's step: a micro-batch that has come back. By the baton's holder (driver_state.h). */
#include "pipeline/driver_state.h"

#include "base/clock.h"

#include <assert.h>

enum {
    NO_MEMORY_REPEATS = 300, /* a minute: no other error ends a reply so late */
};

void step_start_over(struct driver *driver, struct sequence *sequence)
{
    struct slot *slot = &driver->slots.slots[sequence->slot];
    slot->broken = true;
    slot_table_forget_taken(&driver->slots, sequence->slot);
    step_empty_slot(driver, sequence->slot);
    slot->text.n_begun = 0;
    sequence->cached = 0;
}

/* Hands a token to the request; false when it wants no more. */
static bool step_give_token(const struct sequence *sequence, const struct pick *pick)
{
    const struct request *request = &sequence->request;
    if (!request->handlers.token)
        return true;
    struct token_event event = {
        .token = pick->token,
        .index = sequence->generated,
        .logprob = pick->logprob,
        .top = pick->top,
        .n_top = pick->n_top,
    };
    return request->handlers.token(request->arg, &event);
}

/* Takes the next token, and ends the sequence where it ends. */
static void step_decode(struct driver *driver, struct sequence *sequence, const struct pick *pick)
{
    struct slot *slot = &driver->slots.slots[sequence->slot];
    const struct request *request = &sequence->request;
    if (!sequence->first_token_ns)
        sequence->first_token_ns = clock_now_ns();
    if (pick->token == CONSTRAIN_FAILS) {
        struct error err;
        error_set(&err, ERROR_UNSUPPORTED,
                  "the grammar cannot go on: the model has no token for what must come next, or "
                  "the grammar is too ambiguous here");
        step_finish(driver, sequence, FINISH_ERROR, &err);
        return;
    }
    if (pick->token == CONSTRAIN_ENDS || sequence_is_stop(sequence, pick->token)) {
        step_finish(driver, sequence, FINISH_STOP, NULL);
        return;
    }
    assert(slot->n_known < driver->options.context); /* there is room for it */
    bool go_on = step_give_token(sequence, pick);
    slot->tokens[slot->n_known++] = pick->token;
    sequence->generated++;
    driver->gain.generated_tokens++;
    if (!go_on)
        step_finish(driver, sequence, FINISH_STOP, NULL);
    else if (sequence->generated < request->n_predict && slot->n_known < driver->options.context)
        return;
    else if (request->want_all_logits)
        sequence->last_row = true;
    else
        step_finish(driver, sequence, FINISH_LENGTH, NULL);
}

/* The outputs of one share. */
static void step_deliver(struct driver *driver, struct sequence *sequence,
                         const struct share *share, uint32_t width, const float *outputs,
                         const struct pick *picks)
{
    const struct request *request = &sequence->request;
    const struct slot *slot = &driver->slots.slots[share->slot];
    uint32_t end = share->position + share->n_rows - share->n_drafted;
    assert(end <= slot->n_known);
    for (uint32_t i = 0; i < share->n_rows && share->gives_rows; i++) {
        if (share->position + i >= sequence->n_rows_given)
            request->handlers.row(request->arg, share->position + i, outputs + (size_t)i * width,
                                  width);
    }
    if (share->gives_rows && end > sequence->n_rows_given)
        sequence->n_rows_given = end;
    if (end < slot->n_known)
        return;
    for (uint32_t i = 0; share->pick && i < share->n_picks && slot->sequence == sequence; i++) {
        const bool was_drafted = i + 1 < share->n_picks;
        sequence->accepted += was_drafted;
        driver->gain.accepted_tokens += was_drafted;
        step_decode(driver, sequence, &picks[i]); /* which may be its end */
    }
    if (!share->pick)
        step_finish(driver, sequence, FINISH_LENGTH, NULL);
}

/* A lack of memory passes: what others took, they give back. Each attempt waits 0.2 s for that
 * (stage_device.c), and requests may be cancelled between two. */
static bool step_may_repeat(struct sequence *sequence, const struct error *err)
{
    return err->code == ERROR_NO_MEMORY && sequence->n_no_memory++ < NO_MEMORY_REPEATS;
}

/* Its grammar is of no use where tokens are picked. */
static void step_refuse(struct driver *driver, struct sequence *sequence, const struct error *why)
{
    struct error err = *why;
    if (!err.code)
        error_set(&err, ERROR_UNSUPPORTED, "the grammar was refused where tokens are picked");
    step_finish(driver, sequence, FINISH_ERROR, &err);
}

static void step_settle(struct driver *driver, struct microbatch *microbatch, uint32_t index,
                        uint32_t width, const float *outputs)
{
    struct share *share = &microbatch->shares[index];
    struct slot *slot = &driver->slots.slots[share->slot];
    if (slot->epoch != share->epoch)
        return; /* the slot has been emptied since */
    struct sequence *sequence = slot->sequence;
    if (share->failed && microbatch_was_halted(microbatch) && atomic_load(&microbatch->is_halted)) {
        step_settle_halted(driver, share);
        return;
    }
    if (share->failed || share->dropped) {
        slot->broken = true;
        if (sequence && share->failed && sequence->id == share->sequence &&
            !step_may_repeat(sequence, &microbatch->error))
            step_finish(driver, sequence, FINISH_ERROR, &microbatch->error);
        else if (sequence)
            step_start_over(driver, sequence);
        return;
    }
    if (sequence && sequence->id == share->sequence && share->n_cuts == slot->n_cuts) {
        sequence->slowest_ns += microbatch->slowest_ns;
        sequence->held_up_ns += microbatch->held_up_ns;
        request_times_add(&sequence->times, &microbatch->times);
        sequence->n_no_memory = 0;
        const struct pick *picks = &microbatch->picks[share->first_pick];
        if (share->pick)
            step_draft_settle(driver, sequence, microbatch, share);
        if (share->pick && picks[0].token == CONSTRAIN_REFUSED)
            step_refuse(driver, sequence, &microbatch->error);
        else
            step_deliver(driver, sequence, share, width, outputs, picks);
    }
}

void step_begin_over(struct driver *driver)
{
    assert(!driver->n_in_flight);
    driver->n_operations = 0; /* of caches that are gone */
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        struct slot *slot = &driver->slots.slots[i];
        if (slot->sequence)
            step_start_over(driver, slot->sequence);
        else
            step_empty_slot(driver, i);
    }
}

void step_end_all(struct driver *driver, const struct error *why)
{
    assert(!driver->n_in_flight);
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        if (driver->slots.slots[i].sequence)
            step_finish(driver, driver->slots.slots[i].sequence, FINISH_ERROR, why);
    }
    while (driver->queue) {
        struct sequence *sequence = driver->queue;
        step_unqueue(driver, sequence);
        step_finish(driver, sequence, FINISH_ERROR, why);
    }
}

void step_complete(struct driver *driver, struct microbatch *microbatch)
{
    assert(driver->n_in_flight && microbatch->at == driver->pipeline.n_stages);
    step_measure(driver, microbatch);
    step_draft_learn(driver, microbatch);
    driver->may_keep_states = microbatch->knows_checkpoints && driver->slots.checkpoints.n;
    if (!driver->may_keep_states)
        slot_table_forget_checkpoints(&driver->slots);
    if (microbatch->error.code == ERROR_NO_MEMORY)
        memory_watch_failed(&driver->memory);
    else if (microbatch->was_short)
        memory_watch_in_parts(&driver->memory);
    uint32_t width =
        microbatch->embeddings ? driver->pipeline.shape.n_embd : driver->pipeline.shape.n_vocab;
    const float *outputs = microbatch->outputs;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        step_settle(driver, microbatch, i, width, outputs);
        if (!share->failed && !share->dropped)
            outputs += (size_t)share->n_outputs * width;
    }
    driver->n_in_flight--;
    microbatch->is_under_way = false;
    driver->n_ahead -= microbatch->is_ahead;
    microbatch_give(microbatch->is_small ? &driver->unused_small : &driver->unused, microbatch);
}
