/* How fast a device of a cluster is with weights of a tensor type, as far as anybody knows. Pure.
 *
 * MEASURED   the type's own rate; for a type that was not measured the slowest measured one's. A
 *            type that was probed and has no rate is one that the device cannot compute: 0, and
 *            the planner puts no such layer there
 * GIVEN      its file's rates, for every type
 * DATASHEET  0.7 of the published bandwidth, 0.5 of the published FLOP/s (simdevices/sim_presets.h:
 *            an assumption)
 * ASSUMED    a cautious guess of the bandwidth by its kind; FLOP/s stay unknown, so that no prefill
 *            is forecast
 *
 * The guesses:
 *
 *     80 GB/s    a graphics card (70 % of 112 GB/s, which a GTX 1050 Ti of 2016 is sold with)
 *     15 GB/s    integrated, or the CPU (45 % of two channels of DDR4-2133: 34 GB/s)
 *      1 GB/s    a software GPU: it computes on the CPU, by code made for something else
 *
 * and 4 GB/s of copies (a quarter of PCIe 3.0 x16), 100 us a launch. */
#pragma once

#include "clusterfile/cluster.h"

double cluster_decode_bytes_per_s(const struct cluster_device *device,
                                  const char *type); /* 0: it cannot compute that type */
/* Whether the device was probed for that type, and cannot compute it. */
bool cluster_type_is_lacking(const struct cluster_device *device, const char *type);
double cluster_prefill_flops(const struct cluster_device *device,
                             const char *type);                     /* 0: unknown */
double cluster_kv_bytes_per_s(const struct cluster_device *device); /* 0: as the fastest type */
/* Whether its decode rate is no stand-in of another type's, nor an estimate. */
bool cluster_type_is_known(const struct cluster_device *device, const char *type);
/* Relative, of the type's decode rate; 0: unknown. */
double cluster_decode_spread(const struct cluster_device *device, const char *type);
/* A stage's inputs and results to and from the host: the slower way, else what is assumed. 0: it is
 * the host's memory.
 */
double cluster_copy_bytes_per_s(const struct cluster_device *device);

#define CLUSTER_COPY_ASSUMED_BYTES_PER_S 4e9
#define CLUSTER_LAUNCH_ASSUMED_S 100e-6
