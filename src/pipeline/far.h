/* How a pipeline reaches what is not in its process: other machines, by the caller's sending, and
 * the processes of this machine's devices. */
#pragma once

#include "base/buffer.h"
#include "engine/activation.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct children;
struct pipeline_impl;

/* For the stages whose plan names a lane. */
struct lane_source {
    const struct pipeline_impl *impl; /* &pipeline_in_lane (children.h); NULL: there are none */
    struct children *children;
    /* Something was lost in a lane, or is there again: ask pipeline_take_loss() and
     * pipeline_look(). On a thread of the children; it must not block. */
    void (*changed)(void *arg);
    void *arg;
    const _Atomic bool *unwanted; /* optional: once it is set, loading ends with ERROR_CANCELLED */
};

struct far {
    uint64_t instance, epoch; /* of every message; others are refused */
    enum activation_type type;
    const enum activation_type
        *types; /* by the stage that a message goes to; NULL: `type` for all */
    /* The driver's: the numbers of its micro-batches are higher. Above those of every driver of
     * this epoch before it, it knows what comes late for them and drops it. */
    uint64_t numbers_after;
    /* Sends one message (wire.h) to where `stage` is, in order; stage == number of stages: to the
     * driver. Called on devices' and lanes' threads and on that of driver_receive(), several at a
     * time; must not block. It may take the bytes by leaving an empty buffer (or one that it is
     * done with) in their place. Whether they arrive is not its caller's business: who loses a
     * connection says so. NULL: all stages are on this machine, and so is the driver. */
    void (*send)(void *arg, uint32_t stage, struct buffer *message);
    /* Optional: tells the machine of `stage` that a micro-batch is wanted no more (runner_halt()
     * there). It may come before the micro-batch, or never. A driver's; any thread; must not block.
     */
    void (*halt)(void *arg, uint32_t stage, uint64_t number);
    void *arg;
    struct lane_source lanes;
};
