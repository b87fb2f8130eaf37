/* The opened devices that several handles share, counted by their users.
 *
 * machine_open() and machine_close() block (they load drivers and join threads): libuv's thread
 * pool runs them. All else is quick. What a machine holds is constant between the two. */
#pragma once

#include "base/limits.h"
#include "gpu/gpu.h"

#include <medley/gpu.h>
#include <stdatomic.h>

struct machine_device {
    struct device *device; /* NULL for a rejected one */
    struct medley_device_info info;
    const char *reason; /* of a rejected one */
};

struct machine {
    atomic_uint n_users;
    atomic_uint n_open; /* users that are not closing */
    struct gpu *gpu;
    uint32_t n_devices;
    uint32_t n_rejected;
    struct machine_device devices[LIMIT_DEVICES];
    struct machine_device rejected[LIMIT_DEVICES];
};

enum error_code machine_open(const struct gpu_options *options, struct machine **out,
                             struct error *err); /* one user */
void machine_retain(struct machine *machine);    /* any thread, while somebody else is a user */
/* A user begins to close: his calls are waited for. With the last one every wait within the devices
 * ends (a simulated device that hangs would be waited for in vain). */
void machine_leave(struct machine *machine);
bool machine_release(
    struct machine *machine); /* true: that was the last user; machine_close() is due */
void machine_close(struct machine *machine);
