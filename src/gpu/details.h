/* What ggml does not tell of a GPU: its architecture, compute units, threads per block, highest
 * clock, driver, and whether it reaches the memory of others.
 *
 * Each fact comes from whoever knows it. The first that knows is kept:
 *
 *   details_vulkan.c  Vulkan: driver, threads per block, compute units where the vendor has an
 *                     extension for them, groups of devices that share memory
 *   details_nvidia.c  NVML: compute capability, highest clock, driver, peers; CUDA's driver API,
 *                     for backend "cuda": multiprocessors, threads per block
 *   details_linux.c   files of the kernel's drivers: AMD's (amdgpu, KFD) and Intel's (i915, xe)
 *
 * A library that is missing, or does not answer, leaves its facts unknown. That is no error.
 *
 * Vulkan is asked for devices of backend "vulkan" alone, whose drivers ggml has loaded into this
 * process already, after a child has done the same (probe.h). Blocks; one thread at a time. */
#pragma once

#include "base/device_info.h"
#include "sensors/sysfs.h"

struct details_places {
    struct sysfs fs;         /* where /sys and /proc are */
    const char *vulkan_path; /* libraries; NULL: the usual name */
    const char *nvml_path;
    const char *cuda_path;
};

/* Fills in what is unknown of these devices; NULL: this machine's places. */
void details_fill(const struct details_places *places, struct device_info *const *infos,
                  uint32_t count);

/* Its sources, for details.c and probe_child.c. Each looks for its own devices among them. */
void details_fill_vulkan(const struct details_places *places, struct device_info *const *infos,
                         uint32_t count);
void details_fill_nvidia(const struct details_places *places, struct device_info *const *infos,
                         uint32_t count);
void details_fill_kernel(const struct details_places *places, struct device_info *info);

/* Into an unknown fact alone. What a driver says becomes printable ASCII; `size` > 0. */
void details_set_text(char *text, size_t size, const char *said);
void details_set_number(struct reading *reading, enum unit unit, uint64_t value);
