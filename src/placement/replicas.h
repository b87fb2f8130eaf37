/* The whole model on several groups of devices: how devices and streams are best divided. Pure; any
 * thread.
 *
 * Each group is a pipeline of its own, solved as a placement of its devices for its streams; what
 * groups decode is added up (cost.h). One group of all is where it begins, so several are never
 * slower than one; with few streams, a model that fits but once, or weights that one large batch
 * reads for all, one it stays.
 *
 * What is maximised over all divisions is sum rate(devices, streams). A set of devices is a state;
 * the best division of a set is one group of some of its devices, and the best division of the rest
 * (dynamic programming over sets: Held and Karp, J. SIAM 10, 1962). Solving each set for each
 * number of streams would take thousands of placements, so the rates are at first bounds
 * (replicas_bound.h); the groups of the best division are solved, and their rates put in the
 * bounds' place, until the best division has solved groups alone: then nothing else can be better,
 * and it is proved. Stopped before, the best that was found is there, with the bound.
 *
 * Interchangeable devices (same numbers, same links) are counted, not told apart: 64 alike are 64
 * states, not 2^64. Where the states are still too many (REPLICAS_STEPS), those that are near each
 * other become blocks that are not divided, the smallest first, and groups are solved by greedy
 * alone; and of more than REPLICAS_PARTS streams some always go together. Then it is the best of
 * fewer divisions, and no bound is known of the others. Up to 8 devices of any kind and 16 streams
 * all divisions are looked at. */
#pragma once

#include "placement/solve.h"

enum {
    REPLICAS_PARTS = PLACEMENT_GROUPS_MAX, /* of streams */
    REPLICAS_STEPS = 1000 * 1000,          /* of one pass over all sets */
    REPLICAS_SOLVES = 4096,                /* groups that are solved at most */
};

struct placement_replicas {
    struct placement_groups groups; /* one: nothing that was looked at is better */
    double rate;                    /* placement_groups_rate() */
    double one_rate;                /* of one group */
    double most_rate;               /* no division has more; INFINITY: not known */
    bool all;                       /* every division was in question: no blocks, no parts */
    bool proved; /* the best of them; a group as good as placement_solve_as_run() proves */
    uint32_t
        copies; /* of the model with its KV caches that all memory would hold, in bytes alone */
    uint32_t solves;
};

/* Each group is solved by placement_solve_as_run(). `one`: what that gave for all devices and the
 * same demand, which is then not solved again; NULL: it is. With the goal latency, one stream or
 * one device, or without demand.replicas, it is the answer. Where options->max_nodes is 0, each
 * group takes PLACEMENT_WHATIF_NODES. Errors as placement_solve().
 */
enum error_code placement_replicate(const struct placement_problem *problem,
                                    const struct placement_options *options,
                                    const struct placement_group *one, bool one_proved,
                                    struct placement_replicas *out, struct error *err);
