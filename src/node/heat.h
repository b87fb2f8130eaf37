/* Keeps the devices of this machine cool while they work: sensors -> governor -> duty.
 *
 * Every 500 ms a thread reads each device's temperature and power, lets its governor (thermal/governor.h)
 * decide, and sets the share of time that the device may compute (device_set_duty). What the governors
 * know (prediction, headroom, fit) can be looked at with heat_latest(). Whatever changes is logged.
 *
 * Nothing answers a governor's wish for lower precision yet; it is shown and logged.
 *
 * Threading: heat_open() and heat_close() belong to one thread; heat_latest() to any. Close it before
 * whatever waits for jobs of the devices (a driver): a paused device would hold that up. */
#pragma once

#include "gpu/gpu.h"
#include "gpu/sensors/telemetry.h"
#include "thermal/view.h"

struct heat;

struct heat_options {
    uint32_t period_ms; /* 0: 500 */
    bool watch_only;    /* govern nothing: the devices' duty is left alone */
};

struct heat_device {
    struct device *device;
    struct sensor_device readings; /* a device's own where it reads itself, else the sensors' */
    struct thermal_state thermal;  /* with watch_only: what the governor would do */
};

struct heat_snapshot {
    uint64_t time_ns; /* 0: nothing has been sampled yet */
    struct sensor_node node;
    uint32_t n_devices;
    struct heat_device devices[LIMIT_DEVICES];
};

/* `gpu` outlives it. Returns at once. `options` may be NULL. */
enum error_code heat_open(struct gpu *gpu, const struct heat_options *options, struct heat **out, struct error *err);

/* Gives every device its full duty again. NULL is fine. */
void heat_close(struct heat *heat);

void heat_latest(struct heat *heat, struct heat_snapshot *out);

/* The sensors' sources, and why one is not available. */
uint32_t heat_source_count(const struct heat *heat);
void heat_source(struct heat *heat, uint32_t index, struct sensor_source *out);
