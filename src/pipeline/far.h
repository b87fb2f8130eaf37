/* How a pipeline reaches the stages that are on other machines, and they the driver. */
#pragma once

#include "base/buffer.h"
#include "pipeline/wire.h"

struct far {
    uint64_t instance, epoch; /* of every message; others are refused */
    enum activation_type type;
    const enum activation_type
        *types; /* by the stage that a message goes to; NULL: `type` for all */
    /* The driver's: the numbers of its micro-batches are higher. Above those of every driver of
     * this epoch before it, it knows what comes late for them and drops it. */
    uint64_t numbers_after;
    /* Sends one message (wire.h) to where `stage` is, in order; stage == number of stages: to the
     * driver. Called on devices' threads and on that of driver_receive(), several at a time; must
     * not block. It may take the bytes by leaving an empty buffer (or one that it is done with) in
     * their place. Whether they arrive is not its caller's business: who loses a connection says
     * so. */
    void (*send)(void *arg, uint32_t stage, struct buffer *message);
    void *arg;
};

/* Writes the micro-batch into its `message` and sends it on. False: no memory for it. */
bool far_send(const struct far *far, const struct wire_shape *shape, struct microbatch *microbatch,
              uint64_t number);
