/* What other planners do, for comparison: every usable device, in the caller's order, gets layers
 * in proportion to one number. Memory: exo and llama.cpp; FLOP/s: cake; equal: distributed-llama;
 * score: the weighted score. What overflows a device's memory goes to those with room. Pure; any
 * thread. */
#pragma once

#include "placement/problem.h"
#include "placement/score.h"

enum placement_policy {
    PLACEMENT_BY_MEMORY,
    PLACEMENT_BY_FLOPS,
    PLACEMENT_EQUAL,
    PLACEMENT_BY_SCORE,
};
const char *placement_policy_name(enum placement_policy policy);

/* ERROR_NONE with a placement that placement_check() accepts; ERROR_NOT_FOUND with its reason where
 * the policy leads to none. Of a checked problem. */
enum error_code placement_by_policy(const struct placement_problem *problem,
                                    enum placement_policy policy, struct placement *out,
                                    struct error *err);
