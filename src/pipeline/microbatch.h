/* A micro-batch and its way down the stages.
 *
 * It is a job of the device of the stage it is on. Stages that follow each other on one
 * device are run in one go; then the job goes into the next device's queue, from thread to
 * thread without the driver between. Queues are in order, so every stage sees the
 * micro-batches, and the cache operations they carry, in the order in which they were sent.
 *
 * A stage may be in another process or on another machine (pipeline.h): the micro-batch then goes
 * to the pipeline's owner, and on with microbatch_go_on() when it has come back with `at` further
 * on. The tokens are picked on the last stage's thread, from its logits (picker.h).
 *
 * Failure: a stage that fails on a micro-batch, or that is behind one which failed, marks the
 * slots concerned as poisoned, in a table of its own. Rows of a poisoned slot are dropped from
 * the micro-batches that were already under way, so that a stage never sees a gap. Emptying
 * the slot (truncate to 0, which comes down the same way) heals it.
 *
 * Halting: one that nobody wants any more ends at the next safe point (batch.stops), wherever it
 * is. It comes back with all its shares failed and ERROR_CANCELLED. Its slots are sound up to its
 * rows: a cut to there, or further back, heals them, so what came before is not computed again. */
#pragma once

#include "base/buffer.h"
#include "base/limits.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "pipeline/picker.h"
#include "request/request.h"

#include <stdatomic.h>

struct pipeline; /* pipeline.h */

/* Done on every stage before the micro-batch's rows. KEEP and TAKE are of a place for states
 * (stage_checkpoint_keep()), and only sent where all stages know them. */
enum cache_operation_kind {
    CACHE_CUT,  /* the slot is cut to `length` */
    CACHE_COPY, /* it begins with `length` tokens of slot `from` */
    CACHE_KEEP, /* its states are kept, of `length` tokens, which are all that it has */
    CACHE_TAKE, /* it begins with `length` tokens of slot `from`, maybe itself, and kept states */
    CACHE_OPERATION_KINDS
};
struct cache_operation {
    enum cache_operation_kind kind;
    uint32_t slot;
    uint32_t length;
    uint32_t from;
    uint32_t checkpoint, checkpoint_id; /* stage_checkpoint's */
};

/* The rows of one slot, which stand together. */
struct share {
    uint32_t slot;
    uint32_t epoch;    /* of the slot, when it was sent */
    uint32_t position; /* of the first row */
    uint32_t n_rows;
    uint32_t n_outputs;
    uint64_t sequence;  /* its id */
    bool pick;          /* a token, from the last row's logits … */
    uint32_t n_drafted; /* … and one from each row before that but for the share's first ones: the
                           last so many rows are guesses of what those tokens are */
    uint32_t first_pick, n_picks; /* of the micro-batch's: as many as the guesses were right, and
                                     one */
    uint32_t n_match;             /* the driver's: of its draft */
    bool is_ahead;                /* the same: its first row is a guess, too */
    uint32_t n_cuts;              /* the slot's, when it was sent */
    uint64_t draft_ns;            /* the same: that it took */
    int32_t foreseen;             /* the same: the token that the text foresees; -1: none … */
    uint32_t foreseen_match;      /* … after so many that were alike */
    bool gives_rows;              /* the outputs themselves are wanted */
    bool failed;                  /* a stage failed on it */
    bool dropped;                 /* its slot was poisoned; not computed to the end */
};

/* Room that the share takes of the picks. */
static inline uint32_t share_picks_room(const struct share *share)
{
    return share->pick ? 1 + share->n_drafted : 0;
}

/* Its outputs are not, or no longer, computed. */
static inline bool share_is_void(const struct share *share)
{
    return share->failed || share->dropped;
}

struct microbatch {
    struct device_job job;
    struct microbatch *next; /* the driver's lists */
    bool is_small;           /* constant: it has room for few rows (settings.h) */
    struct pipeline *pipeline;
    uint32_t at;      /* the stage it is on */
    uint64_t number;  /* on its way between machines … */
    bool away;        /* … and whether it is there; under the driver's lock, as is … */
    uint64_t sending; /* … the number with which it is being sent there just now; 0: it is not */

    struct pick_setup *setups; /* each slot at most once; before the rows */
    uint32_t n_setups, setups_room;
    struct cache_operation *operations;
    uint32_t n_operations;
    struct share *shares;
    uint32_t n_shares;
    struct batch_row *rows; /* those still computed */
    uint32_t n_rows;
    /* Where rows are a picture's (stage.h): their values, as long as a stage takes them, and how
     * each row differs from text. */
    float *given; /* [n_given][given_width], in the order of the rows */
    uint32_t n_given;
    struct row_place *places; /* [rows] */
    bool has_places;
    bool embeddings;
    /* Every stage so far gives a row the same bits in any batch (engine/stage.h): where all do,
     * tokens may be drafted. */
    bool has_stable_bits;
    bool knows_checkpoints; /* so does every stage so far: states may be kept */

    float *hidden[2];      /* rows x hidden_width; a stage reads one and writes the other */
    float *outputs;        /* of the shares that are neither failed nor dropped, in their order */
    uint32_t n_picks;      /* room that its shares take of … */
    struct pick *picks;    /* from each share's first_pick on, where it is neither */
    struct buffer message; /* room for it as bytes, and … */
    float *scratch;        /* … for one hidden row */
    uint64_t slowest_ns;   /* the longest stage_forward() */
    /* By the stages behind it; n_stages is 0 where somebody on its way did not tell. */
    struct request_times times;
    /* Of its way, while a stage here had no processor: other programs had it. CPUs only, so it says
     * nothing of others. What is left is what the same micro-batch takes next time. */
    uint64_t held_up_ns;
    bool is_ahead;          /* the driver's: nothing but guesses, behind another … */
    bool is_crowded;        /* … and such were under way beside it */
    uint64_t sent_ns;       /* by the driver */
    uint64_t since_ns;      /* it has been where it is since then, by this machine's clock */
    _Atomic bool is_halted; /* nobody wants it any more. Any thread */
    bool is_under_way;  /* the driver's: between microbatch_send() and the step that has it back */
    struct error error; /* when a share failed */
    bool was_short;     /* of memory: a stage here computed it in parts, or not at all */
};

struct microbatch_sizes {
    uint32_t rows, shares, operations, picks;
    uint32_t hidden_width; /* 0: a single stage needs none */
    uint32_t given_width;  /* 0: the model takes no pictures */
    bool second_hidden;    /* more than two stages */
    uint64_t output_floats;
};

enum error_code microbatch_init(struct microbatch *microbatch, struct pipeline *pipeline,
                                const struct microbatch_sizes *sizes, struct error *err);
void microbatch_deinit(struct microbatch *microbatch);

/* Empties it for the next use. */
void microbatch_clear(struct microbatch *microbatch);

/* Lists of those that are not under way. */
static inline void microbatch_give(struct microbatch **list, struct microbatch *microbatch)
{
    microbatch->next = *list;
    *list = microbatch;
}
static inline struct microbatch *microbatch_take(struct microbatch **list)
{
    struct microbatch *microbatch = *list;
    if (microbatch)
        *list = microbatch->next;
    return microbatch;
}

/* Nothing more of it is computed: every share that was not dropped has failed. The caller sets
 * `error`. */
void microbatch_fail(struct microbatch *microbatch);

/* The same for one that was halted. */
void microbatch_end_halted(struct microbatch *microbatch);
static inline bool microbatch_was_halted(const struct microbatch *microbatch)
{
    return microbatch->error.code == ERROR_CANCELLED;
}

/* Sends it down the stages; the owner's `done` follows. */
void microbatch_send(struct microbatch *microbatch);
/* The same from stage `at` on; `done` at once when that is behind the last. */
void microbatch_go_on(struct microbatch *microbatch);
