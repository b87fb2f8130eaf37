/* What a move costs: replan.h's formulas. Private to this room. */
#pragma once

#include "placement/replan.h"

/* The fastest way for the weights to a device that is not through the device that holds them. */
struct replan_source {
    uint32_t device; /* the device itself: its own disk. REPLAN_GONE: nobody has the file */
    double latency_s;
    double bytes_per_s;
};

struct replan_context {
    const struct replan_input *input;
    const struct replan_options *options;
    struct placement current;     /* with REPLAN_GONE */
    uint32_t owner[LIMIT_LAYERS]; /* device of each layer now, or REPLAN_GONE */
    bool kv_lost;                 /* a layer's cache is */
    bool running;
    bool must_move;      /* set by replan() */
    double tokens_per_s; /* now; 0: not running */
    double tokens;       /* to come; where nothing runs, `seconds` are added by who knows a rate */
    struct replan_source *sources; /* [n_devices] */
    double *node_s;                /* [n_devices] work space */
};

/* ERROR_INVALID, ERROR_NO_MEMORY. */
enum error_code replan_context_init(struct replan_context *context,
                                    const struct replan_input *input,
                                    const struct replan_options *options, struct error *err);
void replan_context_deinit(struct replan_context *context);

uint64_t replan_weight_bytes(const struct placement_problem *problem, uint32_t layer);
/* Seconds for weights, and for a KV cache, of one layer; INFINITY: there is no way. 0 where the
 * device has the layer. Latency is left out: layers travel together. */
double replan_layer_load_s(const struct replan_context *context, uint32_t device, uint32_t layer);
double replan_layer_kv_s(const struct replan_context *context, uint32_t device, uint32_t layer);

/* Of a target that placement_check() accepts. False: nobody has the weights for it. */
bool replan_cost(const struct replan_context *context, const struct placement *target,
                 struct replan_plan *out);

/* With the current layout; INFINITY: not possible. */
double replan_stay_s(const struct replan_context *context);
/* Whether an optional move is worth it. */
bool replan_pays(const struct replan_context *context, const struct replan_plan *plan);
