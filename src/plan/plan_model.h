/* An open model as the placement's problem wants it: bytes by tensor type, FLOP, KV, activations,
 * compute buffers.
 *
 * The sums over all types are model.h's costs. What the engine adds to them:
 *
 *  - It looks token ids up on the host, in the embedding as the file has it (engine/weights.c). On
 *    a device with memory of its own the embedding therefore takes nothing; one that computes from
 *    host memory (the CPU, a simulated device) counts it among the first stage's weights.
 *    `embedding_counts` says which. A model that mixes both kinds of device counts it: too much, by
 *    the embedding, for a first stage on a GPU.
 *  - A tied embedding is a head of its own on the last stage, also where that stage has the
 *    embedding beside it. So nothing is shared: tied_bytes is 0.
 *  - A slot's KV cache has whole cells of KV_PADDING tokens: plan_demand() rounds the context up.
 *  - Every stage has the model's RoPE factors, if any: part of compute_bytes.
 *
 * Example, without a device at hand:
 *
 *     struct plan_compute compute;
 *     plan_compute_estimate(model, &options, &compute);
 *     struct plan_model plan;
 *     if (plan_model_init(&plan, model, &options, &compute, false, &err)) …
 *     problem.model = plan.model, problem.demand = plan_demand(&options);
 *     … plan_model_deinit(&plan);
 *
 * Pure but for the memory it takes; any thread. */
#pragma once

#include "pipeline/driver.h"
#include "placement/problem.h"
#include "plan/plan_compute.h"
#include "report/remedy.h"

struct plan_model { /* a zeroed one is empty */
    struct placement_model model;
    struct placement_layer *layers; /* what model.layers points to */
    bool is_converted;              /* while it is loaded: its layers cannot be streamed */
};

/* `options` as driver_options_fill() leaves them. ERROR_UNSUPPORTED: more than PLACEMENT_TYPES_MAX
 * tensor types, or a KV cache of a type that the model's heads do not allow; ERROR_NO_MEMORY. The
 * model may be closed afterwards. */
enum error_code plan_model_init(struct plan_model *out, const struct model *model,
                                const struct driver_options *options,
                                const struct plan_compute *compute, bool embedding_counts,
                                struct error *err);
/* The type of KV cache and the others that the model's heads allow, as the engine stores them
 * (ggml's blocks). */
struct placement_kv_type plan_kv_type(enum kv_type type);
/* ERROR_INVALID: it is the name of none. */
enum error_code plan_kv_type_find(const char *name, enum kv_type *out, struct error *err);
struct placement_kv_types plan_kv_types(const struct model *model, enum kv_type kv_type);

void plan_model_deinit(struct plan_model *plan); /* a zeroed one is fine */

/* One stream: the least time per token; several: the most tokens. Chunks as long as the driver's
 * micro-batches. */
struct placement_demand plan_demand(const struct driver_options *options);
