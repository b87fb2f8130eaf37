/* The parts of the cluster file's reader. Private to it. */
#pragma once

#include "clusterfile/cluster.h"
#include "clusterfile/cluster_json.h"
#include "simdevices/sim_values.h"

/* Memory of a device whose file has not said any, until its node is complete. */
#define CLUSTER_MEMORY_UNSAID UINT64_MAX

/* ---- values (cluster_file_values.c) ---------------------------------------------------------- */

/* A node's name or a device's id: printable ASCII without space, '/' and ','. */
enum error_code cluster_read_name(yyjson_val *value, char *out, size_t size,
                                  const struct json_place *place, struct error *err);

/* An amount: a text with a unit. */

enum error_code cluster_read_bytes(yyjson_val *value, uint64_t *out, const struct json_place *place,
                                   struct error *err);
enum error_code cluster_read_amount(yyjson_val *value, enum sim_unit unit, struct sim_range range,
                                    double *out, const struct json_place *place, struct error *err);
extern const struct sim_range cluster_bandwidth_range, cluster_flops_range, cluster_launch_range;

/* ---- devices --------------------------------------------------------------------------------- */

/* The value of "devices" of the cluster's last node: a list, or a report of `medley devices
 * --json`. */
enum error_code cluster_read_devices(struct cluster *cluster, yyjson_val *value,
                                     const struct json_place *place, struct error *err);

/* A device's "calibration" (cluster_file_calibration.c): its types, launch and copies to the
 * host. */
enum error_code cluster_read_calibration(struct cluster_device *device, yyjson_val *value,
                                         const struct json_place *place, struct error *err);
/* ---- links ----------------------------------------------------------------------------------- */

/* The value of "links"; all nodes are there already. */
enum error_code cluster_read_links(struct cluster *cluster, yyjson_val *value,
                                   const struct json_place *place, struct error *err);
