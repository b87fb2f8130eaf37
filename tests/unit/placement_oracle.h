/* The same placement problem as a mixed-integer program, solved by HiGHS. It shares the public cost
 * formulas with the solver and nothing else. */
#pragma once

#include "placement/problem.h"

/* The least objective (cost.h), INFINITY: no placement; *out the placement. HiGHS is told to look
 * for nothing above known_s (INFINITY: anything), which makes its proof faster: if that is too low,
 * there is no placement for it. Fails the test where HiGHS does not answer with a proof. */
double placement_oracle(const struct placement_problem *problem, double known_s,
                        struct placement *out);
