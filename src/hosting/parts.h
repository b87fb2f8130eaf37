/* What a node has of placements, from the wish to load it until nothing of it is left: a step
 * machine over worker_step() (cluster/worker.h). It knows no clock, thread, file or device: it is
 * fed with the state, with what has become of jobs, and with time; what is to be done comes out of
 * parts_next(). hosting.c carries it out with devices, the simulator with made-up ones.
 *
 *     parts_step(&parts, state, now_ms, wall_ms);
 *     while (parts_next(&parts, &effect))
 *         carry it out;              // `state` must stay as it is until this is false, but for
 *                                    // what PARTS_PROPOSE may bring: those come last of the step
 *
 * A part is all that a placement has on this node. Its life:
 *
 *     WAITING -> LOADING -> READY -> (HANDING ->) LEAVING -> CLOSING -> GONE
 *                   \-> FAILED                      \-> LEAVING (stopped) -> CLOSING
 *
 *   WAITING  some of its stages were not asked for yet, or their devices are not free
 *   HANDING  it serves no more; the next placement takes over its caches (handover.h)
 *   LEAVING  it serves no more, but who has its driver was not told yet
 *   GONE     nothing is left; it is shown as ready as long as its successor is not
 *
 * Invariants, asserted after each step
 *  1. A part is loaded only when all of its stages were asked for and nothing that goes is left on
 *     their devices: the memory of both is never needed at once.
 *  2. At most `n_jobs_max` parts are being opened or closed.
 *  3. A part is closed only after everybody who may use its driver was told, and nothing of it is
 *     under way (is_busy).
 *  4. What failed stays FAILED until a new epoch: worker_step() reports it, the master decides. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "cluster/worker.h"
#include "trust/identity.h"

enum {
    PARTS_RANGES_MAX = 2 * LIMIT_STAGES, /* two placements' stages overlap no more often */
    PARTS_JOBS = 2,                      /* opened or closed at a time */
    PARTS_REPEAT_MS = 11000, /* a report that the state does not show is proposed again: agreement
                                gives up after 10 s */
};

enum part_state {
    PART_WAITING,
    PART_LOADING,
    PART_READY,
    PART_FAILED,
    PART_HANDING,
    PART_LEAVING,
    PART_CLOSING,
    PART_GONE
};

struct part_stage {
    uint8_t node_id[NODE_ID_BYTES];
    bool here, asked;
    char *device;
    uint32_t first_layer, n_layers;
    uint64_t weights_max; /* bytes that its weights may take; 0: all of them */
    uint64_t bytes;       /* the owner's */
    uint32_t memory_step; /* the owner's: of the ladder where memory is short */
};

/* To be embedded first in what its owner has of a part. */
struct part_life {
    struct part_life *next;
    char *instance, *model;
    uint64_t epoch;
    enum part_state state;
    bool unwanted;    /* LOADING: to be closed as soon as it is loaded */
    bool stopped;     /* LEAVING: its driver's requests have ended */
    bool told;        /* LEAVING: PARTS_CHANGED has been carried out since */
    uint64_t adopts;  /* the epoch of which it takes over stages; 0: none */
    uint64_t adopter; /* the epoch that takes over from this; 0: none */
    bool is_current, has_served, is_placed, others_ready; /* as the state says */
    bool has_driver;      /* the owner's, while it is open: it is stopped before it is closed */
    bool is_busy;         /* the owner's: something of it is under way, it is not closed yet */
    struct error problem; /* code ERROR_NONE: none */
    uint32_t n_stages;
    struct part_stage stages[LIMIT_STAGES];        /* all of the placement */
    bool is_tried, cancels, leaves, closes, fails; /* effects to come */
};

enum parts_effect_type {
    PARTS_FETCH = 1, /* the weights of `action`, of `model` */
    PARTS_WANTED,    /* make one of `placement` of `instance`: parts_add(); without memory, nothing.
                        `from`: it takes over that placement's caches; or NULL */
    PARTS_PIN,       /* layers of `life` stay on their devices after it: `pin` says which, and is to
                        keep what holds them there */
    PARTS_UNPIN,     /* nobody waits for those of `pin` any more; then parts_pin_free() */
    PARTS_UNWANTED,  /* nobody wants `life` any more. `from`: which placement follows and serves, or
                        NULL. Either parts_hand_over() or parts_retire() */
    PARTS_PROPOSE,   /* `action`'s event */
    PARTS_OPEN,      /* parts_opening() and later parts_opened(); or parts_fail(); or nothing: its
                        file is not open yet, to be asked again */
    PARTS_CANCEL,    /* `life` is being opened, and not wanted any more */
    PARTS_LEAVE,     /* it serves no more: `life->problem`'s text, or "it is being unloaded" */
    PARTS_STOP,      /* its driver; then parts_stopped() */
    PARTS_CLOSE,     /* then parts_closed() */
    PARTS_FAILED,    /* nothing of it is there: `life->problem` says why */
    PARTS_FREE,      /* it is forgotten; part_life_deinit(), then the owner's */
    PARTS_CHANGED,   /* tell who uses drivers, in a while; then parts_told() */
};

struct parts_range { /* layers of a stage, counted from the model's first */
    uint32_t stage, first_layer, n_layers;
};

/* Weights that stay where they are from one placement to the next. */
struct parts_pin {
    struct parts_pin *next;
    char *instance;
    uint64_t epoch; /* of the placement that follows */
    uint32_t n_ranges;
    struct parts_range ranges[PARTS_RANGES_MAX]; /* of the part that goes */
    void *held;                                  /* the owner's; NULL: it could not hold them */
};

struct parts_effect {
    enum parts_effect_type type;
    struct part_life *life;
    struct parts_pin *pin;
    const struct worker_action *action;
    const Cluster__Instance *instance;
    const Cluster__Model *model;
    const Cluster__Placement *placement, *from;
};

struct parts_said { /* the last report of a stage */
    uint64_t key, at_ms;
    uint32_t state;
};

struct parts_options {
    const char *node;               /* own id, as the state has it; must stay */
    uint8_t node_id[NODE_ID_BYTES]; /* the same */
    bool (*read_id)(const char *node, uint8_t out[NODE_ID_BYTES]); /* false: no id of a node */
    uint32_t n_jobs_max;
    enum worker_weights (*weights)(void *self, const Cluster__Model *model,
                                   struct worker_precision precision, uint32_t first_layer,
                                   uint32_t n_layers);
    const char *(*weights_problem)(void *self, const Cluster__Model *model); /* may be NULL */
    void *self;
};

struct parts {
    struct parts_options options;
    struct part_life *first, *freed;
    struct parts_pin *pins, *unpinned; /* held; to be let go */
    uint32_t n_jobs;
    bool closing, is_changed, looks_for_jobs, was_wanted;
    const struct state *state; /* while actions are carried out */
    struct worker_actions actions;
    uint32_t at;
    bool reports;
    uint64_t now_ms;
    struct parts_said said[256];
    uint32_t n_said;
};

void parts_init(struct parts *parts, const struct parts_options *options);
void parts_deinit(struct parts *parts); /* after its lives; NULL is fine */

/* After every change of the state, of weights and of what is here, and every second. False: no
 * memory now; the next step comes. */
bool parts_step(struct parts *parts, const struct state *state, uint64_t now_ms, uint64_t wall_ms);
bool parts_next(struct parts *parts, struct parts_effect *out);
void parts_jobs(struct parts *parts);  /* whether jobs can begin is looked at again */
void parts_told(struct parts *parts);  /* PARTS_CHANGED is carried out now */
void parts_close(struct parts *parts); /* all go, and none comes */

/* ---- answers ---- */
/* For PARTS_WANTED: fills the zeroed life and keeps it. False: no memory; it can be freed. */
bool parts_add(struct parts *parts, struct part_life *life, const struct parts_effect *wanted);
void parts_hand_over(struct parts *parts, struct part_life *life);
void parts_retire(struct parts *parts, struct part_life *life, uint64_t adopter);
void parts_opening(struct parts *parts, struct part_life *life);
/* `is_open` and `why`: it cannot be used: it is closed, then it has failed. */
void parts_opened(struct parts *parts, struct part_life *life, bool is_open,
                  const struct error *why);
void parts_stopped(struct parts *parts, struct part_life *life);
void parts_closed(struct parts *parts, struct part_life *life);
void parts_fail(struct parts *parts, struct part_life *life, const struct error *why); /* WAITING */
/* It has failed for good: it is given back, then it is FAILED. */
void parts_give_up(struct parts *parts, struct part_life *life, const struct error *why);

/* ---- questions ---- */
struct part_life *parts_find(const struct parts *parts, const char *instance, uint64_t epoch);
enum worker_stage_state part_worker_state(const struct part_life *life);
bool part_is_seen(const struct part_life *life, uint32_t stage); /* by the worker */
const Cluster__Placement *parts_placement(const struct state *state, const char *instance,
                                          uint64_t epoch);
void part_life_deinit(struct part_life *life);
void parts_pin_free(struct parts_pin *pin); /* `held` is NULL by now */
