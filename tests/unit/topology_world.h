/* Made-up networks for the tests of topology. */
#pragma once

#include "topology/paths.h"

#define KNOWN(x) {(x), true}

/* Everything known, nothing lost. */
struct topology_link link_of(uint32_t from, uint32_t to, double latency_ns, double bytes_per_s);

/* A topology with nodes a, b, c …; and its paths for messages of this size. */
struct topology topology_of(uint32_t n_nodes, const struct topology_link *links, uint32_t n_links);
struct topology_paths paths_of(const struct topology *topology, uint64_t bytes);
