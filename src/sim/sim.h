/* A cluster under a made-up clock, network, disks and devices: the log, the state, the leader's and
 * the workers' decisions and the planner are the node's own code (cluster/, placement/); what
 * carries them is simulated, and so are the devices and the requests (docs/simulator.md). One seed
 * draws everything: the same scenario gives the same run, bit for bit, on every machine.
 *
 * Checked after every step, and the run ends at the first that is not so:
 *   one leader of a lineage and term; one entry and one state for a lineage and index; what was
 *   acknowledged stays in its lineage; one placement of an epoch, and epochs grow; no device holds
 *   more than it has; a stage that serves is the one that was placed; every token of a reply is the
 *   reference's, once and in order; every request ends; and some time after the last fault all
 *   nodes agree, and what fits is placed and ready. Of hostile members (docs/simulator.md) nothing
 * is asked; nobody is let in, removed or given a role unless an honest admin asked for it.
 *
 * Pure but for the callback; one thread a run. */
#pragma once

#include "sim/scenario.h"

struct sim_options {
    void (*say)(void *self, uint64_t now_ms, const char *text); /* NULL: silence */
    void *self;
};

struct sim_result {
    bool violated;
    char what[512];
    uint64_t at_ms, events;    /* when the run ended; steps of the simulation */
    uint64_t entries, applied; /* the highest in a log, in a state */
    uint64_t elections, generations, snapshots;
    uint64_t placements, loads, refused_loads, failovers;
    uint64_t requests, answered, failed, tokens, replays;
    uint64_t handed_over; /* sequences that went on with the caches of the placement before */
    uint64_t moves;       /* placements of what works: for gain, or since its memory is short */
    uint64_t suspicions, false_alarms; /* of nodes by nodes; of some that could be reached */
    uint64_t hottest_mc;               /* device; 0: none gets warm */
    uint64_t throttled_ms;     /* of all devices: with less than full duty, while it had a stage */
    uint64_t longest_pause_ms; /* between two tokens of one reply */
    uint64_t converged_ms;     /* after the last fault; */
    uint64_t state_bytes;
    uint64_t forged, refused; /* messages of hostile members; what was said to be refused */
};

/* ERROR_NO_MEMORY, ERROR_INVALID (the scenario). A violation is a result. */
enum error_code sim_run(const struct scenario *scenario, const struct sim_options *options,
                        struct sim_result *out, struct error *err);

/* Whether the result is what the scenario expects; else `why` says what is not. */
bool sim_as_expected(const struct scenario *scenario, const struct sim_result *result, char *why,
                     size_t size);

/* Drops faults, streams and nodes, and shortens, while it is still violated; at most `runs`
 * runs. */
enum error_code sim_shrink(struct scenario *scenario, uint32_t runs, struct sim_result *out,
                           struct error *err);
