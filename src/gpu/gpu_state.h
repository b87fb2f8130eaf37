/* What gpu_open() has found. For gpu.c and gpu_find.c alone. */
#pragma once

#include "base/limits.h"
#include "gpu/gpu.h"
#include "sensors/on_demand.h"
#include "simdevices/sim_file.h"

#include <limits.h>

enum { BACKENDS_MAX = 16 };

struct gpu {
    struct device *devices[LIMIT_DEVICES];
    uint32_t n_devices;
    struct device_rejected rejected[LIMIT_DEVICES];
    uint32_t n_rejected;
    struct backend_status backends[BACKENDS_MAX];
    uint32_t n_backends;
    char registry[PATH_MAX]; /* "": none */
    char registry_problem[ERROR_TEXT_MAX];
    struct sim_file *simulated; /* NULL: none */
    struct on_demand *sensors;  /* of the devices whose tables have no readings */
};

/* Walks the platform's chain: lets children load and list the backends, then loads, lists, vets and
 * opens. The CPU's backend is loaded already. What is refused is in gpu->rejected. */
enum error_code gpu_find_real(struct gpu *gpu, const struct gpu_options *options,
                              struct error *err);

/* Adds the devices of options->sim_file. */
enum error_code gpu_find_simulated(struct gpu *gpu, const struct gpu_options *options,
                                   struct error *err);
