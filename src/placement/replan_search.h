/* Which targets are looked at, and the one that takes the least time in all. Private to this
 * room. */
#pragma once

#include "placement/replan_cost.h"

/* devices x layers steps that the targets near the current layout may take. */
enum { REPLAN_BUDGET = 20 * 1000 * 1000 };

struct replan_found {
    struct replan_plan
        plan; /* of least total_s, of those that pay unless it must move; n_stages of 0: none */
    struct replan_plan pending; /* the target that was pending, as it is now; n_stages of 0: not one
                                   of those any more */
    char why[ERROR_TEXT_MAX];   /* where there is none */
};

/* `pending` may be NULL. Sets context->tokens where nothing runs. Errors: ERROR_NO_MEMORY, and
 * placement_solve()'s ERROR_INVALID. */
enum error_code replan_search(struct replan_context *context, const struct placement *pending,
                              struct replan_found *out, struct error *err);
