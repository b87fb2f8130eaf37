/* What computes an instance's requests now. On the loop's thread. */
#pragma once

#include "node/daemon.h"
#include "request/request_run.h"

#include "cluster.pb-c.h"

/* Whether all of its stages have the form that they were placed in: none is far down the ladder of
 * memory (pipeline/memory_ladder.h). */
bool daemon_run_is_as_placed(const Cluster__Placement *placement);

/* The forecast of what serves now, made anew every few seconds; 0 in it: unknown, or stages are not
 * as placed, of which alone it knows. `instance` has a placement. Good until the next call. */
struct run_forecast;
const struct run_forecast *daemon_run_forecast(struct daemon *daemon,
                                               const Cluster__Instance *instance);
