/* How long a placement reads one prompt, as the driver runs it: in the chunks of chunk_plan.h, each
 * for placement_stage_s() of its rows and of the tokens behind their middle, with one more under
 * way than there are stages,
 *
 *     begins(chunk, stage) = max( ends(chunk, stage - 1) + hop,        ends(chunk - 1, stage) )
 *     begins(chunk, 0)     = max( ends(chunk - stages - 1, last),      ends(chunk - 1, 0) )
 *
 * and the head with the last chunk alone. Pure; any thread. */
#pragma once

#include "placement/cost.h"

/* Until the last chunk has left the last stage, in seconds; 0: unknown, because a device's prefill
 * was not measured for a type that it has. n_before: tokens in the cache. Of a placement that
 * placement_check() accepted. */
double placement_prefill_s(const struct placement_problem *problem,
                           const struct placement *placement, uint32_t n_before, uint32_t n_prompt);

/* Of the demand's prompt; 0: unknown. */
double placement_prefill_tokens_per_s(const struct placement_problem *problem,
                                      const struct placement *placement);
