/* What computes an instance's requests now. On the loop's thread. */
#pragma once

#include "node/daemon.h"
#include "request/request_run.h"

#include "cluster.pb-c.h"

/* The forecast of what serves now, made anew every few seconds; 0 in it: unknown. `instance` has a
 * placement. Good until the next call. */
struct run_forecast;
const struct run_forecast *daemon_run_forecast(struct daemon *daemon,
                                               const Cluster__Instance *instance);
