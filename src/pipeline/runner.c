#include "pipeline/runner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "pipeline/pipeline_form.h"
#include "pipeline/settings.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { HALTED_NUMBERS = 16 }; /* that are remembered: a message may come behind its halt */

struct runner {
    struct pipeline pipeline;
    struct microbatch *microbatches;
    uint32_t n_microbatches, n_small;

    /* runner_mind()'s thread's, but for `memory` */
    struct driver_options options; /* whole */
    struct memory_watch memory;
    struct pipeline_form form;
    uint32_t told_step;
    void (*told)(void *arg, const struct memory_step *step); /* NULL: memory is not minded */
    void *told_arg;

    pthread_mutex_t lock;
    pthread_cond_t returned;
    struct microbatch *unused, *unused_small;
    uint32_t n_in_flight;
    uint64_t halted[HALTED_NUMBERS];
    uint32_t n_halted;
};

static struct microbatch *runner_take_microbatch(struct runner *runner, uint32_t n_rows)
{
    pthread_mutex_lock(&runner->lock);
    struct microbatch *microbatch =
        n_rows <= SMALL_ROWS ? microbatch_take(&runner->unused_small) : NULL;
    if (!microbatch)
        microbatch = microbatch_take(&runner->unused);
    if (microbatch) {
        assert(!microbatch->away && runner->n_in_flight < runner->n_microbatches);
        runner->n_in_flight++;
    }
    pthread_mutex_unlock(&runner->lock);
    return microbatch;
}

static void runner_give_back(struct runner *runner, struct microbatch *microbatch)
{
    pthread_mutex_lock(&runner->lock);
    assert(runner->n_in_flight);
    microbatch->number = 0; /* nobody halts it any more */
    microbatch_give(microbatch->is_small ? &runner->unused_small : &runner->unused, microbatch);
    runner->n_in_flight--;
    pthread_cond_signal(&runner->returned);
    pthread_mutex_unlock(&runner->lock);
}

/* ---- memory ---------------------------------------------------------------------------- */

/* Where a smaller form may do, its rows are dropped, and so come again, rather than failed. */
static void runner_note_memory(struct runner *runner, struct microbatch *microbatch)
{
    if (!runner->told || !microbatch->was_short)
        return;
    if (microbatch->error.code != ERROR_NO_MEMORY) {
        memory_watch_in_parts(&runner->memory);
        return;
    }
    if (memory_watch_can_shrink(&runner->memory)) {
        for (uint32_t i = 0; i < microbatch->n_shares; i++) {
            struct share *share = &microbatch->shares[i];
            share->dropped |= share->failed;
            share->failed = false;
        }
        microbatch->error = (struct error){0};
    }
    memory_watch_failed(&runner->memory);
}

void runner_watch(struct runner *runner, void (*told)(void *arg, const struct memory_step *step),
                  void *arg)
{
    assert(told && !runner->told);
    runner->told = told;
    runner->told_arg = arg;
    runner->form.changes = true;
    pipeline_form_opened(&runner->form);
    if (!pipeline_caches_move(&runner->pipeline) &&
        !runner->options.checkpoints) /* which to drop, the driver knows */
        memory_watch_lacks_caches(&runner->memory);
}

static void runner_tell(struct runner *runner, bool is_changing)
{
    struct memory_step step;
    memory_watch_step(&runner->memory, &step);
    step.is_changing = is_changing;
    runner->told_step = step.step;
    runner->told(runner->told_arg, &step);
}

static void runner_change_form(struct runner *runner)
{
    struct error err = {0};
    runner_tell(runner, true);
    pthread_mutex_lock(&runner->lock);
    while (runner->n_in_flight)
        pthread_cond_wait(&runner->returned, &runner->lock);
    pthread_mutex_unlock(&runner->lock);
    pipeline_form_change(&runner->form, &err);
    runner_forget(runner); /* also of stages that there are not: they are new when they come */
    runner_tell(runner, false);
}

void runner_mind(struct runner *runner)
{
    assert(runner->told);
    const struct memory_terms terms = memory_watch_terms(&runner->memory);
    const uint32_t rows = runner->pipeline.shape.rows / terms.divisor;
    atomic_store_explicit(&runner->pipeline.part_rows, rows ? rows : 1, memory_order_relaxed);
    pipeline_give_back(&runner->pipeline, &terms);
    if (pipeline_form_is_due(&runner->form) && pipeline_form_may_try(&runner->form, clock_now_ns()))
        runner_change_form(runner);
    else if (terms.step != runner->told_step)
        runner_tell(runner, false);
}

bool runner_is_as_placed(const struct runner *runner)
{
    return runner->form.form == MEMORY_AS_PLACED && !runner->form.is_unloaded;
}

/* ---- micro-batches --------------------------------------------------------------------- */

/* On a device's thread: to a lane, to the next machine, or back to the driver. */
static void runner_send_on(void *arg, struct microbatch *microbatch)
{
    struct runner *runner = arg;
    runner_note_memory(runner, microbatch);
    assert(runner->pipeline.far.send);
    if (!pipeline_post(&runner->pipeline, microbatch, microbatch->number)) {
        /* Back to the driver without its values, which takes hardly any memory. */
        microbatch_fail(microbatch);
        error_set(&microbatch->error, ERROR_NO_MEMORY,
                  "not enough memory for a message to stage %u", microbatch->at);
        microbatch->at = runner->pipeline.n_stages;
        if (!pipeline_post(&runner->pipeline, microbatch, microbatch->number))
            log_line(LOG_ERROR, "runner", "not enough memory for a message: a micro-batch is lost");
    }
    runner_give_back(runner, microbatch);
}

/* From now on it can be halted; it may have been already. */
static void runner_enter(struct runner *runner, struct microbatch *microbatch, uint64_t number)
{
    pthread_mutex_lock(&runner->lock);
    assert(!microbatch->number);
    microbatch->number = number;
    for (uint32_t i = 0; number && i < HALTED_NUMBERS; i++) {
        if (runner->halted[i] == number)
            atomic_store(&microbatch->is_halted, true);
    }
    pthread_mutex_unlock(&runner->lock);
}

void runner_halt(struct runner *runner, uint64_t number)
{
    if (!number)
        return;
    pthread_mutex_lock(&runner->lock);
    runner->halted[runner->n_halted++ % HALTED_NUMBERS] = number;
    for (uint32_t i = 0; i < runner->n_microbatches; i++) {
        if (runner->microbatches[i].number == number)
            atomic_store(&runner->microbatches[i].is_halted, true);
    }
    pthread_mutex_unlock(&runner->lock);
    pipeline_halt(&runner->pipeline, number);
}

static enum error_code runner_arrive(void *arg, const struct microbatch_message *message,
                                     struct error *err)
{
    struct runner *runner = arg;
    const struct far *far = &runner->pipeline.far;
    const bool behind = message->at == runner->pipeline.n_stages;
    if (behind && !message->own)
        return error_set(err, ERROR_INVALID, "a micro-batch for the driver, which is not here");
    if (behind) { /* out of a lane */
        far->send(far->arg, message->at, message->own);
        return ERROR_NONE;
    }
    struct microbatch *microbatch = runner_take_microbatch(runner, message->n_rows);
    if (!microbatch)
        return error_set(err, ERROR_BUSY, "more than %u micro-batches are under way",
                         runner->n_microbatches);
    assert(runner->pipeline.stages[message->at].device); /* only such a stage brings it here */
    enum error_code code =
        wire_read(message->bytes, message->size, &runner->pipeline.shape, microbatch, err);
    if (code) {
        runner_give_back(runner, microbatch);
        return code;
    }
    assert(microbatch->at == message->at);
    runner_enter(runner, microbatch, message->route.number);
    microbatch_go_on(microbatch);
    return ERROR_NONE;
}

enum error_code runner_receive(struct runner *runner, const void *bytes, size_t size,
                               struct error *err)
{
    struct microbatch_message message;
    enum error_code code = wire_read_message(bytes, size, &message, err);
    return code ? code : pipeline_receive(&runner->pipeline, &message, err);
}

static const struct pipeline_owner runner_as_owner = {
    .leave = runner_send_on,
    .done = runner_send_on,
    .arrive = runner_arrive,
};

void runner_forget(struct runner *runner)
{
    for (uint32_t i = 0; i < runner->pipeline.n_stages; i++) {
        struct pipeline_stage *stage = &runner->pipeline.stages[i];
        memset(stage->poisoned, true, sizeof stage->poisoned);
        memset(stage->sound, 0, sizeof stage->sound);
    }
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

static enum error_code runner_make_microbatches(struct runner *runner,
                                                const struct pipeline_settings *settings,
                                                struct error *err)
{
    runner->microbatches = mem_new_array(runner->n_microbatches, sizeof *runner->microbatches);
    if (!runner->microbatches)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u micro-batches",
                         runner->n_microbatches);
    for (uint32_t i = 0; i < runner->n_microbatches; i++) {
        struct microbatch *microbatch = &runner->microbatches[i];
        const bool is_small = i < runner->n_small;
        enum error_code code =
            microbatch_init(microbatch, &runner->pipeline,
                            is_small ? &settings->small_sizes : &settings->sizes, err);
        if (code)
            return code;
        microbatch->is_small = is_small;
        microbatch_give(is_small ? &runner->unused_small : &runner->unused, microbatch);
    }
    return ERROR_NONE;
}

static enum error_code runner_build(struct runner *runner, const struct model *model,
                                    const struct stage_plan *stages, uint32_t n_stages,
                                    const struct driver_options *options, struct error *err)
{
    struct pipeline_settings settings;
    pipeline_settings_init(&settings, model, stages, n_stages, options);
    runner->pipeline.shape = settings.shape;
    runner->pipeline.n_stages = n_stages;
    runner->pipeline.owner = &runner_as_owner;
    runner->pipeline.arg = runner;
    /* One more for each thread that has sent a micro-batch on and not yet given it back, when the
     * next comes. What only passes lanes' messages on needs none. */
    bool computes = false;
    for (uint32_t i = 0; i < n_stages; i++)
        computes |= stages[i].device != NULL;
    runner->n_small = computes ? settings.n_small : 0;
    runner->n_microbatches = computes ? settings.n_microbatches + settings.n_small + n_stages : 0;
    runner->pipeline.stages = mem_new_array(n_stages, sizeof *runner->pipeline.stages);
    if (!runner->pipeline.stages)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u stages", n_stages);
    enum error_code code = ERROR_NONE;
    if (stages[n_stages - 1].device)
        code = picker_new(model, settings.shape.n_vocab, options->n_slots, options->context,
                          &runner->pipeline.picker, err);
    if (!code && computes)
        code = runner_make_microbatches(runner, &settings, err);
    runner->form = (struct pipeline_form){.pipeline = &runner->pipeline,
                                          .model = model,
                                          .options = &runner->options,
                                          .watch = &runner->memory};
    if (!code)
        code = pipeline_form_init(&runner->form, stages, err);
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
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a runner");
    runner->pipeline.far = *far;
    runner->pipeline.far.halt = NULL; /* the driver tells each machine itself */
    runner->options = filled;
    memory_watch_init(&runner->memory);
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->returned, NULL);
    code = runner_build(runner, model, stages, n_stages, &filled, err);
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
    if (runner->pipeline.stages)
        pipeline_disconnect(&runner->pipeline); /* before: lanes bring micro-batches */
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
    pipeline_form_deinit(&runner->form);
    memory_watch_deinit(&runner->memory);
    picker_free(runner->pipeline.picker);
    pthread_cond_destroy(&runner->returned);
    pthread_mutex_destroy(&runner->lock);
    mem_free(runner);
}
