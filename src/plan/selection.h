/* The devices of this machine that a model may use, which `medley run`, `medley plan` and a node of
 * a cluster must see alike. */
#pragma once

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct gpu;
struct device;

struct selection {
    struct device *devices[LIMIT_STAGES + 1];
    uint32_t n_devices;
    uint32_t n_spare; /* the last of them stand by (plan/plan.h) */
};

/* gpu_select() of the list (NULL: the machine's best). The CPU stands by for GPUs that are too
 * small, unless the user has named the devices: by `list`, or `as_given` by a file of simulated
 * ones or a split. Errors of gpu_select(). */
enum error_code selection_make(const struct gpu *gpu, const char *list, bool as_given,
                               struct selection *out, struct error *err);
