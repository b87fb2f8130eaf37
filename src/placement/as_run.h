/* The best placement of what the driver will run. It keeps as many micro-batches under way as there are stages
 * (pipeline/schedule.h), and how many stages there are is the answer: so every number of micro-batches is tried, and of
 * the answers the best as run is taken. Pure; any thread. */
#pragma once

#include "placement/solve.h"

enum { PLACEMENT_MICRO_BATCHES_TRIED = 8 };

/* As placement_solve(); leaves the answer's number of micro-batches in problem->demand. With the goal latency, or where
 * the demand says a number, it is one placement_solve(). Proved: of every number that is possible. The options' time
 * is that of all together. */
enum error_code placement_solve_as_run(struct placement_problem *problem, const struct placement_options *options,
                                       struct placement_solution *out, struct error *err);
