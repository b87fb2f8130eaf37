/* A cluster file: machines as JSON, written by hand or put together from what `medley devices
 * --json` prints on each of them. docs/planning.md is the user's guide to it,
 * docs/cluster.schema.json its schema; tests hold the three together.
 *
 *     {
 *       "nodes": [
 *         {"name": "studio", "devices": [{"id": "metal0", "memory": "48GiB", "bandwidth":
 *         "400GB/s", "flops":
 * "13TFLOP/s"}]},
 *         {"name": "tower", "devices": { … all that `medley devices --json` prints … }}
 *       ],
 *       "links": [{"between": ["studio", "tower"], "latency_ms": 0.2, "bandwidth": "2.5Gb/s",
 *       "class": "ethernet"}]
 *     }
 *
 * An amount is a text with its unit ("24GiB"), or a number in a field that has the unit in its
 * name. The file is foreign: everything in it is bounded (base/limits.h) and checked, and the first
 * thing that is wrong is refused with its place in the file, "nodes[1].devices[0].memory: …". Pure;
 * any thread. */
#pragma once

#include "clusterfile/cluster.h"

#include <stddef.h>

/* The text need not end with a NUL. ERROR_INVALID, ERROR_NO_MEMORY; then *out is empty. */
enum error_code cluster_parse(const char *text, size_t size, struct cluster *out,
                              struct error *err);

/* Reads the file, of at most LIMIT_CLUSTER_FILE_BYTES. Also ERROR_NOT_FOUND, ERROR_IO; the path is
 * in the text. */
enum error_code cluster_read(const char *path, struct cluster *out, struct error *err);

/* One device as text: "24GiB,900GB/s,80TFLOP/s" in any order: memory, bandwidth and FLOP/s as a
 * datasheet has them (the last may be missing), or a preset's name (simdevices/sim_presets.h).
 * Fills all but id and node. ERROR_INVALID. */
enum error_code cluster_device_parse(const char *text, struct cluster_device *out,
                                     struct error *err);

/* What is kept free of a device where nobody says: a sixteenth of its memory, 512 MiB at most. */
uint64_t cluster_default_reserve(uint64_t memory_bytes);
