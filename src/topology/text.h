/* A topology as text: for people, and for Graphviz. Names are foreign bytes: what is not valid
 * UTF-8, a control character or one that changes the direction of writing comes out as "?". A
 * buffer's `failed` says that memory ran out. Pure. */
#pragma once

#include "base/buffer.h"
#include "topology/paths.h"

/* A few lines whatever the number of nodes, each with its line feed:
 *
 *     3 nodes, 4 links: 3 usable, 1 down, 0 without an estimate
 *     every node reaches every other
 *     a message of 16.4 kB takes at most 1.39 ms: pi to studio, 2 hops
 *     bandwidth 523 MB/s on average, 12 MB/s at the narrowest: pi to tower (wifi)
 *     ethernet: 2 links, latency 200 µs to 210 µs, bandwidth 118 MB/s to 1.25 GB/s
 *     times are lower bounds: 3 links without jitter, loss or overhead */
void topology_summary(struct buffer *text, const struct topology *topology,
                      const struct topology_paths *paths);

/* A digraph for `dot`: a node "n0" with its name for a label, an edge for each link; those without
 * an estimate are dashed. */
void topology_dot(struct buffer *text, const struct topology *topology);
