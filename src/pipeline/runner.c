#include "pipeline/runner.h"

#include "base/log.h"
#include "base/mem.h"
#include "pipeline/load.h"
#include "pipeline/settings.h"

#include <pthread.h>
#include <string.h>

struct runner {
    struct far far;
    struct wire_shape shape;
    struct pipeline pipeline;
    struct microbatch *microbatches;
    uint32_t n_microbatches;

    pthread_mutex_t lock;
    pthread_cond_t returned;
    struct microbatch *unused;
    uint32_t n_in_flight;
};

static struct microbatch *take(struct runner *runner)
{
    pthread_mutex_lock(&runner->lock);
    struct microbatch *microbatch = runner->unused;
    if (microbatch) {
        runner->unused = microbatch->next;
        runner->n_in_flight++;
    }
    pthread_mutex_unlock(&runner->lock);
    return microbatch;
}

static void give_back(struct runner *runner, struct microbatch *microbatch)
{
    pthread_mutex_lock(&runner->lock);
    microbatch->next = runner->unused;
    runner->unused = microbatch;
    runner->n_in_flight--;
    pthread_cond_signal(&runner->returned);
    pthread_mutex_unlock(&runner->lock);
}

/* On a device's thread: to the next machine, or back. */
static void send_on(void *arg, struct microbatch *microbatch)
{
    struct runner *runner = arg;
    if (!far_send(&runner->far, &runner->shape, microbatch, microbatch->number)) {
        /* Back to the driver without its values, which takes hardly any memory. */
        microbatch_fail(microbatch);
        error_set(&microbatch->error, ERROR_NO_MEMORY, "no memory for a message to stage %u",
                  microbatch->at);
        microbatch->at = runner->pipeline.n_stages;
        if (!far_send(&runner->far, &runner->shape, microbatch, microbatch->number))
            log_line(LOG_ERROR, "runner", "no memory for a message: a micro-batch is lost");
    }
    give_back(runner, microbatch);
}

enum error_code runner_receive(struct runner *runner, const void *bytes, size_t size,
                               struct error *err)
{
    struct wire_route route;
    enum error_code code = wire_read_route(bytes, size, &route, err);
    if (code)
        return code;
    if (route.instance != runner->far.instance || route.epoch != runner->far.epoch)
        return error_set(err, ERROR_INVALID,
                         "a micro-batch of instance %llu, placement %llu; here is %llu, %llu",
                         (unsigned long long)route.instance, (unsigned long long)route.epoch,
                         (unsigned long long)runner->far.instance,
                         (unsigned long long)runner->far.epoch);
    struct microbatch *microbatch = take(runner);
    if (!microbatch)
        return error_set(err, ERROR_BUSY, "more than %u micro-batches are under way",
                         runner->n_microbatches);
    code = wire_read(bytes, size, &runner->shape, microbatch, err);
    if (!code && !runner->pipeline.stages[microbatch->at].device)
        code = error_set(err, ERROR_INVALID, "a micro-batch for stage %u, which is not here",
                         microbatch->at);
    if (code) {
        give_back(runner, microbatch);
        return code;
    }
    microbatch->number = route.number;
    microbatch_go_on(microbatch);
    return ERROR_NONE;
}

void runner_forget(struct runner *runner)
{
    for (uint32_t i = 0; i < runner->pipeline.n_stages; i++)
        memset(runner->pipeline.stages[i].poisoned, true,
               sizeof runner->pipeline.stages[i].poisoned);
}

struct pipeline *runner_pipeline(struct runner *runner)
{
    return &runner->pipeline;
}

const struct stage *runner_stage(const struct runner *runner, uint32_t index)
{
    return index < runner->pipeline.n_stages ? runner->pipeline.stages[index].stage : NULL;
}

/* ---- opening and closing -------------------------------------------------------------- */

static enum error_code make_microbatches(struct runner *runner,
                                         const struct microbatch_sizes *sizes, struct error *err)
{
    runner->microbatches = mem_new_array(runner->n_microbatches, sizeof *runner->microbatches);
    if (!runner->microbatches)
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u micro-batches",
                         runner->n_microbatches);
    for (uint32_t i = 0; i < runner->n_microbatches; i++) {
        enum error_code code =
            microbatch_init(&runner->microbatches[i], &runner->pipeline, sizes, err);
        if (code)
            return code;
        runner->microbatches[i].next = runner->unused;
        runner->unused = &runner->microbatches[i];
    }
    return ERROR_NONE;
}

static enum error_code build(struct runner *runner, const struct model *model,
                             const struct stage_plan *stages, uint32_t n_stages,
                             const struct driver_options *options, struct error *err)
{
    struct pipeline_settings settings;
    pipeline_settings_init(&settings, model, stages, n_stages, options);
    runner->shape = settings.shape;
    /* One more for each thread that has sent a micro-batch on and not yet given it back, when the
     * next comes. */
    runner->n_microbatches = settings.n_microbatches + n_stages;
    runner->pipeline =
        (struct pipeline){.n_stages = n_stages, .forward = send_on, .done = send_on, .arg = runner};
    runner->pipeline.stages = mem_new_array(n_stages, sizeof *runner->pipeline.stages);
    if (!runner->pipeline.stages)
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u stages", n_stages);
    enum error_code code = ERROR_NONE;
    if (stages[n_stages - 1].device)
        code = picker_new(settings.shape.n_vocab, options->n_slots, options->context,
                          &runner->pipeline.picker, err);
    if (!code)
        code = make_microbatches(runner, &settings.sizes, err);
    if (!code)
        code = pipeline_load(&runner->pipeline, model, stages, options, err);
    return code;
}

enum error_code runner_open(const struct model *model, const struct stage_plan *stages,
                            uint32_t n_stages, const struct driver_options *options,
                            const struct far *far, struct runner **out, struct error *err)
{
    struct driver_options filled;
    enum error_code code = pipeline_check(model, stages, n_stages, options, &filled, err);
    if (code)
        return code;
    struct runner *runner = mem_new(sizeof *runner);
    if (!runner)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a runner");
    runner->far = *far;
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->returned, NULL);
    code = build(runner, model, stages, n_stages, &filled, err);
    if (code)
        runner_close(runner);
    else
        *out = runner;
    return code;
}

void runner_close(struct runner *runner)
{
    if (!runner)
        return;
    pthread_mutex_lock(&runner->lock);
    while (runner->n_in_flight)
        pthread_cond_wait(&runner->returned, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
    if (runner->pipeline.stages)
        pipeline_unload(&runner->pipeline);
    for (uint32_t i = 0; runner->microbatches && i < runner->n_microbatches; i++)
        microbatch_deinit(&runner->microbatches[i]);
    mem_free(runner->microbatches);
    mem_free(runner->pipeline.stages);
    picker_free(runner->pipeline.picker);
    pthread_cond_destroy(&runner->returned);
    pthread_mutex_destroy(&runner->lock);
    mem_free(runner);
}
