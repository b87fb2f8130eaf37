/* Whether a placement can be used. It shares no table with the solver, so that a mistake there is
 * caught here; no placement is given to anyone that it has not accepted. Pure; any thread. */
#pragma once

#include "placement/problem.h"

/* ERROR_NONE, or ERROR_INVALID with the first reason: stages that leave out, repeat or disorder
 * layers; an unknown device, one that is excluded or used twice; too little memory (with the
 * bytes); weights of a type that a device cannot use; two stages, or the last and the first,
 * without a link. */
enum error_code placement_check(const struct placement_problem *problem,
                                const struct placement *placement, struct error *err);

/* Several groups: each as above for its own streams; no device in two; all streams of the demand,
 * each once. */
enum error_code placement_check_groups(const struct placement_problem *problem,
                                       const struct placement_groups *groups, struct error *err);
