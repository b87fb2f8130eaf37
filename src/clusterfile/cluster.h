/* Machines as somebody described them: nodes, their devices, the links between the nodes. Plain
 * data, from a cluster file (clusterfile/cluster_file.h) or from this machine's own devices;
 * clusterfile/cluster_problem.h makes a placement problem of it.
 *
 * Unknown is 0 and never means zero: no launch time, no copy bandwidth, no rate. Where a speed
 * comes from is kept with it, because a datasheet is not a measurement and a guess is neither;
 * every forecast says which it stands on.
 *
 * A zeroed cluster is empty. cluster_deinit() frees it. Pure; any thread may read. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "topology/link.h"

#include <stdbool.h>
#include <stdint.h>

enum { CLUSTER_NODE_MAX = 64, CLUSTER_ID_MAX = 32, CLUSTER_TYPES_MAX = 16 };

/* From the least to the most certain. */
enum cluster_speed {
    CLUSTER_ASSUMED,   /* nobody said anything: a guess by its kind (clusterfile/cluster_rates.h) */
    CLUSTER_DATASHEET, /* what a vendor publishes, taken at the shares of
                          clusterfile/cluster_rates.h */
    CLUSTER_GIVEN,     /* a simulated device: it will be as fast as it was told to be */
    CLUSTER_MEASURED,  /* by a node that was idle, or by `medley devices --calibrate` */
};
const char *
cluster_speed_name(enum cluster_speed speed); /* "guess", "datasheet", "given", "measured" */

enum cluster_kind { CLUSTER_GPU, CLUSTER_INTEGRATED_GPU, CLUSTER_CPU };
const char *cluster_kind_name(enum cluster_kind kind); /* "gpu", "integrated gpu", "cpu" */

struct cluster_type { /* one measured tensor type; a rate of 0 was not measured; both: it cannot be
                         computed */
    char name[16];
    double decode_bytes_per_s, decode_spread;
    double prefill_flops;
};

struct cluster_device {
    uint32_t node;
    char id[CLUSTER_ID_MAX]; /* "cuda0": once in its node */
    char name[128];          /* for people; "" where nobody says */
    char pci[24];            /* "" where it has none; two devices with one are one card */
    enum cluster_kind kind;
    bool is_software; /* a GPU driver that computes on the CPU */
    bool own_memory;  /* false: it lives in the node's host memory, beside others of which that is
                         true */
    uint64_t memory_bytes;
    uint64_t reserve_bytes; /* of those, kept free */
    enum cluster_speed speed;
    uint32_t n_types; /* measured: these; else the two rates below are for every type */
    struct cluster_type types[CLUSTER_TYPES_MAX];
    double decode_bytes_per_s, prefill_flops; /* DATASHEET: as published; GIVEN: as it will be */
    double launch_s, read_bytes_per_s, write_bytes_per_s;
    double share; /* of its time that it may compute, 0 to 1; 0: it is not to be used */
    /* Its heat, of a device whose node tells it; all zero of any other, a file's among them. */
    double full_s;      /* it may compute all of its time for so long, and `share` from then on;
                           0: from now on */
    double share_error; /* of share where that is a prediction, one standard deviation; 0: it is so
                           now */
    struct reading headroom_share; /* 1 cold, 0 at its limit; unknown: taken for cold */
    bool spare; /* stands by until the others are too small: not to be used, and takes no memory
                   from them */
};

struct cluster_node {
    char name[CLUSTER_NODE_MAX];
    uint64_t memory_bytes; /* of the host, for all its devices without memory of their own; 0: their
                              largest */
    uint64_t disk_bytes_per_s; /* of weights from its disk; 0: not known */
    uint32_t first_device, n_devices;
};

struct cluster {
    uint32_t n_nodes, n_devices, n_links;
    struct cluster_node *nodes;
    struct cluster_device *devices; /* by node */
    struct topology_link *links;    /* between nodes */
    bool *
        link_assumed; /* [n_links]: a reading of it is a guess by its class (cluster_link_assume) */
};

void cluster_deinit(struct cluster *cluster); /* NULL is fine */

/* Each grows its array by one zeroed element and returns it, NULL: no memory. A returned pointer is
 * valid until the next call. Devices come after their node and before the next one. The caller
 * keeps the limits (base/limits.h). */
struct cluster_node *cluster_add_node(struct cluster *cluster);
struct cluster_device *
cluster_add_device(struct cluster *cluster); /* of the last node; counted there */
struct topology_link *cluster_add_link(struct cluster *cluster, bool assumed);

/* UINT32_MAX: there is none. */
uint32_t cluster_find_node(const struct cluster *cluster, const char *name);
uint32_t cluster_find_device(const struct cluster *cluster, uint32_t node, const char *id);

/* Whether two devices live in one memory: in the host's of their node, or as one card. A device
 * does with itself. */
bool cluster_share_memory(const struct cluster *cluster, uint32_t a, uint32_t b);

/* Latency and bandwidth that are not known, of what its class gives on a quiet day (the table is in
 * cluster.c and in docs/planning.md). True: the link has both now, and *assumed says whether one of
 * them is a guess. False: it lacks one, and nothing is known of its class. */
bool cluster_link_assume(struct topology_link *link, bool *assumed);

/* A copy of the cluster with one device more, at the end of the node's. ERROR_NO_MEMORY leaves *out
 * empty. */
enum error_code cluster_with_device(const struct cluster *cluster, uint32_t node,
                                    const struct cluster_device *device, struct cluster *out,
                                    struct error *err);
