/* The best path of a message from every node to every other, and what that says of the whole.
 *
 * Best is: least time; of equally fast ones, fewest hops; then the next hop with the lowest index.
 * A message is passed on when all of it has arrived, so a path's time is the sum of its links'
 * (topology/link.h). Times are rounded to whole nanoseconds on each link: sums of integers are the
 * same in any order, so equal paths are equal and the answer does not depend on the order of the
 * input.
 *
 * Floyd's algorithm with next hops (Floyd: "Algorithm 97: Shortest path", CACM 5(6), 1962;
 * Warshall, JACM 9(1), 1962): O(nodes^3) time, 10 nodes^2 bytes.
 *
 * Pure. Paths hold no pointer into the topology; where both are asked for, it is the one they were
 * made from. */
#pragma once

#include "topology/topology.h"

#include <math.h>

#define TOPOLOGY_APART INFINITY /* seconds: no path */
#define TOPOLOGY_NO_NODE UINT32_MAX

struct topology_paths {
    uint32_t n_nodes;
    uint64_t bytes;      /* the size of message that they are for */
    uint64_t *costs;     /* [from][to] */
    uint16_t *next_hops; /* [from][to] */
};

/* Zeroed they are those of no nodes. ERROR_NO_MEMORY leaves them so. */
enum error_code topology_paths_init(struct topology_paths *paths, const struct topology *topology,
                                    uint64_t bytes, struct error *err);
void topology_paths_deinit(struct topology_paths *paths); /* NULL is fine */

/* TOPOLOGY_APART without a path, or with none under 50 days. To itself: 0 s, 0 hops, itself. */
double topology_paths_seconds(const struct topology_paths *paths, uint32_t from, uint32_t to);
uint32_t topology_paths_hops(const struct topology_paths *paths, uint32_t from,
                             uint32_t to); /* 0 without a path */
/* The first node of the path after `from`; asked again from there it leads to `to`.
 * TOPOLOGY_NO_NODE without a path. */
uint32_t topology_paths_next(const struct topology_paths *paths, uint32_t from, uint32_t to);

/* The link of least bandwidth on the best path, the first of equals; NULL without a path or a
 * hop. */
const struct topology_link *topology_paths_bottleneck(const struct topology_paths *paths,
                                                      const struct topology *topology,
                                                      uint32_t from, uint32_t to);

/* Links from a node to itself count for none of these. */
struct topology_metrics {
    uint32_t n_links;
    uint32_t n_usable; /* links with an estimate */
    uint32_t n_down;   /* links that are not up */
    uint32_t n_floors; /* usable links whose estimate is a floor: so may any path's time be */
    uint32_t n_groups; /* sets of nodes that reach each other both ways; 1: connected */
    uint32_t n_apart;  /* ordered pairs without a path */
    uint32_t apart[2]; /* the first of them */
    double diameter_s; /* the longest best path of those that there are */
    uint32_t
        diameter[2]; /* its ends, the first of equals; the same node twice when no path has a hop */
    double average_bytes_per_s; /* mean over usable links; 0 when there is none */
    const struct topology_link
        *bottleneck; /* of least bandwidth that a best path takes, the first of equals; or NULL */
};

/* O(nodes^2 + links). */
struct topology_metrics topology_measure(const struct topology *topology,
                                         const struct topology_paths *paths);
