#include "pipeline/pipeline_form.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu.h"
#include "model/model_precision.h"

#include <assert.h>
#include <string.h>

enum { STREAMED_LAYERS_LEAST = 3, SMALL_TYPE_BLOCK = 32 };

static const uint64_t form_again_ns = 1000 * 1000 * 1000;

/* ---- which forms there are ------------------------------------------------------------------- */

static bool heads_fit_small_caches(const struct model *model)
{
    return hyperparameters_heads_fit(model_hyperparameters(model), SMALL_TYPE_BLOCK);
}

/* What stays in memory of a stage's weights: half of them, or what the smallest window needs.
 * False: that is nearly all of them. */
static bool form_divide_stage(struct pipeline_form *form, uint32_t at, uint32_t first_layer)
{
    uint64_t largest = 0, layers = 0;
    const uint64_t weights = stage_memory(form->pipeline->stages[at].stage).weights;
    for (uint32_t k = 0; k < form->plan[at].n_layers; k++) {
        const uint64_t bytes = model_layer_cost(form->model, first_layer + k).bytes;
        largest = bytes > largest ? bytes : largest;
        layers += bytes;
    }
    const uint64_t ends = weights > layers ? weights - layers : 0,
                   least = ends + STREAMED_LAYERS_LEAST * largest + largest / 8; /* aligned */
    form->streamed_max[at] = weights / 2 > least ? weights / 2 : least;
    return form->streamed_max[at] <= weights / 8 * 7;
}

static bool form_divide_weights(struct pipeline_form *form)
{
    uint32_t layer = 0;
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++) {
        if (form->plan[i].device &&
            (form->plan[i].weights_max || !form_divide_stage(form, i, layer)))
            return false;
        layer += form->plan[i].n_layers;
    }
    return true;
}

static bool form_is_on(const struct pipeline_form *form, const struct device *device)
{
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++) {
        if (form->plan[i].device && form->plan[i].device != device)
            return false;
    }
    return true;
}

enum error_code pipeline_form_init(struct pipeline_form *form, const struct stage_plan *stages,
                                   struct error *err)
{
    const uint32_t n = form->pipeline->n_stages;
    assert(form->model && form->options && form->watch);
    form->plan = mem_new_array(n, sizeof *form->plan);
    form->plans = mem_new_array(n, sizeof *form->plans);
    form->streamed_max = mem_new_array(n, sizeof *form->streamed_max);
    form->pins = mem_new_array(n, sizeof *form->pins);
    if (!form->plan || !form->plans || !form->streamed_max || !form->pins)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u stages", n);
    memcpy(form->plan, stages, n * sizeof *stages);
    form->precision = form->options->precision;
    return ERROR_NONE;
}

void pipeline_form_deinit(struct pipeline_form *form)
{
    mem_free(form->plan);
    mem_free(form->plans);
    mem_free(form->streamed_max);
    mem_free(form->pins);
}

static uint64_t form_bytes(const struct pipeline_form *form)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++)
        sum += pipeline_stage_bytes(form->pipeline, i);
    return sum;
}

/* What each device needs more to hold all weights; the input's and the output's may be on both the
 * first and the last, which then ask for a little too much. */
static void form_measure_growth(struct pipeline_form *form)
{
    const struct pipeline *pipeline = form->pipeline;
    const uint64_t all = model_weight_bytes(form->model);
    uint64_t layers[LIMIT_STAGES] = {0}, sum = 0;
    uint32_t layer = 0;
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        for (uint32_t k = 0; k < form->plan[i].n_layers; k++)
            layers[i] += model_layer_cost(form->model, layer++).bytes;
        sum += layers[i];
    }
    for (uint32_t i = 0; i < pipeline->n_stages; i++) {
        const bool is_end = i == 0 || i + 1 == pipeline->n_stages;
        const uint64_t whole = layers[i] + (is_end && all > sum ? all - sum : 0),
                       now = stage_memory(pipeline->stages[i].stage).weights;
        memory_watch_can_grow(form->watch, form->plan[i].device, whole > now ? whole - now : 0);
    }
}

static bool form_may_grow(const struct pipeline_form *form)
{
    bool streams = form->options->weights_max > 0;
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++)
        streams = streams || form->plan[i].weights_max;
    return form->changes && form->options->weights_may_grow && streams;
}

void pipeline_form_opened(struct pipeline_form *form)
{
    struct memory_watch *watch = form->watch;
    const struct driver_options *options = form->options;
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++) {
        if (form->plan[i].device)
            memory_watch_add(watch, form->plan[i].device);
    }
    if (!form->changes || options->kv_is_chosen || options->flash == FLASH_OFF ||
        !heads_fit_small_caches(form->model)) {
        memory_watch_lacks(watch, MEMORY_SMALL_CACHES);
        memory_watch_lacks(watch, MEMORY_SMALLER_CACHES);
    }
    if (!form->changes || options->weights_max || !form_divide_weights(form))
        memory_watch_lacks(watch, MEMORY_STREAMED);
    form->can_lower = form->changes && model_is_smaller_at(form->model, options->precision_allowed,
                                                           options->precision);
    if (!form->can_lower)
        memory_watch_lacks(watch, MEMORY_LOWER);
    if (!form->changes || !options->fallback || form_is_on(form, options->fallback))
        memory_watch_lacks(watch, MEMORY_ON_CPU);
    if (form_may_grow(form))
        form_measure_growth(form);
    if (form->changes)
        memory_watch_formed(watch, MEMORY_AS_PLACED, form_bytes(form));
}

/* ---- changing -------------------------------------------------------------------------------- */

void pipeline_form_ask_lower(struct pipeline_form *form, const struct device *device, bool lower)
{
    bool is_own = false;
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++)
        is_own = is_own || form->plan[i].device == device;
    if (is_own && lower)
        atomic_fetch_add(&form->n_hot, 1);
    else if (is_own)
        atomic_fetch_sub(&form->n_hot, 1);
}

static int precision_due(const struct pipeline_form *form, enum memory_form next)
{
    const bool is_hot = atomic_load(&form->n_hot) > 0;
    const bool lower = form->can_lower && (is_hot || next == MEMORY_LOWER);
    return lower ? form->options->precision_allowed : form->options->precision;
}

bool pipeline_form_is_due(struct pipeline_form *form)
{
    const struct memory_terms terms = memory_watch_terms(form->watch);
    return form->changes &&
           (form->is_unloaded || terms.form != form->form || terms.is_grown != form->is_grown ||
            precision_due(form, terms.form) != form->precision);
}

bool pipeline_form_may_try(const struct pipeline_form *form, uint64_t now_ns)
{
    const struct memory_terms terms = memory_watch_terms(form->watch);
    return !form->is_unloaded || now_ns - form->tried_ns >= form_again_ns ||
           terms.form != form->form || terms.is_grown != form->is_grown;
}

/* Each smaller form keeps what the ones before it give up, but that converted weights are not
 * streamed; the CPU has its own memory. */
static void form_fill(struct pipeline_form *form, const struct memory_terms *terms,
                      struct driver_options *options)
{
    const enum memory_form next = terms->form;
    const struct memory_ladder *ladder = &form->watch->ladder;
    *options = *form->options;
    memcpy(form->plans, form->plan, form->pipeline->n_stages * sizeof *form->plan);
    if (next >= MEMORY_SMALLER_CACHES && !ladder->lacks[MEMORY_SMALLER_CACHES])
        options->kv_type = KV_Q4_0;
    else if (next >= MEMORY_SMALL_CACHES && !ladder->lacks[MEMORY_SMALL_CACHES])
        options->kv_type = KV_Q8_0;
    options->precision = precision_due(form, next);
    const bool is_lower = options->precision != form->options->precision;
    options->weights_max = terms->is_grown ? 0 : options->weights_max;
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++) {
        if (terms->is_grown)
            form->plans[i].weights_max = 0;
        if (next == MEMORY_STREAMED && !is_lower && form->plan[i].device)
            form->plans[i].weights_max = form->streamed_max[i];
        if (next == MEMORY_ON_CPU && form->plan[i].device)
            form->plans[i].device = options->fallback;
    }
}

static bool keeps_weights(enum memory_form form)
{
    return form <= MEMORY_SMALLER_CACHES;
}

static void form_pin(struct pipeline_form *form, const struct memory_terms *terms, int precision)
{
    uint32_t layer = 0;
    const bool pins = keeps_weights(terms->form) && keeps_weights(form->form) &&
                      terms->is_grown == form->is_grown && precision == form->precision &&
                      !form->is_unloaded;
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++) {
        const uint32_t n = form->plan[i].n_layers;
        const struct stage *stage = pins ? form->pipeline->stages[i].stage : NULL;
        form->pins[i] = stage ? stage_pin(stage, layer, n) : NULL;
        layer += n;
    }
}

static void form_unpin(struct pipeline_form *form)
{
    for (uint32_t i = 0; i < form->pipeline->n_stages; i++) {
        stage_unpin(form->pins[i]);
        form->pins[i] = NULL;
    }
}

/* The ladder looks for another form; where it has none, this one is tried again. */
static void form_failed(struct pipeline_form *form, const struct error *err)
{
    form->is_unloaded = true;
    if (err->code != ERROR_NO_MEMORY && form->precision != form->options->precision) {
        form->can_lower = false;
        memory_watch_lacks(form->watch, MEMORY_LOWER);
    } else if (err->code != ERROR_NO_MEMORY && form->form != MEMORY_AS_PLACED) {
        memory_watch_lacks(form->watch, form->form);
    }
    memory_watch_formed(form->watch, form->form, 0);
    if (form->is_grown)
        memory_watch_cannot_grow(form->watch);
    else
        memory_watch_failed(form->watch);
    log_line(LOG_WARN, "memory", "the stages could not be opened anew: %s", err->text);
}

static void form_say_precision(const struct pipeline_form *form, int before)
{
    if (form->precision == before)
        return;
    if (form->precision == form->options->precision)
        log_line(LOG_WARN, "precision", "weights are %s again",
                 form->precision ? model_precision_name(form->precision) : "as stored");
    else
        log_line(LOG_WARN, "precision", "weights are %s from now on, as --allow-precision says: %s",
                 model_precision_name(form->precision),
                 atomic_load(&form->n_hot) ? "a device is hot" : "memory is short");
}

static void form_say_growth(const struct pipeline_form *form, bool is_grown)
{
    if (is_grown != form->is_grown)
        log_line(LOG_WARN, "memory", "%s",
                 is_grown ? "free: all weights go to memory, none come from the disk any more"
                          : "short: weights come from the disk again");
}

bool pipeline_form_change(struct pipeline_form *form, struct error *err)
{
    const struct memory_terms terms = memory_watch_terms(form->watch);
    struct pipeline *pipeline = form->pipeline;
    struct driver_options options;
    assert(form->changes);
    form_fill(form, &terms, &options);
    form_pin(form, &terms, options.precision);
    const int before = form->precision;
    pipeline_unload(pipeline);
    form_say_growth(form, terms.is_grown);
    form->form = terms.form;
    form->is_grown = terms.is_grown;
    memory_watch_grown(form->watch, terms.is_grown);
    form->precision = options.precision;
    form->tried_ns = clock_now_ns();
    const enum error_code code = pipeline_load(pipeline, form->model, form->plans, &options, err);
    form_unpin(form);
    form->is_unloaded = code;
    if (code) {
        form_failed(form, err);
        return false;
    }
    for (uint32_t i = 0; i < pipeline->n_stages; i++)
        memset(pipeline->stages[i].poisoned, 0, sizeof pipeline->stages[i].poisoned);
    /* what the form takes is told of the weights that belong to it */
    const bool is_plain = !terms.is_grown && (terms.form == MEMORY_LOWER) ==
                                                 (form->precision != form->options->precision);
    memory_watch_formed(form->watch, terms.form, is_plain ? form_bytes(form) : 0);
    form_say_precision(form, before);
    return true;
}
