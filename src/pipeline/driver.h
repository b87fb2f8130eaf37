/* The driver: requests in, tokens out, over all stages of a model.
 *
 * It owns the sequences. Each step it forms a micro-batch (decode rows of running sequences
 * first, then prompt chunks of those still in prefill, fairly), sends it down the stages,
 * each on its device's own thread, samples from the last stage's logits and hands the
 * tokens to the requests. Several micro-batches are in flight when there are several stages.
 *
 * Prefix reuse: a new request takes the free slot whose cached tokens share the longest
 * prefix with its prompt, or copies that prefix from a busy slot when that is longer. Slots that
 * share cells share those of the prefix, too.
 *
 * Replay: what a request would generate depends only on its prompt and parameters, so
 * submitting prompt + generated so far continues with the same tokens.
 *
 * Threading: every function may be called from any thread, driver_submit() and driver_cancel() from
 * callbacks too. Callbacks run one at a time on a thread of the driver or of a device, or on that
 * of driver_receive(), not always the same one; they must not block and must not call
 * driver_close(). After `done` has been called, or driver_cancel() has returned and `done` with
 * FINISH_CANCELLED has arrived, the request is gone. */
#pragma once

#include "engine/stage.h"
#include "model/rope_stretch.h"
#include "request/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;
struct driver;
struct far;
struct lane_source;
struct generator;
struct model;

enum speculate { /* how tokens are guessed that the stages then check, several at once */
                 SPECULATE_LOOKUP, /* as the text went on before (lookup.h), as much as pays */
                 SPECULATE_OFF,
                 SPECULATE_ALWAYS, /* whether it pays or not: for tests */
                 SPECULATE_MODES,
};
/* "lookup" or "off", as people say it. NULL: none of their business. */
const char *speculate_name(enum speculate speculate);
bool speculate_find(const char *name, enum speculate *out);

struct driver_draft;

struct stage_plan {        /* one stage: which layers on which device (plan.h) */
    struct device *device; /* of this process; NULL: in a lane, or far (driver_open_far) */
    uint32_t n_layers;
    const char *lane;     /* in the process of the device with this id (children.h); NULL: far */
    uint64_t weights_max; /* as of the driver's options, of this stage alone; 0: those' */
};

struct driver_options {
    uint32_t n_slots;    /* sequences at once; 0: 1 */
    uint32_t context;    /* tokens per sequence; 0: the model's own, at most 4096 */
    uint32_t cells;      /* tokens of all sequences together, which share them as they need them
                            (step_cells.c); rounded up to 256. 0: each slot has the whole context to
                            itself. Every stage's attention must be Medley's own (engine/stage.h) */
    uint32_t batch_rows; /* rows of a micro-batch; 0: 512. Where the model reads a text at once, at
                            least the context, which then is 2048 unless said */
    uint32_t queue_max;  /* requests waiting for a slot; 0: LIMIT_QUEUED_REQUESTS */
    enum kv_type kv_type;
    bool kv_is_chosen; /* by the owner: no ladder changes it */
    enum flash_mode flash;
    bool no_repack;
    bool no_prefix_reuse;
    uint32_t checkpoints; /* of states, in host memory (checkpoints.h); 0: as many as are usual */
    bool no_checkpoints;
    enum speculate speculate;
    const struct driver_draft *draft; /* a smaller model that guesses where lookup does not; NULL:
                                         none. Read while the driver is opened */
    uint64_t weights_max;  /* bytes of a stage's weights in its device's memory; 0: all. The rest is
                              streamed from the file (engine/stage.h) */
    bool weights_may_grow; /* that limit, and those of stages, are for want of memory: once there is
                              room, all weights go there */
    int precision; /* enum ggml_type of the weights where that is smaller than the file's; 0:
                      as stored (engine/stage.h) */
    int precision_allowed;    /* another type that is smaller still, for which the owner has given
                                 leave when memory is short or a device is hot; 0: none */
    struct rope_stretch rope; /* the model's; a device's process has to do it again */
    struct device *fallback; /* where stages go that find no memory on their own devices: the CPU's;
                                NULL: nowhere */
    const _Atomic bool *stop; /* once it is set, opening ends with ERROR_CANCELLED after the
                                 tensors under way (engine/stage.h). NULL: never; outlives the
                                 driver */
};

struct driver_draft {
    const struct model *model; /* that can (model/draft_model.h); outlives the driver. Unless: */
    /* Who guesses elsewhere; then there is nothing to load, and what is said of stages and cells
     * does not count. Outlives the driver. Call driver_mind_draft() often: it ends the waiting for
     * an answer that does not come. NULL: nobody */
    struct generator *elsewhere;
    bool is_apart; /* on machines where the model has no stages: it may guess while they compute */
    const struct stage_plan *stages;
    uint32_t n_stages;
    uint32_t context; /* tokens of each sequence; 0: as the driver. Behind them it does not guess */
    uint32_t cells;   /* that its sequences share, as driver_options.cells; 0: each has its own */
    double share; /* of the model's weights: what a token costs before that is measured; 0: 1/8 */
    /* For stages whose plan names a lane; driver_mind_draft() when it has `changed`. NULL: none
     * does. Copied. */
    const struct lane_source *lanes;
    /* For tests and measurements: what to take for the token at a position instead of that which
     * the model guesses, and for how probable that was to it. NULL: that. On a thread of the
     * model's. */
    int32_t (*instead)(void *arg, uint32_t position, int32_t guess, double *probability);
    void *arg;
};

/* With the defaults in the place of zeros. ERROR_INVALID: beyond a limit. */
enum error_code driver_options_fill(const struct driver_options *given, const struct model *model,
                                    struct driver_options *out, struct error *err);
/* Whether somebody may ask for so long a context: not beyond what the model was trained for, or
 * reaches by its rotations. ERROR_INVALID says what to do. */
enum error_code driver_check_context(const struct model *model, uint32_t context,
                                     struct error *err);

/* Loads the model onto the stages, concurrently where devices differ. The model must outlive the
 * driver. */
enum error_code driver_open(const struct model *model, const struct stage_plan *stages,
                            uint32_t n_stages, const struct driver_options *options,
                            struct driver **out, struct error *err);

/* The same where some stages are in the processes of this machine's devices, or on other machines,
 * in runners (runner.h) that were opened with the same stages and options; `far` (far.h) reaches
 * them. What it points to must outlive the driver. */
enum error_code driver_open_far(const struct model *model, const struct stage_plan *stages,
                                uint32_t n_stages, const struct driver_options *options,
                                const struct far *far, struct driver **out, struct error *err);

/* A draft model for a driver that is open and has none: loads it, and guesses from then on.
 * `options.draft` does the same while a driver is opened. Not beside driver_stop() or
 * driver_close(). */
enum error_code driver_add_draft(struct driver *driver, const struct driver_draft *draft,
                                 struct error *err);
/* It guesses no more, and is closed; another may be added. Not beside driver_add_draft(),
 * driver_stop() or driver_close(). Without one nothing happens. */
void driver_drop_draft(struct driver *driver);
/* Something of it was lost in a lane, or is there again (far.h); or it is elsewhere and may not
 * answer. Without one nothing happens. One thread at a time. */
void driver_mind_draft(struct driver *driver);
uint64_t driver_draft_bytes(struct driver *driver); /* of its stages here; 0: there is none */

/* A message from another machine, which begins at a multiple of 8 bytes; also one for a stage in a
 * lane. ERROR_INVALID: it is wrong, and its sender not to be trusted; if it belonged to a
 * micro-batch, the requests of that have ended with an error. ERROR_BUSY: it was lost on the way to
 * a lane, which pipeline_take_loss() says. */
enum error_code driver_receive(struct driver *driver, const void *bytes, size_t size,
                               struct error *err);

/* The stages elsewhere cannot be reached any more: the requests that need them end with this error,
 * now and from now on. */
void driver_lost(struct driver *driver, const struct error *why);

/* Whether every stage elsewhere has room for more micro-batches of guesses than there are devices
 * (settings.h, n_small): runners of an earlier version have not, and would lose them. Not, until it
 * is said, where any is on another machine. */
void driver_set_room_ahead(struct driver *driver, bool has_room);

/* They can be reached again. Nothing is believed of what they still hold: requests that are under
 * way end with the error of driver_lost(), those that wait and those that come run. */
void driver_found(struct driver *driver);

/* The last thing that a driver does when another takes over from it: nothing more is begun, and
 * when what is under way has come back (or was lost) every request ends with FINISH_CANCELLED; then
 * `quiescent` is called, once, on a thread of the driver's. driver_submit() refuses from now on.
 * From then on the slots stand still. */
void driver_quiesce(struct driver *driver, void (*quiescent)(void *arg), void *arg);

struct cached_slot {
    uint32_t slot;
    uint32_t n_tokens; /* in the cache, on every stage */
    const int32_t *tokens;
    uint64_t cache_key; /* request.h */
};
/* Once it is quiescent: the slots that were in use, [LIMIT_SEQUENCES]; good until driver_close().
 */
bool driver_is_quiescent(struct driver *driver);
uint32_t driver_cached_slots(struct driver *driver, struct cached_slot *out);
uint64_t
driver_prompt_row_ns(struct driver *driver); /* the same: of a prompt, measured; 0: not yet */

/* What the caches of a driver that has had no request yet hold on every stage, each within its
 * options; n_tokens of 0: something that nobody knows. Requests that begin so need not compute it.
 * Copied; ERROR_NO_MEMORY. */
enum error_code driver_seed(struct driver *driver, const struct cached_slot *slots, uint32_t n,
                            struct error *err);

struct pipeline *
driver_pipeline(struct driver *driver); /* pipeline.h; its stages are their devices' threads' */

/* Cancels what is running and waits for the stages; from then on driver_submit() refuses. All else
 * may still be called until driver_close(). Stages elsewhere must still answer, or driver_lost()
 * have been called. Once; optional. */
void driver_stop(struct driver *driver);

/* driver_stop() where it was not called, then frees. */
void driver_close(struct driver *driver);

const struct driver_options *
driver_options(const struct driver *driver); /* with the defaults filled in */
const struct stage *driver_stage(const struct driver *driver,
                                 uint32_t index); /* only its constant facts may be read */
uint64_t driver_stage_busy_ns(const struct driver *driver,
                              uint32_t index); /* time it has computed since it was opened */

/* Queues a request. ERROR_INVALID: it can never run (prompt longer than the context: says both
 * numbers; a token outside the vocabulary …). ERROR_BUSY: the queue is full. */
enum error_code driver_submit(struct driver *driver, const struct request *request, uint64_t *id,
                              struct error *err);

/* Asks that a request end; its `done` will come with FINISH_CANCELLED unless it has ended before.
 * Unknown ids are ignored. It does not wait for micro-batches that are under way: those end, their
 * rows stay in the cache for who asks the same next, and no other is sent for it. */
void driver_cancel(struct driver *driver, uint64_t id);

/* A device of its stages gets hot, or no longer does: while any of them is, weights are of the type
 * that options.precision_allowed says, from the next micro-batch on. Said once for each change; a
 * device that has no stage of it counts for nothing. */
void driver_ask_lower(struct driver *driver, const struct device *device, bool lower);

struct driver_stats driver_stats(const struct driver *driver);

struct memory_step;
void driver_memory_step(struct driver *driver, struct memory_step *out); /* memory_ladder.h */
