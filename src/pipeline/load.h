/* Opening and closing the stages, each on its own device's thread, different devices at the same
 * time. */
#pragma once

#include "pipeline/driver.h"
#include "pipeline/microbatch.h"

/* Fills `pipeline->stages`, which has room for n_stages; those elsewhere (no device) are only
 * noted. On failure everything is closed again and `err` is that of the first stage that failed. */
enum error_code pipeline_load(struct pipeline *pipeline, const struct model *model,
                              const struct stage_plan *plan, const struct driver_options *options,
                              struct error *err);
void pipeline_unload(struct pipeline *pipeline);
