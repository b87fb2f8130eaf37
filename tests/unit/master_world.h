/* A cluster in one program, for tests of master and workers: four nodes with a device each, one
 * instance "i" of a model, and a planner that splits it evenly. Loading takes 300 ms. */
#pragma once

#include "cluster/master.h"
#include "cluster/worker.h"

enum { NODES = 4, LAYERS = 8, HAVE_MAX = 16 };

struct have {
    char instance[64], device[16];
    uint64_t epoch, done_ms;
    uint32_t stage, first_layer, n_layers;
    enum worker_stage_state state;
};

struct house {
    struct state state;
    struct master master;
    struct master_options options;
    uint64_t now_ms, leads_since_ms, index;
    bool up[NODES], wanted, lacks_weights[NODES], cannot_load[NODES];
    uint64_t used_ms, heard_ms[NODES];
    struct have have[NODES][HAVE_MAX];
    uint32_t n_have[NODES];
    uint32_t memory_step[NODES]; /* of their ladders */
    uint32_t memory_said;        /* steps that were told */
    uint32_t loads, adoptions, unloads, fetches, ignored, placed;
    uint32_t max_stages;    /* of the fake planner; 0: all nodes */
    bool reverse;           /* it prefers the last nodes */
    bool needs_three;       /* fewer nodes are too few for it */
    uint64_t searches_ms;   /* so long it is busy before it finds none, which is good for 10 s */
    uint64_t asked_ms;      /* when that search began */
    uint64_t memory[NODES]; /* of the real planner's problem; a layer has 100 */
    double speeds[NODES];
    double sustained[NODES], full_s[NODES],
        doubt[NODES]; /* of its devices; sustained 0: for good */
    bool no_memory_beside, gains, by_hand, suspected[NODES], paused[NODES];
    bool lends_nothing[NODES], is_over; /* its owner; the instance takes more than is lent */
    char *misses[NODES];                /* a node that it does not hear, though the leader may */
    uint32_t considered;
    double tokens;
    uint32_t noise; /* of the real planner's rates: per cent */
    struct master_planner planner;
    struct master_mover mover;
    struct lineage lineage;
};

extern const char *const house_ids[NODES];

void house_make(struct house *h, uint64_t idle_ms);
struct house *house_that_serves(uint64_t idle_ms); /* over all nodes; used just now */
struct house *house_on_two_nodes(void);            /* asked for, over the first two */
void house_drop(struct house *h);
void house_run(struct house *h, uint64_t ms);
const Cluster__Instance *house_instance(const struct house *h);
bool house_serves(const struct house *h);     /* all stages are ready */
uint32_t house_loaded(const struct house *h); /* stages, on nodes that are up */
void house_set(struct house *h, const char *key, const char *value); /* NULL: taken away */
/* A move by hand, as `medley move` proposes it: the old placement serves until the new one is
 * ready. */
void house_propose_move(struct house *h, uint32_t from, uint32_t n);
/* An even split over the first allowed nodes. */
enum error_code house_fake_place(void *self, const struct master_view *view,
                                 const Cluster__Instance *instance, const bool *allowed,
                                 bool beside, struct master_placement *out, struct error *e);
