/* Filling a graph's inputs for one batch. */
#pragma once

#include "engine/graph.h"

/* `lengths`: of the slots before the batch; `cells`: KV cells of a slot; `hidden`: for a stage that
 * is not the first.
 */
void stage_inputs_set(const struct graph *graph, const struct batch *batch,
                      const struct hyperparameters *hyperparameters, uint32_t cells,
                      const float *hidden);
