/* A driver is built, and taken apart. */
#include "pipeline/driver_form.h"

#include "base/mem.h"
#include "base/timed_wait.h"
#include "engine/batch_shape.h"
#include "model/model.h"
#include "pipeline/settings.h"

#include <assert.h>
#include <string.h>

static enum error_code driver_make_microbatches(struct driver *driver,
                                                const struct pipeline_settings *settings,
                                                struct error *err)
{
    const struct microbatch_sizes *sizes = &settings->sizes;
    driver->operations = mem_new_array(sizes->operations, sizeof *driver->operations);
    driver->setups = mem_new_array(sizes->shares, sizeof *driver->setups);
    driver->microbatches = mem_new_array(driver->n_microbatches, sizeof *driver->microbatches);
    if (!driver->operations || !driver->setups || !driver->microbatches)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u micro-batches",
                         driver->n_microbatches);
    for (uint32_t i = 0; i < driver->n_microbatches; i++) {
        struct microbatch *microbatch = &driver->microbatches[i];
        const bool is_small = i < driver->n_small;
        enum error_code code = microbatch_init(microbatch, &driver->pipeline,
                                               is_small ? &settings->small_sizes : sizes, err);
        if (code)
            return code;
        microbatch->is_small = is_small;
        microbatch_give(is_small ? &driver->unused_small : &driver->unused, microbatch);
    }
    return ERROR_NONE;
}

/* What driver_open() has built so far; every part may be missing. */
static void driver_dismantle(struct driver *driver)
{
    assert(!driver->n_in_flight && !driver->live);
    drafter_close(driver->has_drafter);
    if (driver->pipeline.stages)
        pipeline_unload(&driver->pipeline);
    for (uint32_t i = 0; driver->microbatches && i < driver->n_microbatches; i++)
        microbatch_deinit(&driver->microbatches[i]);
    mem_free(driver->microbatches);
    mem_free(driver->operations);
    for (uint32_t i = 0; driver->setups && i < driver->options.n_slots; i++)
        pick_setup_deinit(&driver->setups[i]);
    mem_free(driver->setups);
    mem_free(driver->seeds);
    pipeline_form_deinit(&driver->form);
    mem_free(driver->pipeline.stages);
    picker_free(driver->pipeline.picker);
    slot_table_deinit(&driver->slots);
    memory_watch_deinit(&driver->memory);
    pthread_cond_destroy(&driver->draft_taken);
    pthread_cond_destroy(&driver->wake);
    pthread_mutex_destroy(&driver->lock);
    mem_free(driver);
}

static enum error_code driver_build(struct driver *driver, const struct model *model,
                                    const struct stage_plan *stages, uint32_t n_stages,
                                    struct error *err)
{
    struct pipeline_settings settings;
    pipeline_settings_init(&settings, model, stages, n_stages, &driver->options);
    driver->n_devices = settings.n_devices;
    memcpy(driver->stage_devices, settings.stage_devices, sizeof driver->stage_devices);
    driver->n_microbatches = settings.n_microbatches + settings.n_small;
    driver->n_small = settings.n_small;
    driver->has_room_ahead = !driver->pipeline.far.send; /* this machine's processes are as this */
    if (driver->n_devices > 1)
        driver->pipe = (struct speculation_pipe){.n_devices = settings.n_devices,
                                                 .n_under_way = settings.n_microbatches};
    driver->pipeline.shape = settings.shape;
    driver->model = model;
    driver->pipeline.n_stages = n_stages;
    driver->pipeline.owner = &driver_as_owner;
    driver->pipeline.arg = driver;
    driver->pipeline.stages = mem_new_array(n_stages, sizeof *driver->pipeline.stages);
    if (!driver->pipeline.stages)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u stages", n_stages);
    enum error_code code = slot_table_init(&driver->slots, driver->options.n_slots,
                                           driver->options.context, driver->options.cells, err);
    driver->slots.window = model_hyperparameters(model)->window;
    driver->slots.window_cells =
        kv_window_cells(driver->slots.window, driver->options.batch_rows, driver->options.context);
    driver->slots.whole_only = hyperparameters_has_states(model_hyperparameters(model));
    driver->slots.checkpoints.n = driver->options.checkpoints;
    driver->may_keep_states = driver->options.checkpoints > 0;
    for (uint32_t i = 0; i < n_stages; i++) /* of those elsewhere it is not known yet */
        driver->may_keep_states = driver->may_keep_states && (stages[i].device || stages[i].lane);
    driver->reads_whole = model_hyperparameters(model)->reads_whole;
    driver->has_axes = model_hyperparameters(model)->rope_axes != AXES_NONE;
    driver->gives_no_logits = model_hyperparameters(model)->gives_no_logits;
    if (!code && stages[n_stages - 1].device)
        code = picker_new(driver->model, driver->pipeline.shape.n_vocab, driver->options.n_slots,
                          driver->options.context, &driver->pipeline.picker, err);
    if (!code)
        code = driver_make_microbatches(driver, &settings, err);
    if (!code)
        code = driver_form_init(driver, model, stages, err);
    if (!code)
        code = pipeline_load(&driver->pipeline, model, stages, &driver->options, err);
    if (!code)
        driver_form_opened(driver);
    if (!code && driver->options.draft)
        code = drafter_open(driver->options.draft, model, &driver->options, driver_on_guesses,
                            driver, &driver->has_drafter, err);
    driver->options.draft = NULL;
    if (!code && pthread_create(&driver->thread, NULL, driver_own_thread, driver))
        code = error_set(err, ERROR_IO, "cannot start a thread");
    return code;
}

enum error_code driver_open(const struct model *model, const struct stage_plan *stages,
                            uint32_t n_stages, const struct driver_options *options,
                            struct driver **out, struct error *err)
{
    return driver_open_far(model, stages, n_stages, options, NULL, out, err);
}

enum error_code driver_open_far(const struct model *model, const struct stage_plan *stages,
                                uint32_t n_stages, const struct driver_options *options,
                                const struct far *far, struct driver **out, struct error *err)
{
    struct driver *driver = mem_new(sizeof *driver);
    if (!driver)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a driver");
    pthread_mutex_init(&driver->lock, NULL);
    timed_wait_init(&driver->wake);
    pthread_cond_init(&driver->draft_taken, NULL);
    memory_watch_init(&driver->memory);
    driver->queue_end = &driver->queue;
    driver->incoming_end = &driver->incoming;
    driver->completed_end = &driver->completed;
    if (far)
        driver->pipeline.far = *far;
    driver->last_number = driver->pipeline.far.numbers_after;
    enum error_code code = pipeline_check(model, stages, n_stages, options, &driver->options, err);
    driver->stats.slots_total = driver->options.n_slots;
    driver->stats.cells_total = driver->stats.cells_free = driver->options.cells;
    if (!code)
        code = driver_build(driver, model, stages, n_stages, err);
    if (code) {
        driver_dismantle(driver);
        return code;
    }
    *out = driver;
    return ERROR_NONE;
}

enum error_code driver_add_draft(struct driver *driver, const struct driver_draft *draft,
                                 struct error *err)
{
    struct drafter *drafter;
    assert(!driver->has_drafter && !driver->closing);
    enum error_code code = drafter_open(draft, driver->model, &driver->options, driver_on_guesses,
                                        driver, &drafter, err);
    if (code)
        return code;
    pthread_mutex_lock(&driver->lock);
    driver->has_drafter = drafter;
    pthread_mutex_unlock(&driver->lock);
    return ERROR_NONE;
}

void driver_drop_draft(struct driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    struct drafter *drafter = driver->has_drafter;
    driver->has_drafter = NULL;
    pthread_cond_signal(&driver->wake);
    while (driver->drafter != driver->has_drafter)
        pthread_cond_wait(&driver->draft_taken, &driver->lock);
    pthread_mutex_unlock(&driver->lock);
    drafter_close(drafter);
}

static struct drafter *driver_find_draft(struct driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    struct drafter *drafter = driver->has_drafter;
    pthread_mutex_unlock(&driver->lock);
    return drafter;
}

void driver_mind_draft(struct driver *driver)
{
    struct drafter *drafter = driver_find_draft(driver);
    if (drafter)
        drafter_mind(drafter);
}

uint64_t driver_draft_bytes(struct driver *driver)
{
    struct drafter *drafter = driver_find_draft(driver);
    return drafter ? drafter_bytes(drafter) : 0;
}

void driver_close(struct driver *driver)
{
    if (!driver)
        return;
    if (!driver->stopped)
        driver_stop(driver);
    driver_dismantle(driver);
}
