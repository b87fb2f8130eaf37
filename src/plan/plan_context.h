/* How long a context may be where nobody gave one: as long as the model's own, while what it takes
 * beyond the usual one is no more than an eighth of the memory that this leaves on each device.
 * Pure; any thread. */
#pragma once

#include "placement/problem.h"

struct model;

enum { PLAN_CONTEXT_LEAST = 512 }; /* no shorter one is chosen for want of memory */

/* The longest that the model can be asked for. */
uint32_t plan_context_most(const struct model *model);
/* The longest up to `most`, in doublings of `context` (the problem's), that all stages of the
 * placement have memory for by the rule above. */
uint32_t plan_context_modest(const struct placement_problem *problem,
                             const struct placement *placement, uint32_t context, uint32_t most);
