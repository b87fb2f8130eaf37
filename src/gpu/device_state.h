/* What a device is made of. For device.c and device_buffers.c alone. */
#pragma once

#include "gpu/device_impl.h"
#include "gpu/handles.h"
#include "gpu/queue.h"
#include "gpu/registry.h"
#include "sensors/on_demand.h"

struct device {
    const struct device_impl *impl;
    void *self;
    struct device_info info;
    struct registry_key key;
    struct device_verification verification;
    struct device_calibration calibration;
    bool calibrated;
    bool lost; /* its thread hangs: nobody waits for it any more */
    struct queue queue;
    pthread_mutex_t
        buffers_lock; /* guards `buffers`; held during a transfer, so that nobody frees under it */
    struct handle_table buffers;
    struct on_demand *sensors; /* borrowed; NULL: the table alone tells readings */
    uint32_t sensors_index;
    pthread_mutex_t mirror_lock; /* guards the two behind it */
    bool is_mirror;              /* device_mirror() has given the readings to tell */
    struct device_readings readings;
};

/* Frees every buffer that is left, and the lock and the table with it. */
void device_buffers_deinit(struct device *device);
