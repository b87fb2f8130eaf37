/* Stages on other machines: their messages are the caller's to send (far.h). */
#include "pipeline/pipeline_impl.h"

static void far_stage_send(struct pipeline *pipeline, struct microbatch *microbatch)
{
    pipeline->owner->leave(pipeline->arg, microbatch);
}

/* What a link brings is for a stage here; only a lane's messages go on to another machine. */
static enum error_code far_stage_pass(struct pipeline *pipeline,
                                      const struct microbatch_message *message, struct error *err)
{
    if (!message->own)
        return error_set(err, ERROR_INVALID, "a micro-batch for stage %u, which is not here",
                         message->at);
    pipeline->far.send(pipeline->far.arg, message->at, message->own);
    return ERROR_NONE;
}

static void far_stage_halt(struct pipeline *pipeline, uint32_t at, uint64_t number)
{
    const struct far *far = &pipeline->far;
    if (far->halt)
        far->halt(far->arg, at, number);
}

const struct pipeline_impl pipeline_far = {
    .name = "far",
    .send = far_stage_send,
    .pass = far_stage_pass,
    .halt = far_stage_halt,
};
