/* What a batch costs on a stage: bytes and FLOPs by model.h's formulas. Pure. */
#pragma once

#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"

struct stage_cost {
    struct layer_cost input;  /* zero where the stage is not the first */
    struct layer_cost layers; /* of all its layers */
    struct layer_cost output; /* zero where it is not the last */
    uint64_t kv_bytes_per_token;
    /* Of those sums, the windowed layers' part: they look back `window` tokens at the most. */
    uint32_t window;
    uint64_t windowed_flops_per_context, windowed_kv_bytes;
    uint64_t bytes_in_per_row;
};

void stage_cost_read(const struct model *model, const struct stage_options *options,
                     struct stage_cost *out);

/* Weights are read once for a batch; of a mixture's experts, those of each row, at most all: an
 * upper bound, for rows share experts. The KV cache is read once for every sequence in it, up to
 * its last row's position; in windowed layers, as far back as the window. `out` and the time are
 * left empty; bytes_copied is the inputs' alone. */
void stage_work_count(const struct stage_cost *cost, const struct batch *batch,
                      struct device_work *out);
