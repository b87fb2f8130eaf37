/* A placement problem of a cluster: rates by the model's types, memory that several devices share
 * counted once, and a link between any two devices. Pure; any thread may read.
 *
 * Memory. Devices of a node that live in the host's memory (the CPU, integrated GPUs, a software
 * GPU driver), and two that are one card (the same PCI address), share one memory. It is counted
 * once: the one that reads this model fastest gets all of it that it can see, the next what is
 * left. What is left and less than a sixteenth counts as nothing: two readings of the same memory
 * differ by that.
 *
 * Links. What goes in and out of a device is copied from and to the host's memory, which costs its
 * stage time (placement/cost.h: copies); within a node that is all. A link between nodes is the
 * network's. Its time is not straight where packets are lost (topology/link.h), so latency and
 * bandwidth are those of the line through the two sizes that matter: the micro-batch of decoding
 * and the chunk of prefill, on the best path of the first. */
#pragma once

#include "clusterfile/cluster.h"
#include "placement/problem.h"
#include "topology/paths.h"

/* A device alone, with all of its memory, for the types of `model`; without its node's name. */
void cluster_device_describe(const struct cluster_device *device,
                             const struct placement_model *model, struct placement_device *out);

/* A device is `measured` where its rates are given, or all but a hundredth of the model's bytes are
 * of types that were measured on it. */
struct cluster_problem {
    struct placement_problem problem; /* devices in the cluster's order, id and node as there; the
                                         model is the caller's */
    struct placement_device
        *devices; /* what the problem points to, to be changed at will (excluded) */
    struct placement_link *links;
    uint32_t *memory_of; /* [n_devices]: the device that got first what both live in; itself: nobody
                            did */
    struct topology topology;    /* of the nodes */
    struct topology_paths paths; /* of a micro-batch of decoding */
};

/* `model.layers` must live as long. ERROR_INVALID (the first field that is wrong), ERROR_NO_MEMORY;
 * then *out is empty. A zeroed one is. */
enum error_code cluster_problem_init(struct cluster_problem *out, const struct cluster *cluster,
                                     const struct placement_model *model,
                                     const struct placement_demand *demand, struct error *err);
void cluster_problem_deinit(struct cluster_problem *problem); /* NULL is fine */
