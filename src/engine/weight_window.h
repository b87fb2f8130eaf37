/* Which layers of a stage stay in memory, and what is read next of those that do not. Pure.
 *
 * A batch uses all layers in order, and then the next batch does the same. Of such a scan, evicting
 * the least recently used keeps exactly what is needed last, and every layer would be read for
 * every batch. So as many layers as fit are pinned, and only the rest is streamed, through two
 * slots: the device computes from one while the other is filled. The streamed layers are spread
 * evenly between the pinned ones, so that the disk goes on reading while pinned layers compute.
 *
 * Streamed layers are numbered by turn: 0, 1, 2 … over all batches; turn t is streamed layer
 * t % n_streamed, in slot t % n_slots. n_slots divides n_streamed, so a layer is always in the same
 * slot, and the slot that is filled next is the one used least recently.
 *
 * Invariants: used <= begun <= used + n_slots. A slot is filled only after its former layer was
 * released; turns from `used` to `begun` have a slot of their own. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { WEIGHT_WINDOW_SLOTS = 2 };

struct weight_window_layer { /* bytes of memory */
    uint64_t resident;       /* while it is pinned */
    uint64_t slot;           /* of a slot that it passes through */
};

struct weight_window_plan {
    uint32_t n_streamed; /* 0: all fit */
    uint32_t n_slots;
    uint64_t pinned_bytes;
    uint64_t slot_bytes;
    bool is_streamed[LIMIT_LAYERS];
};

/* The plan with the fewest streamed layers whose pinned layers and slots take at most `budget`.
 * False: none does; *least_bytes is then what the smallest plan takes. */
bool weight_window_plan_make(const struct weight_window_layer *layers, uint32_t n_layers,
                             uint64_t budget, struct weight_window_plan *out,
                             uint64_t *least_bytes);

enum weight_slot_state {
    WEIGHT_SLOT_EMPTY,
    WEIGHT_SLOT_FILLING,
    WEIGHT_SLOT_READY,
    WEIGHT_SLOT_FAILED
};

struct weight_window {
    uint32_t n_streamed, n_slots;
    uint64_t used;  /* the turn that is used now or next */
    uint64_t begun; /* the turn whose reading begins next */
    enum weight_slot_state slots[WEIGHT_WINDOW_SLOTS];
};

void weight_window_init(struct weight_window *window, uint32_t n_streamed, uint32_t n_slots);

/* What to read next: the streamed layer and the slot that is now being filled. False: every slot
 * is in use. */
bool weight_window_begin(struct weight_window *window, uint32_t *streamed, uint32_t *slot);
void weight_window_filled(struct weight_window *window, uint32_t slot, bool good);

/* The slot of the layer that is used next, and how it is. */
uint32_t weight_window_next(const struct weight_window *window, enum weight_slot_state *state);
/* It was used: its slot may be filled anew. */
void weight_window_release(struct weight_window *window);

/* A batch has ended before its last layer: the next one begins at layer 0 again. Nothing may be
 * being filled. */
void weight_window_rewind(struct weight_window *window);
bool weight_window_is_filling(const struct weight_window *window);
