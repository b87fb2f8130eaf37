/* What hosting's files share (hosting.h). */
#pragma once

#include "base/limits.h"
#include "hosting/handover.h"
#include "hosting/hosting.h"
#include "hosting/parts.h"
#include "hosting/reach.h"
#include "pipeline/children.h"
#include "pipeline/runner.h"

#include <pthread.h>

/* The draft model of a part that drives (hosting_draft.c). What is lost of it costs speed alone, so
 * nothing waits for it. */
struct part_draft {
    uv_work_t work;
    char *name; /* NULL: none is wanted */
    enum part_draft_state {
        DRAFT_NONE,
        DRAFT_OPENING,
        DRAFT_OPEN,
        DRAFT_CLOSING,
        DRAFT_FAILED
    } state;
    struct generator *generator;  /* of the instance that guesses; NULL: it is opened here */
    bool is_apart;                /* that is on other machines */
    bool says_problem;            /* a line of the log has said why it is not there yet */
    Cluster__Model *model_record; /* a copy … */
    const struct model *model;    /* … of which this is held, unless it is NULL */
    struct hosting_file file;
    char device[CLUSTER_ID_MAX];
    double share;   /* of the model's bytes */
    uint64_t bytes; /* that it has added to those of the first stage */
    struct stage_plan plan;
    struct lane_source lanes;
    _Atomic bool cancels;
    enum error_code code; /* of the job */
    struct error problem;
};

/* The stages of one placement on this node. */
struct part {
    struct part_life life; /* first */
    uv_work_t work;
    struct hosting *hosting;
    uint64_t key;                 /* the instance's, on the wire */
    Cluster__Model *model_record; /* a copy */
    struct driver_options options;
    uint32_t n_whole; /* slots of a placement of the same demand that shares no cells */
    bool attached;

    const struct model *model; /* held while it is not NULL */
    struct hosting_file file;  /* which one it is */
    struct model *stretched;   /* of it, by options.rope; NULL: as its file says */
    struct driver *driver;
    struct runner *runner;
    struct far far;
    enum error_code code; /* of the job */
    struct error problem; /* of the job; later why it is lost */

    struct handover_part cache; /* what the next two know of it: part_sync() */
    struct cache_give give;
    struct cache_take take;
    uint32_t n_cache_jobs; /* on devices' threads: it is not closed meanwhile */

    struct reach reach;
    uint64_t memory_ms[LIMIT_STAGES]; /* when the step of a stage here has changed; 0: never */

    struct part_draft draft;

    _Atomic bool cancels; /* its lanes need not be loaded any more */

    struct stage_plan plan[LIMIT_STAGES];
};

/* Weights of an old part that stay for a new one on the same device. They are given back on the
 * pool. */
struct part_pin {
    uv_work_t work; /* first */
    struct hosting *hosting;
    const struct model *model; /* held, too: the weights may lie in its file */
    struct hosting_file file;
    Cluster__Model *model_record;
    uint32_t n, n_lanes;
    struct stage_pin *stages[LIMIT_STAGES * 2];
    struct lane_pin *lanes[LIMIT_STAGES]; /* in devices' processes */
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
    struct parts parts;
    uint32_t n_leaving_pins;
    bool handles_closing, stepping, again, is_changed, is_pumping, is_carrying_out;
    uint64_t wall_ms;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- hosting.c ---- */
void hosting_tell(struct hosting *hosting); /* raises `changed` in the loop's next turn, then goes
                                               on with the jobs */
void hosting_pump(struct hosting *hosting); /* carries out what its parts want (parts.h) */
static inline struct part *hosting_first(const struct hosting *hosting)
{
    return (struct part *)hosting->parts.first;
}
static inline struct part *part_next(const struct part *part)
{
    return (struct part *)part->life.next;
}
void hosting_watch(struct hosting *hosting); /* the timer runs while something is lost */

/* ---- hosting_part.c ---- */
uint64_t part_key(const char *instance); /* its number on the wire */
void part_new(struct hosting *hosting, const struct parts_effect *wanted); /* PARTS_WANTED */
Cluster__Model *part_copy_model(const Cluster__Model *model);              /* NULL: no memory */
void part_free(struct part *part);         /* holds nothing any more */
bool part_drives(const struct part *part); /* stage 0 is here */
void part_note_busy(struct part *part);    /* whether jobs of it are under way */
/* The ladders of its stages, of which each is told once a second at most. True: one is news. */
bool part_note_memory(struct part *part, uint64_t now_ms);
void part_leave(struct part *part); /* PARTS_LEAVE */

/* It has failed for good: gives back what it holds, then is FAILED. */
void part_give_up(struct part *part, const struct error *why);

/* ---- hosting_pin.c: weights that stay where they are ---- */
void part_pin(struct part *part, struct parts_pin *chosen);            /* PARTS_PIN */
void hosting_unpin(struct hosting *hosting, struct parts_pin *chosen); /* PARTS_UNPIN */

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
void take_end(struct part *part, const char *why);
void take_used(struct part *part);        /* for every message of its pipeline */
void cache_look(struct hosting *hosting); /* by and by, and after whatever has happened */
void cache_pump(struct hosting *hosting); /* carries out what there is to be done */
/* To a node, also this one. */
void cache_tell(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                struct buffer *message);
void cache_open(struct hosting *hosting);

/* ---- hosting_load.c: jobs on the thread pool ---- */
void part_open(struct part *part);              /* PARTS_OPEN */
void part_close(struct part *part, bool stops); /* PARTS_STOP, PARTS_CLOSE */
void part_failed(struct part *part);            /* PARTS_FAILED */

/* ---- hosting_draft.c ---- */
void part_draft_want(struct part *part, const Cluster__Demand *demand);
/* Whether it can be opened now; what it lacks is fetched. One that is to be elsewhere is closed. */
void part_draft_look(struct part *part, const struct state *state);
bool part_draft_is_busy(const struct part *part);      /* a job of it is under way */
bool part_draft_is_elsewhere(const struct part *part); /* open, and to be minded on a timer */
void part_draft_mind(struct part *part);
void part_draft_leave(struct part *part); /* it need not be opened any more */
void part_draft_clear(struct part *part); /* its driver is closed */

/* ---- hosting_far.c ---- */
void part_send(void *arg, uint32_t stage, struct buffer *message); /* far.send */
void part_halt(void *arg, uint32_t stage, uint64_t number);        /* far.halt */
void part_lanes_changed(void *arg);                                /* far.lanes.changed */
void hosting_mind(struct hosting *hosting); /* what processes have died, and which were given up */
enum error_code hosting_receive(void *arg, const void *bytes, size_t size, struct error *err);
enum error_code part_attach(struct part *part, struct error *err);
void part_detach(struct part *part);
/* Bits of enum reach_effect. `why`: of REACH_CUT; else it may be NULL. */
void part_meet(struct part *part, uint32_t effects, const struct error *why);
void hosting_mend(
    struct hosting *hosting); /* drivers that can serve again, notices that are owed */
