/* A cluster as a cluster file, which cluster_parse() (cluster_file.h) reads back as the same
 * cluster: every node, device and link, with its figures and where they are from. Amounts come out
 * in their base unit, so that nothing is rounded but what a decimal number loses of a double (1e-15
 * of it).
 *
 * The format has no word for some clusters that the reader cannot give either, and they are
 * changed: characters that it refuses in a name for people become "?", a card that computes from
 * host memory becomes an integrated one, and an amount beyond its limit there (a rate below 1 KB/s)
 * is left out. Names of nodes and ids of devices are written as they are; the caller's are good
 * ones. Pure; any thread. */
#pragma once

#include "base/buffer.h"
#include "clusterfile/cluster.h"

void cluster_write(const struct cluster *cluster,
                   struct buffer *json); /* appends; no memory: json->failed */
