/* Simulated devices: they compute for real, on the CPU through ggml, and then take as long, have as
 * little memory, get as hot and fail as their row of the file says (simdevices/sim_file.h).
 *
 * The family is the `struct sim_file`; its devices copy what they need of it when they are
 * initialised. A device's clock (dies, hangs) starts there. What waits in a device ends when
 * device_interrupt() is called: pacing at once and well, hanging with ERROR_CANCELLED.
 *
 * How long a batch takes: for one row bytes / decode; for more the longer of that and FLOPs / flops
 * (the roofline of Williams, Waterman, Patterson 2009); both divided by the clock that the heat
 * allows; plus launch and (what goes in and out) / copy. */
#pragma once

#include "gpu/device_impl.h"

extern const struct device_impl device_impl_sim;

bool device_info_is_simulated(const struct device_info *info);
