/* Devices of this machine as clusterfile/cluster.h has them, for `medley run` and `medley plan`
 * alike. What a device is then taken for, what of its memory is kept free, and which devices live
 * in one memory is said there, once for machines at hand and machines of a file:
 * clusterfile/cluster_rates.h, cluster_problem.h.
 *
 * Where a device's figures come from, the first that there is:
 *
 *   its file      simulated devices: exactly what they will be held to. Nothing needs to be
 *                 measured, and nothing of their memory is kept free.
 *   calibration   `medley devices --calibrate`
 *   its name      what is published of a device of that name (simdevices/sim_presets.h)
 *   its class     a cautious guess
 *
 * Between two devices of one process a hidden state goes through host memory: copied from one
 * device, and to the next (pipeline/microbatch.h). Both copies are parts of their stages; the link
 * itself is the handing over between their threads.
 *
 * plan_device_describe() is pure; the rest asks the devices. */
#pragma once

#include "clusterfile/cluster.h"
#include "gpu/gpu.h"
#include "placement/problem.h"

struct plan_device_facts {
    const struct device_info *info;
    struct device_memory
        memory; /* of now; total 0: not known, and not a limit, as for the engine */
    const struct device_speed *given;             /* NULL: not simulated */
    const struct device_calibration *calibration; /* NULL: not calibrated */
};
void plan_device_describe(const struct plan_device_facts *facts, struct cluster_device *out);
void plan_device_ask(const struct device *device,
                     struct cluster_device *out); /* with its facts of now */

/* One node, "here", with these devices in this order. ERROR_NO_MEMORY alone; then *out is empty. */
enum error_code plan_devices_init(struct cluster *out, struct device *const *devices,
                                  uint32_t n_devices, struct error *err);

/* The last n_spare devices stand by unless all were measured for this model; false: none does. */
bool plan_devices_spare(struct cluster *cluster, uint32_t n_spare,
                        const struct placement_model *model);
/* The same of devices that are marked as spare already, each node by itself. */
bool plan_devices_stand_by(struct cluster *cluster, const struct placement_model *model);
void plan_devices_call_in(struct cluster *cluster); /* those that stand by */

/* What a placement of another model takes of its devices' memory is not there. `problem`: with the
 * cluster's devices, and maybe others behind them. */
void plan_devices_take(struct cluster *cluster, const struct placement_problem *problem,
                       const struct placement *placement);

/* Whether somewhere among them the token embedding, which the engine looks up on the host
 * (plan/plan_model.h), takes memory of the device itself: those that compute from host memory, and
 * simulated ones. */
bool plan_devices_count_embedding(const struct cluster *cluster);
