/* What computes a model's requests now: what records of requests say beside their figures, and
 * whoever owns the models knows. Copied by value; a zeroed one says nothing. Texts are cut. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    REQUEST_RUN_TEXT = 72, /* a node's or a device's id, with the NUL */
    REQUEST_WHY_TEXT = 192,
};

struct request_run_stage {
    char node[REQUEST_RUN_TEXT]; /* its id; "": this machine, which is in no cluster */
    char device[REQUEST_RUN_TEXT];
    uint32_t first_layer, n_layers;
};

struct request_run {
    char driver[REQUEST_RUN_TEXT]; /* the node that has it; "": unknown */
    uint32_t n_stages;
    struct request_run_stage stages[LIMIT_STAGES];
    double forecast_decode_tokens_per_s;  /* of one stream, once round; 0: unknown */
    double forecast_prefill_tokens_per_s; /* of one prompt; 0: unknown */
    /* What the stages' devices take together, in watts. */
    bool has_power;
    double power_w;
    /* Requests wait for the model since then, by clock_now_ns(); 0: none does. */
    uint64_t paused_ns;
    char why[REQUEST_WHY_TEXT];
};
