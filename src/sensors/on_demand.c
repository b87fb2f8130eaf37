#include "sensors/on_demand.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>

static const uint64_t fresh_ns = 100000000;

struct on_demand {
    pthread_mutex_t lock; /* guards all below */
    struct sensors_options options;
    struct sensors *sensors; /* NULL: not asked yet, or not to be had */
    bool failed;
    struct sensor_sample sample;
    uint32_t n_devices;
    struct device_info devices[];
};

struct on_demand *on_demand_new(const struct sensors_options *options, uint32_t n_devices)
{
    assert(n_devices <= LIMIT_DEVICES);
    struct on_demand *on_demand =
        mem_new(sizeof *on_demand + n_devices * sizeof(struct device_info));
    if (!on_demand)
        return NULL;
    pthread_mutex_init(&on_demand->lock, NULL);
    if (options)
        on_demand->options = *options;
    on_demand->n_devices = n_devices;
    return on_demand;
}

void on_demand_set_device(struct on_demand *on_demand, uint32_t index,
                          const struct device_info *info)
{
    assert(index < on_demand->n_devices && !on_demand->sensors);
    on_demand->devices[index] = *info;
}

void on_demand_free(struct on_demand *on_demand)
{
    if (!on_demand)
        return;
    sensors_close(on_demand->sensors);
    pthread_mutex_destroy(&on_demand->lock);
    mem_free(on_demand);
}

struct sensor_device on_demand_read(struct on_demand *on_demand, uint32_t index)
{
    assert(index < on_demand->n_devices);
    pthread_mutex_lock(&on_demand->lock);
    if (!on_demand->sensors && !on_demand->failed) {
        struct error err;
        on_demand->failed =
            sensors_open(&on_demand->options, on_demand->devices, on_demand->n_devices,
                         &on_demand->sensors, &err) != ERROR_NONE;
        if (on_demand->failed)
            log_line(LOG_WARN, "sensors", "%s", err.text);
    }
    uint64_t now_ns = clock_now_ns();
    if (on_demand->sensors &&
        (!on_demand->sample.time_ns || now_ns - on_demand->sample.time_ns > fresh_ns))
        sensors_sample(on_demand->sensors, &on_demand->sample);
    struct sensor_device readings = on_demand->sample.devices[index];
    pthread_mutex_unlock(&on_demand->lock);
    return readings;
}
