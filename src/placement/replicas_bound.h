/* How fast a set of devices can be at most as one group, with the least hops that there are.
 * Private to placement_replicate().
 *
 * Work is measured as in exact.h: w, each layer's time on the device that is fastest for it, for
 * one row. A device takes at least rate(rows) for a unit, holds at most capacity(streams) of it,
 * and is launched once. Then no round is shorter than the knapsack of the cheapest devices, and no
 * longest stage shorter than the L with
 *
 *     sum over devices of min(capacity, (L - launch) / rate)  =  all work
 *
 * More rows take no less time, so the rate of fewer is a bound, too. */
#pragma once

#include "placement/problem.h"

struct replicas_bound {
    const struct placement_problem *problem;
    uint32_t n_rows; /* tables by rows: 1 … 16, then the powers of two */
    uint32_t n_parts;
    double all;       /* work */
    double *capacity; /* [part * n_devices + device]; 0: none */
    double *rate;     /* [rows * n_devices + device] */
    double *launch;   /* the same */
    uint32_t
        *order; /* [(part * n_rows + rows) * n_devices]: devices, the cheapest unit of work first */
};

/* For `parts` numbers of streams, one behind the other. ERROR_NO_MEMORY alone. */
enum error_code replicas_bound_init(struct replicas_bound *bound,
                                    const struct placement_problem *problem,
                                    const uint32_t *streams, uint32_t parts, struct error *err);
void replicas_bound_deinit(struct replicas_bound *bound);

/* A set of devices, with what is the same for all numbers of streams. */
struct replicas_set {
    const bool *in; /* [n_devices], the caller's */
    uint32_t n;
    double hops_s[LIMIT_STAGES]; /* least latencies of so many hops, one stage more: each to a
                                    device of its own */
    double occupation_s;         /* of the fastest link, for a row */
    double back_s;
};
void replicas_set_init(struct replicas_set *set, const struct placement_problem *problem,
                       const bool *in);

/* No group on the set has a higher placement_group_rate() for streams[part]; 0: it does not fit.
 * Without a number of micro-batches in the demand it is the most over all numbers of stages, as
 * they are run (as_run.h). */
double replicas_bound_rate(const struct replicas_bound *bound, const struct replicas_set *set,
                           uint32_t part, uint32_t streams);
