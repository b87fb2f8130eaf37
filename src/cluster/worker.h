/* What a node does next, given what is agreed on and what it has: fetches weights, loads and
 * unloads stages, says how far it is.
 *
 * The comparison is made anew in every step, so no order is ever lost: a node that restarts has
 * nothing loaded, sees what it should have, and goes on. A stage belongs to an epoch. A new
 * placement is loaded beside the old one, which serves until all of the new one is ready. Where it
 * replaces one that is of no use any more, or that has to make room (Placement.replaces), a stage
 * of the same layers of the same model on the same device takes over what the old one has loaded
 * (ADOPT): one load, two entries of the view; unloading one leaves the other. What cannot be taken
 * over is unloaded at once then: the new stages need its memory.
 *
 * Of one device, what nobody wants any more is unloaded before something new is loaded. What failed
 * stays failed until a new epoch. Reports are events for the log, made only where the state differs
 * from what is.
 *
 * Pure. The texts of actions are the state's or the caller's. */
#pragma once

#include "base/buffer.h"
#include "cluster/state.h"

enum worker_stage_state { WORKER_LOADING, WORKER_READY, WORKER_FAILED, WORKER_UNLOADING };

/* A stage that this node has, or is about to have. */
struct worker_stage {
    const char *instance, *model, *device;
    uint64_t epoch;
    uint32_t stage, first_layer, n_layers;
    enum worker_stage_state state;
    const char *problem;      /* FAILED: why */
    uint32_t memory_step;     /* READY: of the ladder where memory is short … */
    const char *memory_given; /* … and what that gives up; NULL: not known */
};

enum worker_weights { WORKER_HAS_ALL, WORKER_LACKS, WORKER_FETCHES, WORKER_CANNOT_FETCH };

/* The type that weights are in for as long as the instance is, so that a file may hold them so. */
struct worker_precision {
    uint32_t type;    /* enum ggml_type; 0: as stored */
    bool is_streamed; /* the file has to: layers are read from it for every batch */
};

struct worker_range {
    uint32_t first_layer, n_layers;
};

struct worker_view {
    const struct state *state;
    const char *node;
    uint64_t now_ms, wall_ms;
    const struct worker_stage *stages;
    uint32_t n_stages;
    /* Whether the weights of these layers are on this node's disk, so that they can be loaded. */
    enum worker_weights (*weights)(void *self, const Cluster__Model *model,
                                   struct worker_precision precision, uint32_t first_layer,
                                   uint32_t n_layers);
    /* Why they cannot be fetched, for people; NULL, or NULL answered: not known. */
    const char *(*weights_problem)(void *self, const Cluster__Model *model);
    void *self;
};

enum worker_action_type {
    WORKER_FETCH = 1,
    WORKER_LOAD,
    WORKER_ADOPT,
    WORKER_UNLOAD,
    WORKER_REPORT,
    WORKER_REPORT_MEMORY
};

struct worker_action {
    enum worker_action_type type;
    const char *instance, *model, *device;
    uint64_t epoch;
    uint32_t stage, first_layer, n_layers;
    const Cluster__Demand *demand;     /* LOAD, ADOPT */
    struct worker_precision precision; /* FETCH */
    uint64_t from_epoch;               /* ADOPT: whose */
    uint32_t from_stage;
    Cluster__StageState state; /* REPORT */
    uint32_t memory_step;      /* REPORT_MEMORY */
    struct buffer event;       /* REPORT, REPORT_MEMORY: to be submitted */
};

/* Where weights may become smaller still for a while, that is to be made of the original. */
static inline struct worker_precision worker_precision_of(const Cluster__Demand *demand,
                                                          bool is_streamed)
{
    return (struct worker_precision){demand->precision_allowed ? 0 : demand->precision,
                                     is_streamed};
}

static inline bool worker_action_is_report(const struct worker_action *action)
{
    return action->type == WORKER_REPORT || action->type == WORKER_REPORT_MEMORY;
}

enum { WORKER_ACTIONS = 64 }; /* of one step; more wait for the next */
struct worker_actions {
    uint32_t n;
    struct worker_action list[WORKER_ACTIONS];
};
void worker_actions_clear(struct worker_actions *actions);

/* ERROR_NO_MEMORY: what there is of actions is good. */
enum error_code worker_step(const struct worker_view *view, struct worker_actions *out,
                            struct error *err);
