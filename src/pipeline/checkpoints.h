/* Which states of slots are kept, of which length, and at which places of a text that pays. Pure.
 *
 * A state (engine/recurrent_state.h) stands for one length and cannot be cut back. A text that
 * leaves a slot's text at an earlier place (a turn is edited or asked again, a template leaves out
 * what was thought, another talk begins with the same system prompt) begins at the longest
 * checkpoint before that place. Kept are, where CHECKPOINT_APART tokens at least are between two:
 *
 *   the end of a prompt, less its last CHECKPOINT_TAIL tokens: those are often how a template has
 *       the model begin its answer, and stand otherwise in the next turn's prompt
 *   a slot's whole text where it goes on: the end of the turn before
 *   where a prompt leaves the text of a slot and no checkpoint was near: others will leave it
 * there, too (branches of the tree of prefixes, as in Marconi, arXiv:2411.19379, 4.1) of a long
 * prompt, its quarters, CHECKPOINT_STEP_MIN apart at least
 *
 * Where all places are taken, the one that was not used for the longest time goes. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CHECKPOINT_NONE = LIMIT_CHECKPOINTS,
    CHECKPOINT_APART = 64, /* fewer tokens are as quickly computed */
    CHECKPOINT_TAIL = 32,  /* a device is not faster per token from so many rows on (step.c) */
    CHECKPOINT_STEP_MIN = 512,
};

struct checkpoint {
    uint32_t slot; /* whose first `length` tokens it is of */
    uint32_t length;
    uint32_t id; /* 0: there is none */
    uint64_t used;
};

struct checkpoint_table {
    struct checkpoint list[LIMIT_CHECKPOINTS];
    uint32_t n; /* places; 0: nothing is kept */
    uint32_t last_id;
};

/* The slot's longest of at most `length` tokens; CHECKPOINT_NONE. */
uint32_t checkpoint_longest(const struct checkpoint_table *table, uint32_t slot, uint32_t length);
/* A new one of the slot, in the place of the least useful. */
uint32_t checkpoint_add(struct checkpoint_table *table, uint32_t slot, uint32_t length,
                        uint64_t used);
void checkpoint_forget(struct checkpoint_table *table, uint32_t index);

struct checkpoint_text { /* what is computed in a slot */
    uint32_t n_prompt;
    uint32_t n_begun; /* that it began with, without a checkpoint */
    uint32_t branch;  /* where it leaves another's text; 0: nowhere */
};
/* The next place behind `length` where a state is to be kept; UINT32_MAX: there is none. */
uint32_t checkpoint_next(const struct checkpoint_text *text, uint32_t length);
/* `length` is such a place, and none of the slot's is near. */
bool checkpoint_is_due(const struct checkpoint_table *table, const struct checkpoint_text *text,
                       uint32_t slot, uint32_t length);
