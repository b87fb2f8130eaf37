/* medley top --cluster: all devices of the cluster, as this machine's node shows them. */
#pragma once

#include <stdbool.h>

int top_cluster_run(bool once, bool json); /* an exit status */
