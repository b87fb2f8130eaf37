/* This machine's devices as a cluster of one node, for `medley plan` without a cluster file. */
#pragma once

#include "placement/cluster.h"

struct gpu;

/* ERROR_NO_MEMORY; ERROR_NOT_FOUND: there is no device. Then *out is empty. Calibrations come from the registry;
 * nothing is measured. With `simulated_only` (--sim) those alone. */
enum error_code plan_here(const struct gpu *gpu, bool simulated_only, struct cluster *out, struct error *err);
