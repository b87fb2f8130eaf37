#include "child_world.h"

#include "base/clock.h"
#include "pipeline/settings.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Noreturn void give_up(const struct error *err)
{
    fprintf(stderr, "%s\n", err->text);
    abort();
}

/* ---- messages ---------------------------------------------------------------------------- */

static void send_to(void *arg, uint32_t stage, struct buffer *message)
{
    struct child_world *world = arg;
    lane_send(world->lanes[stage], message->data, message->size);
}

static enum error_code on_message(void *arg, uint32_t at, struct buffer *message, struct error *err)
{
    struct child_world *world = arg;
    if (at == world->n_stages)
        return driver_receive(world->driver, message->data, message->size, err);
    lane_send(world->lanes[at], message->data, message->size);
    return ERROR_NONE;
}

static void on_changed(void *arg)
{
    atomic_fetch_add(&((struct child_world *)arg)->n_changes, 1);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static uint32_t layers_of(const struct child_world *world, uint32_t stage)
{
    const uint32_t all = model_hyperparameters(world->model)->n_layers,
                   each = all / world->n_stages;
    return stage + 1 < world->n_stages ? each : all - each * (world->n_stages - 1);
}

static enum error_code open_lane(struct child_world *world, uint32_t stage,
                                 const struct wire_shape *shape, struct error *err)
{
    struct child_stage stages[CHILD_WORLD_STAGES] = {0};
    struct lane *lane = NULL;
    for (uint32_t i = 0; i < world->n_stages; i++)
        stages[i] =
            (struct child_stage){.here = strcmp(world->devices[i], world->devices[stage]) == 0,
                                 .n_layers = layers_of(world, i)};
    const struct lane_options options = {
        .device = world->devices[stage],
        .model = world->model,
        .instance = 7,
        .epoch = 1,
        .options = &world->options,
        .stages = stages,
        .n_stages = world->n_stages,
        .shape = shape,
        .receive = on_message,
        .changed = on_changed,
        .arg = world,
        .unwanted = world->unwanted,
    };
    enum error_code code = lane_open(world->children, &options, &lane, err);
    for (uint32_t i = 0; i < world->n_stages; i++) {
        if (stages[i].here)
            world->lanes[i] = lane;
    }
    return code;
}

static void close_lanes(struct child_world *world)
{
    for (uint32_t i = 0; i < world->n_stages; i++) {
        struct lane *lane = world->lanes[i];
        lane_close(lane);
        for (uint32_t k = i; k < world->n_stages; k++) {
            if (world->lanes[k] == lane)
                world->lanes[k] = NULL;
        }
    }
}

enum error_code child_world_try(struct child_world *world, struct error *err)
{
    struct stage_plan plan[CHILD_WORLD_STAGES] = {0};
    struct pipeline_settings settings;
    struct driver_options filled;
    for (uint32_t i = 0; i < world->n_stages; i++)
        plan[i] = (struct stage_plan){
            world->children ? NULL : gpu_find(world->gpu, world->devices[i]), layers_of(world, i)};
    enum error_code code =
        pipeline_check(world->model, plan, world->n_stages, &world->options, &filled, err);
    if (code)
        return code;
    world->options = filled;
    if (!world->children)
        return driver_open(world->model, plan, world->n_stages, &world->options, &world->driver,
                           err);
    pipeline_settings_init(&settings, world->model, plan, world->n_stages, &world->options);
    for (uint32_t i = 0; i < world->n_stages && !code; i++) {
        if (!world->lanes[i])
            code = open_lane(world, i, &settings.shape, err);
    }
    world->far = (struct far){.instance = 7, .epoch = 1, .send = send_to, .arg = world};
    if (!code)
        code = driver_open_far(world->model, plan, world->n_stages, &world->options, &world->far,
                               &world->driver, err);
    if (code)
        close_lanes(world);
    return code;
}

void child_world_open(struct child_world *world)
{
    struct error err = {0};
    if (child_world_try(world, &err))
        give_up(&err);
}

void child_world_close(struct child_world *world)
{
    driver_stop(world->driver);
    close_lanes(world);
    driver_close(world->driver);
    world->driver = NULL;
}

pid_t child_world_pid(struct child_world *world, uint32_t stage)
{
    return children_pid(world->children, world->devices[stage]);
}

bool child_world_mind(struct child_world *world, struct error *err)
{
    bool all_loaded = true;
    struct error why = {0};
    for (uint32_t i = 0; i < world->n_stages && world->children; i++) {
        const enum lane_look look = lane_look(world->lanes[i], err);
        if (look == LANE_GIVEN_UP)
            return false;
        all_loaded &= look == LANE_LOADED;
        if (lane_take_loss(world->lanes[i], &why)) {
            driver_lost(world->driver, &why);
            world->n_losses++;
            world->lost = true;
            all_loaded = false; /* found at the next look */
        }
    }
    if (all_loaded && world->lost) {
        driver_found(world->driver);
        world->lost = false;
    }
    return true;
}

/* ---- replies ----------------------------------------------------------------------------- */

static bool on_token(void *arg, const struct token_event *event)
{
    struct reply *reply = arg;
    reply->tokens[reply->n_tokens++] = event->token;
    if (reply->on_token)
        reply->on_token(reply);
    return true;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct reply *reply = arg;
    if (err)
        reply->error = *err;
    reply->decode_ns += usage->decode_ns;
    reply->n_cached = usage->cached_tokens;
    atomic_store(&reply->ended, 1 + (int)reason);
}

static void submit(struct child_world *world, struct reply *reply)
{
    struct request request = {
        .prompt = reply->tokens,
        .n_prompt = reply->n_tokens,
        .n_predict = reply->n_predict - (reply->n_tokens - reply->n_prompt),
        .sampler = sampler_defaults(),
        .handlers = {.token = on_token, .done = on_done},
        .arg = reply,
    };
    struct error err = {0};
    request.sampler.temperature = 0;
    atomic_store(&reply->ended, 0);
    if (driver_submit(world->driver, &request, NULL, &err))
        give_up(&err);
}

bool child_world_reply(struct child_world *world, struct reply *reply, uint64_t limit_ms)
{
    const uint64_t until_ns = clock_now_ns() + limit_ms * 1000000;
    reply->n_tokens = reply->n_prompt;
    submit(world, reply);
    for (;;) {
        const int ended = atomic_load(&reply->ended);
        if (ended == 1 + FINISH_LENGTH)
            return true;
        if (ended == 1 + FINISH_ERROR && reply->error.code == ERROR_IO) {
            if (!world->lost) {
                reply->n_replays++;
                submit(world, reply);
            }
        } else if (ended) {
            return false;
        }
        if (clock_now_ns() > until_ns)
            return false;
        if (!child_world_mind(world, &reply->error))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
