/* How fast one request will run on a placement, as this driver runs it.
 *
 * Decoding: the placement's own cost (placement/cost.h) of one stream, with as many tokens behind
 * it as there are half way through the answer. Reading the prompt: the chunks that
 * pipeline/schedule.h cuts it into, with as many under way as there are stages, go through the
 * stages one after the other,
 *
 *     begins(chunk, stage) = max( ends(chunk, stage - 1) + hop,  ends(chunk - 1, stage) )
 *     begins(chunk, 0)     = max( ends(chunk - stages, last),    ends(chunk - 1, 0) )
 *
 * each for placement_stage_s() of its rows and of the tokens behind their middle; the head only
 * with the last chunk. The time is where the last chunk leaves the last stage: the first token is
 * there then. Pure; any thread. */
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
