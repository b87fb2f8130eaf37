/* This machine's devices as a cluster of one node, for `medley plan` without a cluster file: the
 * ones that `medley run` would use, described as it describes them, with the compute buffers that
 * their engine asks for. */
#pragma once

#include "clusterfile/cluster.h"
#include "plan/plan_compute.h"

struct gpu;

struct plan_here {
    struct cluster cluster;
    uint32_t n_spare; /* the last devices, for need (plan/plan_devices.h) */
    struct plan_compute compute;
};

/* Opens the devices, asks them and closes them; calibrations come from the registry and nothing is
 * measured. `sim_file`: its devices instead; NULL: none. `options` as driver_options_fill() leaves
 * them. Errors of gpu_open(), gpu_select() and plan_compute_measure(); then *out is empty. */
enum error_code plan_here_init(struct plan_here *out, const char *sim_file,
                               const struct model *model, const struct driver_options *options,
                               struct error *err);
void plan_here_deinit(struct plan_here *here); /* a zeroed one is fine */
