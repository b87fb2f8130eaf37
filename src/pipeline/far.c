#include "pipeline/far.h"

bool far_send(const struct far *far, const struct wire_shape *shape, struct microbatch *microbatch,
              uint64_t number)
{
    struct wire_route route = {.instance = far->instance, .epoch = far->epoch, .number = number};
    struct buffer *message = &microbatch->message;
    const bool behind = microbatch->at == shape->n_stages;
    const enum activation_type type =
        far->types && !behind ? far->types[microbatch->at] : far->type;
    buffer_clear(message);
    wire_write(microbatch, &route, type, shape, microbatch->scratch, message);
    if (message->failed)
        return false;
    far->send(far->arg, microbatch->at, message);
    return true;
}
