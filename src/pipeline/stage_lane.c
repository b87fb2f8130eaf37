/* Stages in the process of their device (children.h): their messages go through its rings. */
#include "pipeline/children.h"
#include "pipeline/pipeline_impl.h"

#include <assert.h>
#include <string.h>

/* On a lane's thread. Its process may write whatever it likes, also before the pipeline is whole,
 * and while it is being closed: then nobody waits for it. */
static enum error_code lane_stage_receive(void *arg, const struct microbatch_message *message,
                                          struct error *err)
{
    struct pipeline *pipeline = arg;
    if (!atomic_load_explicit(&pipeline->serves, memory_order_acquire))
        return ERROR_NONE;
    return pipeline_receive(pipeline, message, err);
}

/* ---- opening and closing --------------------------------------------------------------- */

static bool lane_is_shared(const struct stage_plan *plan, uint32_t a, uint32_t b)
{
    return !plan[a].device && !plan[b].device && plan[a].lane && plan[b].lane &&
           strcmp(plan[a].lane, plan[b].lane) == 0;
}

static void *lane_stage_run_opening(void *arg)
{
    struct pipeline_opening *opening = arg;
    struct pipeline *pipeline = opening->pipeline;
    const struct lane_source *lanes = &pipeline->far.lanes;
    assert(lanes->children && lanes->changed);
    struct child_stage stages[LIMIT_STAGES] = {0};
    struct lane *lane = NULL;
    for (uint32_t i = 0; i < pipeline->n_stages; i++)
        stages[i] = (struct child_stage){
            .here = lane_is_shared(opening->plan, i, opening->at),
            .type = pipeline->stages[i].type,
            .n_layers = opening->plan[i].n_layers,
        };
    struct driver_options own = *opening->options;
    if (opening->plan[opening->at].weights_max) /* a placement has one stage on a device */
        own.weights_max = opening->plan[opening->at].weights_max;
    const struct lane_options options = {
        .device = opening->plan[opening->at].lane,
        .model = opening->model,
        .instance = pipeline->far.instance,
        .epoch = pipeline->far.epoch,
        .options = &own,
        .type = ACTIVATION_F32,
        .stages = stages,
        .n_stages = pipeline->n_stages,
        .shape = &pipeline->shape,
        .receive = lane_stage_receive,
        .arg = pipeline,
        .changed = lanes->changed,
        .changed_arg = lanes->arg,
        .unwanted = lanes->unwanted,
    };
    opening->code = lane_open(lanes->children, &options, &lane, &opening->error);
    assert(!opening->code == (lane != NULL));
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        if (stages[i].here)
            pipeline->stages[i].lane = lane;
    }
    pipeline_opened(opening);
    return NULL;
}

/* The first of a device's stages opens the lane for all of them. */
static void lane_stage_open(struct pipeline_opening *opening)
{
    for (uint32_t i = 0; i < opening->at; i++) {
        if (lane_is_shared(opening->plan, i, opening->at)) {
            pipeline_opened(opening);
            return;
        }
    }
    opening->has_thread = !pthread_create(&opening->thread, NULL, lane_stage_run_opening, opening);
    if (!opening->has_thread)
        lane_stage_run_opening(opening);
}

static void lane_stage_disconnect(struct pipeline *pipeline, uint32_t at)
{
    if (pipeline->stages[at].lane)
        lane_disconnect(pipeline->stages[at].lane);
}

static void lane_stage_close(struct pipeline *pipeline, uint32_t at)
{
    struct lane *lane = pipeline->stages[at].lane;
    for (uint32_t i = at; i < pipeline->n_stages; i++) {
        if (pipeline->stages[i].lane == lane)
            pipeline->stages[i].lane = NULL;
    }
    lane_close(lane);
}

/* ---- micro-batches --------------------------------------------------------------------- */

static void lane_stage_send(struct pipeline *pipeline, struct microbatch *microbatch)
{
    assert(pipeline->stages[microbatch->at].lane);
    pipeline->owner->leave(pipeline->arg, microbatch);
}

static enum error_code lane_stage_pass(struct pipeline *pipeline,
                                       const struct microbatch_message *message, struct error *err)
{
    struct lane *lane = pipeline->stages[message->at].lane;
    assert(lane);
    const enum error_code code = lane_send(lane, message->bytes, message->size);
    if (message->own)
        return ERROR_NONE; /* what is lost there is said there, and not its sender's fault */
    return code == ERROR_INVALID ? error_set(err, code, "a micro-batch of %zu bytes", message->size)
                                 : code;
}

/* Once for all stages of a lane. */
static void lane_stage_halt(struct pipeline *pipeline, uint32_t at, uint64_t number)
{
    struct lane *lane = pipeline->stages[at].lane;
    uint32_t first = 0;
    while (pipeline->stages[first].lane != lane)
        first++;
    if (first == at)
        lane_halt(lane, number);
}

/* ---- questions ------------------------------------------------------------------------- */

static bool lane_stage_take_loss(struct pipeline *pipeline, uint32_t at, struct error *why)
{
    assert(pipeline->stages[at].lane);
    return lane_take_loss(pipeline->stages[at].lane, why);
}

static enum pipeline_look lane_stage_look(struct pipeline *pipeline, uint32_t at, struct error *why)
{
    assert(pipeline->stages[at].lane);
    return lane_look(pipeline->stages[at].lane, why);
}

static uint64_t lane_stage_size(struct pipeline *pipeline, uint32_t at)
{
    return lane_stage_bytes(pipeline->stages[at].lane, at);
}

static uint64_t lane_stage_row_size(struct pipeline *pipeline, uint32_t at)
{
    return lane_row_bytes(pipeline->stages[at].lane, at);
}

static void lane_stage_memory_step(struct pipeline *pipeline, uint32_t at, struct memory_step *out)
{
    *out = lane_memory_step(pipeline->stages[at].lane);
}

const struct pipeline_impl pipeline_in_lane = {
    .name = "lane",
    .open = lane_stage_open,
    .disconnect = lane_stage_disconnect,
    .close = lane_stage_close,
    .send = lane_stage_send,
    .pass = lane_stage_pass,
    .halt = lane_stage_halt,
    .take_loss = lane_stage_take_loss,
    .look = lane_stage_look,
    .bytes = lane_stage_size,
    .row_bytes = lane_stage_row_size,
    .memory_step = lane_stage_memory_step,
};
