/* What a placement will do, said before anything is loaded, and why it is this one. Pure; any
 * thread.
 *
 * The interval of decoding is one standard deviation: the stages' relative spreads, weighed with
 * their times and taken as independent, sqrt(sum (spread t)^2) / round. It is unknown (0) when a
 * used device's spread is. Links have none yet. */
#pragma once

#include "placement/cost.h"
#include "placement/guessed.h"
#include "placement/solve.h"

struct placement_stage_forecast {
    uint64_t bytes;       /* of memory that it takes */
    double decode_s;      /* for one micro-batch */
    double hop_s;         /* to the next stage; of the last: the way back */
    double part_of_round; /* 0 … 1, without the hop */
    bool measured;
};

struct placement_forecast {
    double decode_tokens_per_s;       /* all streams together */
    double decode_spread;             /* relative; 0: unknown */
    double prefill_tokens_per_s;      /* of one prompt; 0: unknown */
    struct placement_guessed guessed; /* of one stream */
    struct placement_cost cost;       /* which names the bottleneck */
    uint32_t n_stages;
    struct placement_stage_forecast stages[LIMIT_STAGES];
};

/* Of a placement that placement_check() accepted. */
void placement_forecast(const struct placement_problem *problem, const struct placement *placement,
                        struct placement_forecast *out);

enum placement_left_out {
    PLACEMENT_USED,
    PLACEMENT_EXCLUDED,   /* by the caller, or its share is 0 */
    PLACEMENT_NO_MEMORY,  /* for its buffers and any one layer */
    PLACEMENT_NO_TYPES,   /* no layer has types that it knows */
    PLACEMENT_NO_LINK,    /* none to and from any used device */
    PLACEMENT_COSTS_TIME, /* with it, the best that was tried takes longer */
    PLACEMENT_NO_PLACE,   /* nowhere in this order of stages */
};

struct placement_reason {
    enum placement_left_out why;
    double more_s;     /* COSTS_TIME: of the period, when it is added to this placement at its best
                          place */
    uint32_t n_layers; /* COSTS_TIME: that it then has */
};

/* Why a device is not in a placement. ERROR_NO_MEMORY alone. */
enum error_code placement_why_left_out(const struct placement_problem *problem,
                                       const struct placement *placement, uint32_t device,
                                       struct placement_reason *out, struct error *err);
