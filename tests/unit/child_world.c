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

enum error_code child_world_try(struct child_world *world, struct error *err)
{
    struct stage_plan plan[CHILD_WORLD_STAGES] = {0};
    struct driver_options filled;
    for (uint32_t i = 0; i < world->n_stages; i++) {
        plan[i].n_layers = layers_of(world, i);
        if (world->children)
            plan[i].lane = world->devices[i];
        else
            plan[i].device = gpu_find(world->gpu, world->devices[i]);
    }
    enum error_code code =
        pipeline_check(world->model, plan, world->n_stages, &world->options, &filled, err);
    if (code)
        return code;
    world->options = filled;
    const struct far far = {.instance = 7,
                            .epoch = 1,
                            .lanes = {.impl = &pipeline_in_lane,
                                      .children = world->children,
                                      .changed = on_changed,
                                      .arg = world,
                                      .unwanted = world->unwanted}};
    code = driver_open_far(world->model, plan, world->n_stages, &world->options, &far,
                           &world->driver, err);
    for (uint32_t i = 0; i < world->n_stages && !code; i++)
        world->lanes[i] = driver_pipeline(world->driver)->stages[i].lane;
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
    driver_close(world->driver);
    world->driver = NULL;
}

pid_t child_world_pid(struct child_world *world, uint32_t stage)
{
    return children_pid(world->children, world->devices[stage]);
}

bool child_world_mind(struct child_world *world, struct error *err)
{
    struct pipeline *pipeline = driver_pipeline(world->driver);
    struct error why = {0};
    const enum pipeline_look look = pipeline_look(pipeline, err);
    bool all_loaded = look == PIPELINE_LOADED;
    if (look == PIPELINE_GIVEN_UP)
        return false;
    if (pipeline_take_loss(pipeline, &why)) {
        driver_lost(world->driver, &why);
        world->n_losses++;
        world->lost = true;
        all_loaded = false; /* found at the next look */
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
