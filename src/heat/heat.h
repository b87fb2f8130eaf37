/* Keeps the devices of this machine cool while they work: sensors -> governor -> duty.
 *
 * Every 500 ms a thread reads each device's temperature and power, lets its governor
 * (thermal/governor.h) decide, and sets the share of time that the device may compute
 * (device_set_duty). What the governors know (prediction, headroom, fit) can be looked at with
 * heat_latest(). Whatever changes is logged.
 *
 * A governor that sees heat coming asks for lower precision before it takes duty away.
 * heat_options.on_precision hears that; the wish is logged and shown in any case. A driver answers
 * it where its owner allows another type of weights, as a cluster's leader does: the processor
 * converts them once. Where nobody answers, or that is not enough, the governor goes on to its next
 * measure, the duty, 5 s later.
 *
 * Threading: heat_open() and heat_close() belong to one thread; heat_latest() to any. Close it
 * before whatever waits for jobs of the devices (a driver): a paused device would hold that up. */
#pragma once

#include "gpu/gpu.h"
#include "heat/recent.h"
#include "sensors/telemetry.h"
#include "thermal/view.h"

struct heat;

struct heat_options {
    uint32_t period_ms; /* 0: 500 */
    bool watch_only;    /* govern nothing: the devices' duty is left alone, nobody is asked for
                           anything */

    /* `lower`: make the device's work cheaper if that can be had at no great cost, at whatever loss
     * of quality the user has allowed; not `lower`: it may be as it was. Said once for each change,
     * and taken back by heat_close(). On the sampling thread: leave a note for whoever does it, and
     * return. NULL: nobody can. */
    void (*on_precision)(void *arg, struct device *device, bool lower);
    void *arg;
};

struct heat_device {
    struct device *device;
    struct sensor_device readings; /* a device's own where it reads itself, else the sensors' */
    struct thermal_state thermal;  /* with watch_only: what the governor would do */
};

struct heat_snapshot {
    uint64_t time_ns; /* 0: nothing has been sampled yet */
    struct sensor_node node;
    bool watches_only; /* heat_options.watch_only */
    uint32_t n_devices;
    struct heat_device devices[LIMIT_DEVICES];
};

/* `gpu` outlives it. Returns at once. `options` may be NULL. */
enum error_code heat_open(struct gpu *gpu, const struct heat_options *options, struct heat **out,
                          struct error *err);

/* Gives every device its full duty again. NULL is fine. */
void heat_close(struct heat *heat);

void heat_latest(struct heat *heat, struct heat_snapshot *out);

/* The last minute of a device, one sample a period (recent.h). Returns the newest's time; 0: there
 * is none, or no such device. */
uint64_t heat_recent(struct heat *heat, uint32_t device, uint32_t *period_ms,
                     struct recent_sample out[static RECENT_SAMPLES]);
