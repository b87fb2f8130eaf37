/* How fast one request will run on a placement, as this driver runs it.
 *
 * Decoding: the placement's own cost (placement/cost.h) of one stream, with as many tokens behind
 * it as there are half way through the answer. Reading the prompt: placement/prefill.h. The first
 * token is there when the last chunk leaves the last stage. Pure; any thread. */
#pragma once

#include "placement/problem.h"

struct plan_work {
    uint32_t n_prompt; /* tokens to compute, at least 1 */
    uint32_t n_cached; /* of the prompt, before these, that are in the KV cache */
    uint32_t n_generated;
};

struct plan_forecast {
    double prefill_s;            /* until the first token; 0: unknown */
    double prefill_tokens_per_s; /* 0: unknown */
    double decode_tokens_per_s;
    double decode_spread; /* as placement/forecast.h */
    bool measured;        /* every stage's device */
};

/* Of a placement that placement_check() accepted. */
void plan_forecast(const struct placement_problem *problem, const struct placement *placement,
                   const struct plan_work *work, struct plan_forecast *out);
