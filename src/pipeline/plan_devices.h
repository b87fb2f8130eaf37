/* Devices of this machine as the placement's problem wants them: memory, rates by tensor type, copies, links.
 *
 * Where a device's figures come from, the first that there is:
 *
 *   its file      simulated devices: exactly what they will be held to. Nothing needs to be measured.
 *   calibration   `medley devices --calibrate`. A type of weights that was not among the measured ones takes the
 *                 slowest of them, and so does the KV cache.
 *   its class     a cautious guess, marked measured = false. Weights at
 *                     80 GB/s    a graphics card (70 % of 112 GB/s, which a GTX 1050 Ti of 2016 is sold with)
 *                     15 GB/s    integrated, or the CPU (45 % of two channels of DDR4-2133: 34 GB/s)
 *                      1 GB/s    a software GPU: it computes on the CPU, by code made for something else
 *                 and 4 GB/s of copies (a quarter of PCIe 3.0 x16), 100 us a launch. FLOP/s are left unknown: no
 *                 forecast of prompts is made then.
 *
 * A model whose weights are for more than 1 % of a type that was not measured is forecast with measured = false.
 *
 * Between two devices of one process a hidden state goes through host memory: copied from one device, and to the
 * next (pipeline/microbatch.h). Both copies are in copy_bytes_per_s of the devices, as parts of their stages; the link
 * itself is the handing over between their threads.
 *
 * plan_device_describe() is pure; the rest asks the devices. */
#pragma once

#include "gpu/gpu.h"
#include "placement/problem.h"

struct plan_device_facts {
    const struct device_info *info;
    struct device_memory memory;                  /* of now; total 0: not known, and not a limit, as for the engine */
    const struct device_speed *given;             /* NULL: not simulated */
    const struct device_calibration *calibration; /* NULL: not calibrated */
};

/* For the types of `model`. `node` is left empty: they are all of this one. */
void plan_device_describe(const struct plan_device_facts *facts, const struct placement_model *model,
                          struct placement_device *out);

struct plan_devices { /* a zeroed one is empty */
    uint32_t n_devices;
    struct placement_device *devices; /* [n_devices] */
    struct placement_link *links;     /* [n_devices * n_devices] */
};

/* ERROR_NO_MEMORY alone. */
enum error_code plan_devices_init(struct plan_devices *out, struct device *const *devices, uint32_t n_devices,
                                  const struct placement_model *model, struct error *err);
void plan_devices_deinit(struct plan_devices *plan);
