#include "pipeline/driver_form.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <assert.h>
#include <string.h>

enum { STREAMED_LAYERS_LEAST = 3, SMALL_TYPE_BLOCK = 32 };

static const uint64_t form_again_ns = 1000 * 1000 * 1000;

/* ---- which forms there are ------------------------------------------------------------------- */

static bool heads_fit_small_caches(const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    return h->n_head_dim_k % SMALL_TYPE_BLOCK == 0 && h->n_head_dim_v % SMALL_TYPE_BLOCK == 0;
}

/* What stays in memory of each stage's weights: half of them, or what the smallest window needs.
 * False: that is nearly all of some stage's. */
static bool form_divide_weights(struct driver *driver)
{
    uint32_t layer = 0;
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++) {
        uint64_t largest = 0, layers = 0;
        const uint64_t weights = stage_memory(driver->pipeline.stages[i].stage).weights;
        for (uint32_t k = 0; k < driver->plan[i].n_layers; k++) {
            const uint64_t bytes = model_layer_cost(driver->model, layer++).bytes;
            largest = bytes > largest ? bytes : largest;
            layers += bytes;
        }
        const uint64_t ends = weights > layers ? weights - layers : 0,
                       least = ends + STREAMED_LAYERS_LEAST * largest + largest / 8; /* aligned */
        driver->streamed_max[i] = weights / 2 > least ? weights / 2 : least;
        if (driver->streamed_max[i] > weights / 8 * 7)
            return false;
    }
    return true;
}

static bool is_on(const struct driver *driver, const struct device *device)
{
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++) {
        if (driver->plan[i].device != device)
            return false;
    }
    return true;
}

enum error_code driver_form_init(struct driver *driver, const struct model *model,
                                 const struct stage_plan *stages, struct error *err)
{
    const uint32_t n = driver->pipeline.n_stages;
    driver->model = model;
    driver->plan = mem_new_array(n, sizeof *driver->plan);
    driver->plan_changed = mem_new_array(n, sizeof *driver->plan_changed);
    driver->streamed_max = mem_new_array(n, sizeof *driver->streamed_max);
    driver->pins = mem_new_array(n, sizeof *driver->pins);
    if (!driver->plan || !driver->plan_changed || !driver->streamed_max || !driver->pins)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u stages", n);
    memcpy(driver->plan, stages, n * sizeof *stages);
    driver->changes_form = true;
    for (uint32_t i = 0; i < n; i++)
        driver->changes_form = driver->changes_form && stages[i].device;
    return ERROR_NONE;
}

void driver_form_deinit(struct driver *driver)
{
    mem_free(driver->plan);
    mem_free(driver->plan_changed);
    mem_free(driver->streamed_max);
    mem_free(driver->pins);
}

static uint64_t form_bytes(struct driver *driver)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++)
        sum += pipeline_stage_bytes(&driver->pipeline, i);
    return sum;
}

void driver_form_opened(struct driver *driver)
{
    struct memory_watch *watch = &driver->memory;
    const struct driver_options *options = &driver->options;
    if (!driver->changes_form || options->kv_type == KV_Q8_0 || options->flash == FLASH_OFF ||
        !heads_fit_small_caches(driver->model))
        memory_watch_lacks(watch, MEMORY_SMALL_CACHES);
    if (!driver->changes_form || options->weights_max || !form_divide_weights(driver))
        memory_watch_lacks(watch, MEMORY_STREAMED);
    if (!driver->changes_form || !options->fallback || is_on(driver, options->fallback))
        memory_watch_lacks(watch, MEMORY_ON_CPU);
    if (!driver->changes_form || !options->cells)
        memory_watch_lacks_caches(watch);
    if (driver->changes_form)
        memory_watch_formed(watch, MEMORY_AS_PLACED, form_bytes(driver));
}

/* ---- changing -------------------------------------------------------------------------------- */

bool driver_form_is_due(struct driver *driver)
{
    driver->form_is_due =
        driver->changes_form &&
        (driver->is_unloaded || memory_watch_terms(&driver->memory).form != driver->form);
    return driver->form_is_due;
}

bool driver_form_can_change(const struct driver *driver, uint64_t now_ns)
{
    return driver->form_is_due && !driver->n_in_flight &&
           (!driver->is_unloaded || now_ns - driver->form_tried_ns >= form_again_ns);
}

/* Each smaller form keeps what the ones before it give up; the CPU has its own memory. */
static void form_fill(struct driver *driver, enum memory_form form, struct driver_options *options)
{
    const struct memory_ladder *ladder = &driver->memory.ladder;
    *options = driver->options;
    memcpy(driver->plan_changed, driver->plan, driver->pipeline.n_stages * sizeof *driver->plan);
    if (form >= MEMORY_SMALL_CACHES && !ladder->lacks[MEMORY_SMALL_CACHES])
        options->kv_type = KV_Q8_0;
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++) {
        if (form == MEMORY_STREAMED)
            driver->plan_changed[i].weights_max = driver->streamed_max[i];
        if (form == MEMORY_ON_CPU)
            driver->plan_changed[i].device = options->fallback;
    }
}

static bool keeps_weights(enum memory_form form)
{
    return form <= MEMORY_SMALL_CACHES;
}

static void form_pin(struct driver *driver, enum memory_form form)
{
    uint32_t layer = 0;
    const bool pins = keeps_weights(form) && keeps_weights(driver->form) && !driver->is_unloaded;
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++) {
        const uint32_t n = driver->plan[i].n_layers;
        driver->pins[i] = pins ? stage_pin(driver->pipeline.stages[i].stage, layer, n) : NULL;
        layer += n;
    }
}

static void form_unpin(struct driver *driver)
{
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++) {
        stage_unpin(driver->pins[i]);
        driver->pins[i] = NULL;
    }
}

/* The ladder looks for another form; where it has none, this one is tried again. */
static void form_failed(struct driver *driver, enum memory_form form, const struct error *err)
{
    driver->is_unloaded = true;
    if (err->code != ERROR_NO_MEMORY && form != MEMORY_AS_PLACED)
        memory_watch_lacks(&driver->memory, form);
    memory_watch_formed(&driver->memory, form, 0);
    memory_watch_failed(&driver->memory);
    log_line(LOG_WARN, "memory", "the stages could not be opened anew: %s", err->text);
}

bool driver_form_change(struct driver *driver, struct error *err)
{
    const enum memory_form form = memory_watch_terms(&driver->memory).form;
    struct driver_options options;
    assert(driver->changes_form && !driver->n_in_flight);
    form_fill(driver, form, &options);
    form_pin(driver, form);
    pipeline_unload(&driver->pipeline);
    driver->form = form;
    driver->form_tried_ns = clock_now_ns();
    const enum error_code code =
        pipeline_load(&driver->pipeline, driver->model, driver->plan_changed, &options, err);
    form_unpin(driver);
    if (code) {
        form_failed(driver, form, err);
        return false;
    }
    driver->is_unloaded = driver->form_is_due = false;
    for (uint32_t i = 0; i < driver->pipeline.n_stages; i++)
        memset(driver->pipeline.stages[i].poisoned, 0, sizeof driver->pipeline.stages[i].poisoned);
    memory_watch_formed(&driver->memory, form, form_bytes(driver));
    return true;
}
