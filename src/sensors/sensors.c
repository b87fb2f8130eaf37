#include "sensors/sensors.h"

#include "base/clock.h"
#include "base/mem.h"
#include "sensors/guard.h"

#include <assert.h>
#include <string.h>

/* Every source. The first that has a number wins, so drivers that know the device come before those
 * that know the machine. */
static const struct sensor_impl *const sources[] = {
#ifdef __linux__
    &sensor_impl_nvml,
    &sensor_impl_amdgpu,
    &sensor_impl_level_zero,
    &sensor_impl_intel_sysfs,
    &sensor_impl_hwmon,
    &sensor_impl_rapl,
    &sensor_impl_cpufreq,
    &sensor_impl_thermal_zone,
    &sensor_impl_power_supply,
    &sensor_impl_load,
    &sensor_impl_pressure,
#endif
#ifdef __APPLE__
    &sensor_impl_macos,
#endif
    NULL,
};

enum { SOURCES_MAX = sizeof sources / sizeof *sources, NS_PER_MS = 1000000 };

struct sensors {
    uint32_t answer_ms;
    uint32_t n_devices;
    uint32_t n_guards;
    struct guard *guards[SOURCES_MAX];
};

/* Lets every source read once. Slow ones work at the same time; they are waited for together. */
static void sensors_sweep(struct sensors *sensors, uint64_t wait_ms)
{
    for (uint32_t i = 0; i < sensors->n_guards; i++)
        guard_ask(sensors->guards[i]);
    uint64_t until_ns = clock_now_ns() + wait_ms * NS_PER_MS;
    for (uint32_t i = 0; i < sensors->n_guards; i++)
        guard_wait(sensors->guards[i], until_ns);
}

enum error_code sensors_open(const struct sensors_options *options,
                             const struct device_info *devices, uint32_t n_devices,
                             struct sensors **out, struct error *err)
{
    static const struct sensors_options no_options;
    *out = NULL;
    options = options ? options : &no_options;
    if (n_devices > LIMIT_DEVICES)
        return error_set(err, ERROR_INVALID, "sensors: %u devices are more than %d", n_devices,
                         LIMIT_DEVICES);
    if (options->root && strlen(options->root) >= sizeof((struct sysfs *)0)->root)
        return error_set(err, ERROR_INVALID, "sensors: the path of the root folder is too long");
    struct sensors *sensors = mem_new(sizeof *sensors);
    struct guard_shared *shared = guard_shared_new(options, devices, n_devices);
    bool complete = sensors && shared;
    for (uint32_t i = 0; complete && sources[i]; i++) {
        struct guard *guard = guard_new(sources[i], shared);
        complete = guard != NULL;
        if (guard)
            sensors->guards[sensors->n_guards++] = guard;
    }
    guard_shared_release(shared); /* the guards hold it now */
    if (!complete) {
        sensors_close(sensors);
        return error_set(err, ERROR_NO_MEMORY, "sensors: out of memory");
    }
    sensors->answer_ms = options->answer_ms ? options->answer_ms : LIMIT_SENSOR_ANSWER_MS;
    sensors->n_devices = n_devices;
    sensors_sweep(sensors, options->open_in_background ? 0 : LIMIT_SENSOR_OPEN_MS);
    *out = sensors;
    return ERROR_NONE;
}

void sensors_close(struct sensors *sensors)
{
    if (!sensors)
        return;
    for (uint32_t i = 0; i < sensors->n_guards; i++)
        guard_close_begin(sensors->guards[i]);
    uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_SENSOR_CLOSE_MS * NS_PER_MS;
    for (uint32_t i = 0; i < sensors->n_guards; i++)
        guard_close_end(sensors->guards[i], until_ns);
    mem_free(sensors);
}

void sensors_sample(struct sensors *sensors, struct sensor_sample *out)
{
    sensors_sweep(sensors, sensors->answer_ms);
    memset(out, 0, sizeof *out);
    out->n_devices = sensors->n_devices;
    out->time_ns = clock_now_ns();
    for (uint32_t i = 0; i < sensors->n_guards; i++)
        guard_merge(sensors->guards[i], out->time_ns, out);
}

uint32_t sensors_source_count(const struct sensors *sensors)
{
    return sensors->n_guards;
}

void sensors_source(struct sensors *sensors, uint32_t index, struct sensor_source *out)
{
    assert(index < sensors->n_guards);
    guard_source(sensors->guards[index], out);
}
