/* What the driver's two halves share: driver.c, the doors with their lock, and step.c, which
 * decides.
 *
 * What is asked of the driver is a wish, noted under the lock. A step takes all wishes at once
 * (driver_wishes), works without the lock, and publishes what it did when it takes the next ones.
 * So a step with nothing to end takes the lock once; each request that ends takes it once more, for
 * its `done` may look at the statistics and submit the next.
 *
 * The driver's state belongs to whoever holds the baton (`active`): only one thread at a time runs
 * the step, but it need not always be the same one. A micro-batch that comes back while no other is
 * under way is handled by the device thread that finished it, so that a single stream costs no
 * wake-up of another thread at all; on a machine whose cores are all busy a wake-up can take
 * milliseconds. Otherwise, and for new and cancelled requests, the driver's own thread does it. */
#pragma once

#include "pipeline/answers.h"
#include "pipeline/chunks.h"
#include "pipeline/drafter.h"
#include "pipeline/driver.h"
#include "pipeline/memory_watch.h"
#include "pipeline/pipeline.h"
#include "pipeline/pipeline_form.h"
#include "pipeline/schedule.h"
#include "pipeline/sequence.h"
#include "pipeline/slots.h"
#include "pipeline/speculation_train.h"

#include <pthread.h>
#include <stdatomic.h>

/* What a step has added to the statistics. */
struct driver_gain {
    uint32_t n_admitted, n_parked;
    uint64_t prompt_tokens, cached_tokens, generated_tokens, steps, rows;
    uint64_t drafted_tokens, accepted_tokens;
    struct driver_served served;
};

/* What a step is asked to do beside `queue` and `cancelled`: taken out of the driver with those. */
struct driver_wishes {
    bool waits;                 /* stages are back, but what was under way has to end first */
    struct error found;         /* they are back: why they were lost. Code 0: nothing of that */
    bool quiesces;              /* nothing more is to be begun */
    bool closes;                /* nor is anything kept */
    struct driver_seeds *seeds; /* NULL: none */
};

struct driver {
    bool reads_whole;     /* the model: a sequence's prompt goes in one micro-batch */
    bool gives_no_logits; /* the model */
    bool has_axes;        /* likewise: pictures' rows have positions on several axes */
    /* constant after open */
    struct driver_options options;
    uint32_t n_devices;                   /* different ones: as many micro-batches are under way */
    uint32_t stage_devices[LIMIT_STAGES]; /* which of them a stage is on */
    uint32_t n_microbatches; /* one more where several devices read prompts alone; and small ones */
    uint32_t n_small;        /* of them, for guesses that follow others */
    const struct model *model;
    struct pipeline pipeline;
    struct microbatch *microbatches; /* n_microbatches of them */
    struct memory_watch memory;      /* of the devices that compute here */

    /* the baton holder's */
    struct slot_table slots;
    struct answers answers;
    struct sequence *queue, **queue_end; /* without a slot */
    struct microbatch *unused, *unused_small;
    struct cache_operation *operations; /* for the next micro-batch */
    uint32_t n_operations;
    struct pick_setup *setups; /* the same */
    uint32_t n_setups;
    uint32_t n_ahead;           /* of them, micro-batches of guesses alone */
    uint32_t n_in_flight;       /* read also under the lock while nobody is active */
    uint64_t n_sent;            /* micro-batches so far */
    uint64_t n_ended;           /* requests so far */
    struct driver_gain gain;    /* not yet in the statistics */
    struct sequence *cancelled; /* to be ended by this step */
    /* A row of a prompt, measured on the slowest stage; 0: not yet. The baton holder's to change.
     */
    _Atomic uint64_t prompt_row_ns;
    /* Tokens are drafted: a micro-batch has come back through stages that all have stable bits. */
    bool may_draft;
    struct speculation_costs costs;
    struct speculation_pipe pipe; /* n_devices is 0 where there is one */
    /* Likewise, that all stages know checkpoints (checkpoints.h). */
    bool may_keep_states;
    struct chunk_costs chunks;         /* of prompts, where there are several devices */
    struct drafter *drafter;           /* NULL: no model guesses, or not yet */
    struct speculation drafts_of_late; /* of all requests: the model's */
    /* driver_form.h */
    struct pipeline_form form;
    bool form_is_due;
    uint32_t n_unloaded; /* attempts since there were stages */

    bool has_settled;  /* for a successor: nothing is begun any more */
    uint32_t n_cached; /* written before is_quiescent */
    struct cached_slot cached[LIMIT_SEQUENCES];

    /* under the lock */
    bool submits_at_once; /* who submits runs the step; before the first one does */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the driver's own thread has something to do */
    pthread_t thread;
    bool active; /* somebody runs the step */
    bool closing, stopped;
    struct sequence *to_cancel; /* live ones, by cancel_next */
    struct sequence *incoming, **incoming_end;
    struct microbatch *completed, **completed_end;
    struct sequence *live;
    uint64_t last_id;
    uint64_t picture_bytes;      /* of the live ones */
    uint64_t last_number;        /* of the micro-batches that were sent elsewhere */
    struct error lost;           /* why nothing can be sent there any more */
    bool found;                  /* it can again, as soon as what is under way has ended */
    bool has_guesses;            /* of the draft model */
    bool has_room_ahead;         /* driver_set_room_ahead() */
    struct drafter *has_drafter; /* what `drafter` is from the next step on; the owner of both */
    pthread_cond_t draft_taken;  /* that step has begun */
    bool quiesces, is_quiescent; /* driver_quiesce() */
    void (*on_quiescent)(void *arg);
    void *quiescent_arg;
    struct driver_seeds *seeds; /* to be taken over */
    struct driver_stats stats;
};

struct driver_seeds {
    uint32_t n;
    struct cached_slot slots[LIMIT_SEQUENCES];
    int32_t tokens[]; /* theirs */
};

/* ---- step.c: by the baton holder, without the lock ---- */

/* Takes a micro-batch back: calls the handlers, ends what is over. */
void step_complete(struct driver *driver, struct microbatch *microbatch);
/* Ends what was cancelled, gives slots to those who wait, sends micro-batches. */
void step_advance(struct driver *driver, const struct driver_wishes *wishes);

/* The stages are new, and their caches empty: every sequence begins again with its tokens. */
void step_begin_over(struct driver *driver);
/* There are no stages: every request ends with the error. */
void step_end_all(struct driver *driver, const struct error *why);

/* ---- step*.c, for each other ---- */

/* Micro-batches whose requests have all been ended are not computed to their end (step_halt.c). Not
 * where that would empty a slot with a state, unless `closes`: what came before is worth more. */
void step_halt(struct driver *driver, bool closes);
/* A share of one that was halted has come back: its slot goes on from where its rows began. */
void step_settle_halted(struct driver *driver, const struct share *share);
/* The sequence is computed anew from its first token. */
void step_start_over(struct driver *driver, struct sequence *sequence);

/* Rows of prompts that the next micro-batch takes; what one that has come back says about that
 * (step_chunks.c). */
uint32_t step_chunk_rows(const struct driver *driver);
void step_measure(struct driver *driver, const struct microbatch *microbatch);

void step_finish(struct driver *driver, struct sequence *sequence, enum finish_reason reason,
                 const struct error *err);
void step_unqueue(struct driver *driver, const struct sequence *sequence);

void step_push_operation(struct driver *driver, struct cache_operation operation);
bool step_operations_are_full(const struct driver *driver);
/* `slot` begins with `length` tokens of slot `from`, maybe itself; of a checkpoint's, unless that
 * is CHECKPOINT_NONE. */
void step_push_prefix(struct driver *driver, uint32_t slot, uint32_t from, uint32_t length,
                      uint32_t checkpoint);
/* What the prompt takes over ends in no picture's middle. */
void step_round_to_pictures(const struct driver *driver, const struct sequence *sequence,
                            struct slot_choice *choice);
/* Slot and stages forget what is in it. */
void step_empty_slot(struct driver *driver, uint32_t index);

/* Whether the next micro-batch has room for that grammar, too (LIMIT_WIRE_GRAMMARS); NULL: it has.
 * Those of requests that have ended before they were sent are dropped. */
bool step_grammar_fits(struct driver *driver, const struct constraint *constraint);

/* Whether there will probably be cells for the sequence to its end: for its prompt, and as many
 * tokens as answers have had of late. `choice`: which slot's cells it begins with. Always, when no
 * other needs any. */
bool step_cells_admit(struct driver *driver, const struct sequence *sequence,
                      const struct slot_choice *choice);
/* A sequence that is being computed is about to have more whole extents of the prompt than any has
 * yet. */
bool step_cells_is_coming(const struct driver *driver, const struct sequence *sequence,
                          uint32_t reusable, const struct slot_choice *choice);
/* Those that wait for cells go on, the oldest first, as far as there are likely to be enough; false
 * when some still wait. */
bool step_cells_resume(struct driver *driver);
/* Makes room for what is to be computed: what nobody uses is given back, the longest unused first.
 * False: that is not enough, and the youngest sequence has been parked; schedule again. */
bool step_cells_make_room(struct driver *driver, const struct schedule *schedule,
                          const uint32_t *slots);
/* While memory is short: what no sequence uses is given back, by the stages to the system, and
 * computed again if it is asked for; or goes to host memory, while there is some and each stage is
 * on a device with memory of its own. */
void step_cells_give_back(struct driver *driver);

/* What a sequence is given beside its own row: tokens that stand behind its known ones in the
 * slot, as guesses. */
struct step_draft {
    uint32_t n_tokens;
    uint32_t n_match; /* 0: nothing in the text says how it goes on */
    int32_t foreseen; /* by a match in the text that is not drafted of: the token that would have
                         been first; -1: none */
    uint32_t foreseen_match; /* of so many tokens */
    uint64_t took_ns;        /* that the pass waited for it */
    bool is_ahead;           /* there is no row of its own: a train's (step_ahead.c) */
};
/* Of a sequence that has been given a slot. */
void step_draft_begin(const struct driver *driver, struct sequence *sequence);
/* The draft model guesses how the slot's sequence goes on: nothing of it is to be sent. */
bool step_draft_is_awaited(const struct driver *driver, uint32_t slot);
/* For each share of the schedule (step_draft.c). `rows`: of a micro-batch, at most. False: the
 * draft model was asked about some; schedule again. */
bool step_draft(struct driver *driver, const struct schedule *schedule, const uint32_t *slots,
                uint32_t rows, struct step_draft *out);
/* Tokens that may be guessed behind the known ones; `own`: the row that the last of those has or
 * had. */
uint32_t step_draft_most(const struct driver *driver, const struct slot *slot, uint32_t own);
/* Writes guesses to position `at` and behind; fewer where they end an answer. They may be the
 * slot's own tokens, up to what is being written. */
uint32_t step_draft_write(const struct slot *slot, uint32_t at, const int32_t *guesses,
                          uint32_t most);
/* What a guess of that kind takes: 0 unless a model guesses. */
double step_draft_each_ns(const struct driver *driver, uint32_t n_match);
/* Writes what the draft model says behind all that is in the slot, `most` tokens at most, or asks
 * it for n_wanted. How many it wrote. */
uint32_t step_draft_go_on(struct driver *driver, struct slot *slot, uint32_t n_wanted,
                          uint32_t most);
/* What a micro-batch that has come back says about speculation as such. */
void step_draft_learn(struct driver *driver, const struct microbatch *microbatch);
/* What a share of it says about its sequence: before its tokens are handed out, what was guessed
 * wrong is cut off. */
void step_draft_settle(struct driver *driver, struct sequence *sequence,
                       const struct microbatch *microbatch, struct share *share);

/* ---- driver_pictures.c: for driver.c ---- */

/* ERROR_UNSUPPORTED: the model takes no pictures; ERROR_INVALID: it does not take these. */
enum error_code driver_check_pictures(const struct driver *driver, const struct request *request,
                                      struct error *err);
uint64_t driver_picture_bytes(const struct request *request);

/* ---- step_ahead.c: guesses that follow each other through a pipeline ---- */

/* One stream has several devices to itself: drafts may be followed by others. */
bool step_ahead_is_possible(const struct driver *driver);
/* One stream has the only device to itself, and a draft model is on another machine. */
bool step_beside_is_possible(const struct driver *driver);
/* Asks that for what follows the micro-batch under way. */
void step_ask_beside(struct driver *driver);
/* How many tokens to draft beside the slot's own row, and notes where the text goes on; `from`: the
 * index of the token that followed there. */
uint32_t step_ahead_begin(const struct driver *driver, struct slot *slot, uint32_t from,
                          uint32_t n_match, uint32_t most);
/* Fills `microbatch` with guesses behind what is under way; false: nothing is guessed. */
bool step_ahead_form(struct driver *driver, struct microbatch *microbatch);
/* A row for each token that is known and for each guess. */
void step_add_share(struct driver *driver, struct microbatch *microbatch, uint32_t index,
                    const struct step_draft *draft, uint32_t n_rows);
/* What was noted for the next micro-batch goes with this one. */
void step_add_operations(struct driver *driver, struct microbatch *microbatch);

/* ---- driver.c: for driver_open.c ---- */

extern const struct pipeline_owner driver_as_owner;
void *driver_own_thread(void *driver); /* until driver_stop() */
void driver_on_guesses(void *driver);  /* drafter.h */

/* ---- driver.c: for step.c ---- */

/* Takes the sequence off the live list and into the statistics. */
void driver_retire(struct driver *driver, struct sequence *sequence);
/* The micro-batch, which is under way, ends at the next safe point. */
void driver_halt(struct driver *driver, struct microbatch *microbatch);
