/* Checkpoints: what states were after some length of a text, in host memory. A state cannot be cut
 * back, so who goes on from an earlier place of a slot's text begins at the longest checkpoint
 * before that; the keys and values of the slot's other layers are cut there, as ever. Which are
 * kept, and of which text, the driver knows (pipeline/checkpoints.h): here they are numbered
 * places, and an id says whether what is in one is what the driver means.
 *
 * Memory: of a place, taken when it is first used. Where there is none, nothing is kept.
 * Threading: as the stage's. */
#pragma once

#include "engine/recurrent_state.h"

struct state_checkpoint {
    uint32_t id; /* 0: nothing is kept here */
    uint32_t length;
    void *bytes; /* NULL: none yet */
};

struct state_checkpoints {
    struct state_checkpoint *list;
    uint32_t n;
    uint64_t bytes_each;
};

/* As many as the options say, where a layer has a state. */
enum error_code state_checkpoints_init(struct state_checkpoints *checkpoints,
                                       const struct recurrent_state *state, uint32_t n,
                                       struct error *err);
void state_checkpoints_deinit(struct state_checkpoints *checkpoints);
/* When all are in use. */
uint64_t state_checkpoints_bytes_max(const struct state_checkpoints *checkpoints);
/* Nothing is kept any more; the bytes that are free then. */
uint64_t state_checkpoints_drop(struct state_checkpoints *checkpoints);
