/* The slots of the KV cache, and which of them a new prompt takes. Pure over the table.
 *
 * A slot remembers the tokens that stand in its cache on every stage, so that a prompt which
 * begins like them is computed from where it differs. */
#pragma once

#include "base/error.h"
#include "engine/kv_map.h"
#include "pipeline/checkpoints.h"

#include <stdbool.h>
#include <stdint.h>

struct sequence;

struct slot {
    struct sequence *sequence; /* NULL: free */
    int32_t *tokens;           /* room for the context */
    uint32_t n_known;          /* tokens of the sequence: prompt and generated */
    uint32_t n_placed;         /* of those, in the cache or in a micro-batch on the way there */
    uint32_t start;            /* the first position that windowed layers have */
    uint32_t
        epoch; /* counts how often the slot has been emptied: rows of an older epoch are void */
    uint32_t n_cuts;             /* of wrong guesses: what was sent behind them before is void */
    bool broken;                 /* a stage failed on it: to be emptied before it is used again */
    bool parked;                 /* its sequence has no cells and waits for some (step_cells.c) */
    uint64_t cache_key;          /* of the request whose tokens these are (request.h) */
    uint64_t served;             /* number of the micro-batch that last had rows of it */
    struct checkpoint_text text; /* where its states are to be kept */
    uint32_t taken;              /* id of the checkpoint that it began at; 0: none */
};

struct slot_table {
    struct slot *slots;
    uint32_t n_slots;
    int32_t *tokens;               /* of all slots */
    uint32_t window, window_cells; /* of windowed layers (kv_window_cells()); 0: there are none */
    struct kv_map map;             /* of the cells that slots share; zeroed: they do not */
    bool *marks;                   /* [map.n_extents] */
    bool whole_only; /* a state (engine/recurrent_state.h) cannot be cut: a prompt begins with all
                        that a slot has, at a checkpoint, or is computed from its start */
    struct checkpoint_table checkpoints; /* of slots with the text that they are of */
};

/* `cells`: that the slots share; 0: each has its own. */
enum error_code slot_table_init(struct slot_table *table, uint32_t n_slots, uint32_t context,
                                uint32_t cells, struct error *err);
void slot_table_deinit(struct slot_table *table);

bool slot_table_is_pool(const struct slot_table *table);

/* The slot has `n` tokens more, for which there are cells; none: it is emptied. */
void slot_table_place(struct slot_table *table, uint32_t slot, uint32_t n);
/* The slot's first `length` tokens stay. Checkpoints beyond go, but those that another slot has the
 * text of. */
void slot_table_cut(struct slot_table *table, uint32_t slot, uint32_t length);
/* The empty slot `to` begins like `from`. */
void slot_table_copy(struct slot_table *table, uint32_t from, uint32_t to, uint32_t length);
/* Of a copy, what there are cells for: at least its whole extents. */
uint32_t slot_table_copyable(const struct slot_table *table, uint32_t length);

enum {
    /* A copy is a pass over the cache of every stage; shorter prefixes are as quickly computed. */
    SLOT_COPY_MIN = 16,
};

struct slot_choice {
    uint32_t slot;
    uint32_t keep;      /* tokens of its own cache that stay; the rest is cut off */
    uint32_t copy_from; /* when `copy`: the slot whose first `copy` tokens are copied */
    uint32_t copy;      /* 0: nothing is copied */
    uint32_t
        checkpoint;  /* whose states it begins with; CHECKPOINT_NONE: those of the slot itself */
    uint32_t common; /* tokens that the prompt has in common with a slot's */
};

/* The free slot for a prompt of which at most `reusable` tokens may come from a cache, of requests
 * with the same key. False when no slot is free.
 *
 * The slot with the longest common prefix is taken itself when it is free and gives up less than it
 * saves, or when no other is free; otherwise the longest unused free slot is taken and the prefix
 * copied, which keeps a long conversation alive when another prompt shares only its opening. A
 * prefix whose window has been written over counts for nothing. */
bool slot_table_choose(const struct slot_table *table, const int32_t *prompt, uint32_t reusable,
                       uint64_t cache_key, struct slot_choice *out);

/* A slot that shares the longest prefix with a prompt, other than `except`, as slot_table_choose()
 * counts; `under_way`: also with what is to be computed. The prefix; 0: none. */
uint32_t slot_table_source(const struct slot_table *table, uint32_t except, const int32_t *prompt,
                           uint32_t reusable, uint64_t cache_key, bool under_way, uint32_t *source,
                           uint32_t *checkpoint);

/* Nothing is kept any more. */
void slot_table_forget_checkpoints(struct slot_table *table);
/* The one that the slot began at is not to be had on some stage. */
void slot_table_forget_taken(struct slot_table *table, uint32_t slot);
