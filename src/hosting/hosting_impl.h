/* What hosting's files share (hosting.h). */
#pragma once

#include "base/limits.h"
#include "hosting/handover.h"
#include "hosting/hosting.h"
#include "pipeline/children.h"
#include "pipeline/runner.h"

#include <pthread.h>

/* WAITING: some of its stages were not asked for yet, or its devices are not free; nothing is
 * loaded. HANDING: it serves no more; the next placement takes over what is in its caches. LEAVING:
 * it serves no more, but who has its driver was not told yet. GONE: only shown as ready, for its
 * successor. */
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
    uint64_t bytes;
};

/* The stages of one placement on this node. */
struct part {
    uv_work_t work; /* first */
    struct part *next;
    struct hosting *hosting;
    char *instance;
    uint64_t key; /* the instance's, on the wire */
    uint64_t epoch;
    Cluster__Model *model_record; /* a copy */
    struct driver_options options;
    enum part_state state;
    bool unwanted;                 /* to be closed as soon as it is loaded */
    bool stopped;                  /* LEAVING: its driver's requests have ended */
    bool told;                     /* LEAVING: `changed` has been raised since */
    uint64_t adopts;               /* the epoch of which it takes over stages; 0: none */
    uint64_t adopter;              /* the epoch that takes over from this; 0: none */
    bool is_current, others_ready; /* as the state says */
    bool attached;

    const struct model *model; /* held while it is not NULL */
    struct driver *driver;
    struct runner *runner;
    struct far far;
    enum error_code code; /* of the job */
    struct error problem; /* FAILED; or why it is lost */

    bool has_served;            /* it was the current placement once */
    struct handover_part cache; /* what the next two know of it: part_sync() */
    struct cache_give give;
    struct cache_take take;
    uint32_t n_cache_jobs; /* on devices' threads: it is not closed meanwhile */

    bool lost; /* the driver cannot serve */
    uint64_t pause_ms, retry_ms, found_ms;
    bool owes_notice; /* the runner could not send to the driver */

    _Atomic bool cancels; /* its lanes need not be loaded any more */

    uint32_t n_stages;
    struct stage_plan plan[LIMIT_STAGES];
    struct part_stage stages[LIMIT_STAGES]; /* all of the placement */
};

/* Weights of an old part that stay for a new one on the same device. They are given back on the
 * pool. */
struct part_pin {
    uv_work_t work; /* first */
    struct hosting *hosting;
    struct part_pin *next;
    const struct model *model; /* held, too: the weights may lie in its file */
    Cluster__Model *model_record;
    char *instance;
    uint64_t epoch; /* of the new one */
    uint32_t n, n_lanes;
    struct stage_pin *stages[LIMIT_STAGES * 2];
    struct lane_pin *lanes[LIMIT_STAGES]; /* in devices' processes */
};

struct said { /* the last report of a stage */
    uint64_t key, at_ms;
    uint32_t state;
};

struct hosting {
    uv_async_t wake; /* first */
    uv_timer_t timer;
    uv_async_t cache_wake; /* a cache's rows were read or written, a driver is quiescent */
    pthread_mutex_t cache_lock;
    struct cache_job *cache_done; /* under it */
    uint32_t n_handles;
    uint8_t node_id[NODE_ID_BYTES]; /* its own */
    struct hosting_options options;
    struct part *parts;
    struct part_pin *pins;
    uint32_t n_jobs, n_leaving_pins;
    bool closing, handles_closing, stepping, again, is_changed, is_pumping;
    uint64_t wall_ms;
    struct said said[256];
    uint32_t n_said;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- hosting.c ---- */
struct part *hosting_find(const struct hosting *hosting, const char *instance, uint64_t epoch);
void hosting_tell(struct hosting *hosting);  /* raises `changed` in the loop's next turn, then goes
                                                on with the jobs */
void hosting_sweep(struct hosting *hosting); /* frees the parts of which nothing is left */
void hosting_watch(struct hosting *hosting); /* the timer runs while something is lost */

const Cluster__Placement *hosting_placement(const struct state *state, const char *instance,
                                            uint64_t epoch);

/* ---- hosting_view.c ---- */
/* Fills what it knows of the view; returns the stages, to be freed. NULL: no memory. */
struct worker_stage *hosting_view(const struct hosting *hosting, struct worker_view *out);

/* ---- hosting_part.c ---- */
uint64_t part_key(const char *instance); /* its number on the wire */
struct part *part_new(struct hosting *hosting, const Cluster__Instance *instance,
                      const Cluster__Placement *placement, const Cluster__Model *model);
Cluster__Model *part_copy_model(const Cluster__Model *model); /* NULL: no memory */
void part_free(struct part *part);                            /* holds nothing any more */
bool part_is_far(const struct part *part);
bool part_drives(const struct part *part); /* stage 0 is here */
/* It should go: begins that, in whatever state it is. */
void part_retire(struct part *part, uint64_t adopter);
enum worker_stage_state part_worker_state(const struct part *part);

/* It has failed for good: gives back what it holds, then is FAILED. */
void part_give_up(struct part *part, const struct error *why);

/* ---- hosting_pin.c: weights that stay where they are ---- */
void part_pin_for(struct part *part, const Cluster__Placement *next); /* before it is retired */
void hosting_drop_pins(struct hosting *hosting,
                       const struct state *state); /* those whose part has come, or will not;
                                                       state NULL: all */

/* ---- hosting_cache.c: caches that go from one placement to the next (handover.h) ---- */
struct cache_job {
    struct device_job job; /* first */
    struct lane_job lane_job;
    struct cache_job *next;
    struct part *part;
    struct pipeline *pipeline; /* where the stage is in this process */
    struct lane *lane;         /* where it is not */
    struct handover_effect effect;
    enum error_code code;
    struct error error;
};
struct pipeline *part_pipeline(struct part *part);
void part_caches_init(struct part *part);
void part_caches_clear(struct part *part);
void part_take_over_from(struct part *part, const Cluster__Placement *current);
void part_expect(struct part *part, const Cluster__Placement *next); /* that may follow it */
/* False: it has nothing to give; retire it. */
bool part_hand_over(struct part *part, const Cluster__Placement *next);
void give_fail(struct part *part, const char *why);
void take_fail(struct part *part, const char *why);
void take_end(struct part *part, const char *why); /* NULL: nothing is wrong */
void cache_look(struct hosting *hosting);          /* by and by, and after whatever has happened */
void cache_pump(struct hosting *hosting);          /* carries out what there is to be done */
/* To a node, also this one. */
void cache_tell(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                struct buffer *message);
void cache_open(struct hosting *hosting);

/* ---- hosting_load.c ---- */
void hosting_jobs(struct hosting *hosting); /* begins what can begin: closing first, then loading */

/* ---- hosting_far.c ---- */
void part_send(void *arg, uint32_t stage, struct buffer *message); /* far.send */
void part_lanes_changed(void *arg);                                /* far.lanes.changed */
void hosting_mind(struct hosting *hosting); /* what processes have died, and which were given up */
enum error_code hosting_receive(void *arg, const void *bytes, size_t size, struct error *err);
enum error_code part_attach(struct part *part, struct error *err);
void part_detach(struct part *part);
void part_lose(struct part *part, const struct error *why);
void part_notify_driver(struct part *part); /* which is on another node: messages were lost */
void hosting_mend(
    struct hosting *hosting); /* drivers that can serve again, notices that are owed */
