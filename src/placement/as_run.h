/* The best placement of what the driver will run. It keeps as many micro-batches under way as there
 * are stages (pipeline/schedule.h), and how many stages there are is the answer: so the best of
 * each number of stages is looked for, each only as far as it beats those before. Pure; any
 * thread. */
#pragma once

#include "placement/solve.h"

enum {
    PLACEMENT_MICRO_BATCHES_TRIED = 8
}; /* more stages than that are rated, but not looked for by themselves */

/* As placement_solve(); leaves the answer's number of micro-batches in problem->demand. With the
 * goal latency, or where the demand says a number, it is one placement_solve(). Proved: as run, of
 * every number of stages; the lower bound is of that, too, by the answer's number of micro-batches.
 * The options' time is that of all together; their stages and below_s are not looked at. */
enum error_code placement_solve_as_run(struct placement_problem *problem,
                                       const struct placement_options *options,
                                       struct placement_solution *out, struct error *err);
