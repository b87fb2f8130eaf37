/* From a problem to a placement: greedy first, then the bound of all devices with a better answer
 * from it, then the complete search if the two have not met, then the check. Pure; any thread.
 *
 * Example: five seconds at most, by a callback that looks at a clock:
 *
 *     struct placement_options options = placement_options_default();
 *     options.go_on = before_deadline, options.self = &deadline;
 *     struct placement_solution solution;
 *     if (placement_solve(&problem, &options, &solution, &err)) …
 */
#pragma once

#include "placement/problem.h"
#include "placement/score.h"

struct placement_options {
    struct placement_weights weights; /* where the demand has none */
    bool (*go_on)(void *self); /* asked now and then while searching; false: that is enough. NULL:
                                  search to the end */
    void *self;
    uint64_t max_nodes; /* of the search; 0: no limit */
    bool greedy_only;
    double enough_gap; /* 0.02: a placement at most 2 % above the bound ends the search, unproved;
                          0: it goes on until the best is proved */
    uint32_t stages_min, stages_max; /* how many the placement has; 0: any number */
    double below_s;                  /* its objective must be, else it is ERROR_NOT_FOUND; 0: any */
};
struct placement_options placement_options_default(void);

struct placement_solution {
    struct placement placement;
    double
        period_s; /* cost.h's objective: the period of one micro-batch; for the mix, of the two */
    double lower_bound_s; /* no placement has a shorter one; 0: not known */
    double greedy_s;      /* what greedy had found; INFINITY: nothing */
    bool proved;          /* optimal, up to a relative 1e-9 */
    uint64_t nodes;       /* that were searched */
};

/* ERROR_NONE with a placement that placement_check() accepts. ERROR_INVALID: the problem is none.
 * ERROR_NOT_FOUND: there is no placement, and the text says what is missing. ERROR_BUSY: the search
 * was ended before it found one or proved that there is none. ERROR_NO_MEMORY. */
enum error_code placement_solve(const struct placement_problem *problem,
                                const struct placement_options *options,
                                struct placement_solution *solution, struct error *err);

/* period / lower bound - 1; INFINITY where no bound is known. */
double placement_gap(const struct placement_solution *solution);
