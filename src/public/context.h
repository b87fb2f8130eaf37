/* A handle: the devices of a machine as one loop sees them. Private to src/public.
 *
 * All of it belongs to the loop's thread but `done`, which device threads append to under
 * `done_lock`. They send the wake-up while they hold the lock: so once the loop has taken a call
 * off the list, that call's device thread does not touch the handle any more. */
#pragma once

#include "public/call.h"
#include "public/machine.h"

#include <limits.h>

struct medley_device {
    struct medley_gpu *gpu;
    struct device *device;
    const struct medley_device_info *info;
    uint32_t n_in_flight;
};

struct medley_gpu {
    uv_loop_t *loop;
    uv_loop_t hidden_loop; /* where loop points when the caller gave none */
    uv_async_t wake;
    struct machine *machine; /* NULL until opened */
    struct medley_device devices[LIMIT_DEVICES];
    uint32_t n_devices;
    uint32_t n_in_flight; /* calls, the opening included */
    bool in_callback;
    bool closing;  /* takes no more calls */
    bool released; /* drained: the machine has been let go */
    bool closed;   /* libuv is done with it */

    uv_mutex_t done_lock;
    struct call *done_first, *done_last;

    uv_work_t work; /* opening, then closing */
    struct call *opening;
    struct gpu_options options;
    char backend[32]; /* what options points to */
    char registry[PATH_MAX];
    char sim_file[PATH_MAX];
    char verifier[PATH_MAX];

    medley_gpu_close_callback close_callback;
    void *close_data;
};

static inline bool context_is_hidden(const struct medley_gpu *gpu)
{
    return gpu->loop == &gpu->hidden_loop;
}

void context_hold(struct medley_gpu *gpu);                       /* one more call in flight */
void context_deliver(struct medley_gpu *gpu, struct call *call); /* one less: its callback */
void context_complete(struct medley_gpu *gpu,
                      struct call *call); /* device threads: hands it to the loop */
