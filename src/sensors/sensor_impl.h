/* How a source of readings is made: one table per file. Users read sensors.h instead.
 *
 * open() answers an error with the reason and the step that mends it, which is shown as it is;
 * it is called again later. Every function of one source runs on one thread at a time. A source
 * with `may_block` runs on a thread of its own and may take as long as it likes.
 *
 * read_device() and read_node() fill only what the source has; all fields come zeroed. `index` is
 * below the n_devices that open() was given and stands for the same device each time; a source that
 * does not know the device leaves *out alone. */
#pragma once

#include "sensors/sensors.h"
#include "sensors/sysfs.h"

/* What a source may know of its surroundings; outlives it. */
struct sensor_context {
    struct sysfs fs;
    const char *nvml_path;
    const char *level_zero_path;
    const struct device_info *devices;
    uint32_t n_devices;
};

struct sensor_impl {
    const char *name;
    bool may_block;
    enum error_code (*open)(const struct sensor_context *context, void **self, struct error *err);
    void (*close)(void *self);
    void (*read_device)(void *self, uint32_t index, const struct device_info *info,
                        struct sensor_device *out);         /* NULL: nothing about devices */
    void (*read_node)(void *self, struct sensor_node *out); /* NULL: nothing about the machine */
};

extern const struct sensor_impl sensor_impl_nvml;
extern const struct sensor_impl sensor_impl_amdgpu;
extern const struct sensor_impl sensor_impl_level_zero;
extern const struct sensor_impl sensor_impl_intel_sysfs;
extern const struct sensor_impl sensor_impl_hwmon;
extern const struct sensor_impl sensor_impl_thermal_zone;
extern const struct sensor_impl sensor_impl_rapl;
extern const struct sensor_impl sensor_impl_cpufreq;
extern const struct sensor_impl sensor_impl_load;
extern const struct sensor_impl sensor_impl_pressure;
extern const struct sensor_impl sensor_impl_power_supply;
extern const struct sensor_impl sensor_impl_macos;
