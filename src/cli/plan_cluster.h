/* The cluster of this machine's node, for `medley plan` without a cluster file. */
#pragma once

#include "clusterfile/cluster.h"

#include <stdbool.h>

/* Asks the node. *found: one runs here. It is false only with ERROR_NOT_FOUND; but a node may
 * answer that, too. On failure *out is empty. */
enum error_code plan_cluster_ask(struct cluster *out, bool *found, struct error *err);
