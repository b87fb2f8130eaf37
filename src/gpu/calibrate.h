/* Calibration: what a device really does, through the path that inference takes.
 *
 * On the device's own thread, after a first run that is not counted (a driver compiles its shaders
 * then):
 *
 *   decode   products of a set of 4096 × 4096 matrices of one type with one column, in one graph.
 *            The set is larger than the caches (three times the last-level cache of the CPU, 256
 *            MiB on a GPU), so that the weights come from memory; bytes of weights per second, as
 *            stored in the file.
 *   prefill  one matrix of 4096 columns with 512 columns of input; 2 × 4096 × rows × 512 FLOP. It
 *            has as many rows (64 to 4096) as take some 40 ms, so that a slow device is not
 *            measured for minutes.
 *   write, read, peers   64 MiB, through device_write(), device_read(), device_copy().
 *   launch   the smallest graph, from call to return.
 *
 * Weights lie where the engine would put them: on the CPU in the first extra (repacked, AMX) buffer
 * type that supports the product, else in the device's own; products of K-quants there are our own
 * (product.h). A type that a device does not support is listed without runs. Accelerators that ride
 * with the CPU (BLAS) are not used. A software GPU driver, which compiles for seconds for every
 * type and computes slowly, is measured with q8_0 and q4_0 alone, and with two matrices.
 *
 * Each figure is a median with its spread. A device that does not compute through ggml has its
 * copies measured, no more. */
#pragma once

#include "gpu/device_impl.h"

const char *gpu_registry_file(const struct gpu *gpu); /* gpu.c; "": none */

/* Shared out among what there is to measure. */
enum {
    CALIBRATION_BUDGET_MS = 4000,
    CALIBRATION_SHORT_MS = 700, /* a budget of at most so much makes a short calibration */
};

/* The device's own figures, without peers. `progress` may be NULL. When the device does not answer
 * in time it is given up (device_give_up) and ERROR_DEVICE says so. */
enum error_code calibrate_device(struct device *device, const struct calibration_options *options,
                                 struct device_calibration *out, struct error *err);

/* Copies from one device to another. */
enum error_code calibrate_pair(struct device *from, struct device *to,
                               const struct calibration_options *options,
                               struct device_measurement *out, struct error *err);

/* ---- the products (calibrate_ggml.c); on the device's thread ---------------------------- */

/* How long one measurement goes on: at least 3 runs, then until `budget_ns` is over. */
struct measure_budget {
    uint64_t budget_ns;
    uint64_t end_ns;          /* of everything, by clock_now_ns(): no further run begins after it */
    const _Atomic bool *stop; /* nor after this is set; NULL: it never is */
};

enum { SAMPLES_MAX = 256 };

bool measure_is_over(const struct measure_budget *sampler);

/* Times `run` again and again; false when it fails. The median rate of `work` per run in *out;
 * where work is 0, the median time in ns. */
bool sampler_run(const struct measure_budget *sampler, bool (*run)(void *self), void *self,
                 double work, struct device_measurement *out);

uint32_t calibrate_type_count(struct device *device);
const char *calibrate_type_name(struct device *device, uint32_t index);

/* False when the device fails, or the time is over. True, and no runs: it was probed, and cannot
 * compute the type. */
bool calibrate_type(struct device *device, uint32_t index, const struct measure_budget *sampler,
                    struct calibration_type *out);
bool calibrate_launch(struct device *device, const struct measure_budget *sampler,
                      struct device_measurement *out);
