/* What every node opens an instance with: by what is agreed on alone, so that driver and runners
 * have the same. Pure.
 *
 * A demand with cells is one for streams that share them. Where a placement cannot (a
 * backend that does not copy cells side by side), each stream has a context to itself, and there
 * are as many as the cells hold contexts: the same memory either way. The placement says which
 * (Placement.shares_cells), and nobody looks at devices again. */
#pragma once

#include "cluster.pb-c.h"
#include "pipeline/driver.h"

struct driver_options part_options(const Cluster__Demand *demand, bool shares_cells);

/* So many streams may have a whole context each at the same time. */
uint32_t part_whole_streams(const Cluster__Demand *demand);
