/* This machine's devices as a cluster of one node, for `medley plan` without a cluster file: the
 * ones that `medley run` would use, described as it describes them, with the compute buffers that
 * their engine asks for. */
#pragma once

#include "clusterfile/cluster.h"
#include "plan/plan.h"

struct gpu;

struct plan_here {
    struct cluster cluster;
    uint32_t n_spare; /* the last devices, for need (plan/plan_devices.h) */
    struct plan_compute compute;
    struct plan draft; /* of a draft model; what it takes of the devices' memory is not there.
                          Empty: there is none. Its devices are closed */
};

/* What is to be placed before the model. */
struct plan_here_draft {
    const struct model *model;
    const char *device;                   /* plan/plan_draft_here.h */
    const struct driver_options *options; /* as driver_options_fill() leaves them */
};

/* Opens the devices, asks them and closes them; calibrations come from the registry and nothing is
 * measured. `sim_file`: its devices instead; NULL: none. `options` as driver_options_fill() leaves
 * them. `draft`: NULL for none. Errors of gpu_open(), gpu_select(), plan_compute_measure() and, for
 * a draft model, plan_make(); then *out is empty. */
enum error_code plan_here_init(struct plan_here *out, const char *sim_file,
                               const struct model *model, const struct driver_options *options,
                               const struct plan_here_draft *draft, struct error *err);
void plan_here_deinit(struct plan_here *here); /* a zeroed one is fine */
