/* Filling a graph's inputs for one batch. */
#pragma once

#include "engine/graph.h"

/* `hidden`: for a stage that is not the first. */
void stage_inputs_set(const struct graph *graph, const struct batch *batch,
                      const struct hyperparameters *hyperparameters, const struct kv_cache *kv,
                      const float *hidden);
