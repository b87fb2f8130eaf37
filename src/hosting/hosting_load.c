/* Opening and closing parts on the thread pool. */
#include "hosting/hosting_impl.h"

#include "base/log.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "model/model_precision.h"

#include <assert.h>
#include <string.h>

/* ---- on a thread of the pool ------------------------------------------------------------ */

static enum error_code part_open_now(struct part *part, struct error *err)
{
    if (rope_stretch_is_set(&part->options.rope) &&
        model_stretch_copy(part->model, &part->options.rope, &part->stretched, err))
        return err->code;
    const struct model *model = part->stretched ? part->stretched : part->model;
    if (!part_drives(part))
        return runner_open(model, part->plan, part->life.n_stages, &part->options, &part->far,
                           &part->runner, err);
    return driver_open_far(model, part->plan, part->life.n_stages, &part->options, &part->far,
                           &part->driver, err);
}

static void part_open_work(uv_work_t *work)
{
    struct part *part = work->data;
    part->code = part_open_now(part, &part->problem);
}

static void part_stop_work(uv_work_t *work)
{
    driver_stop(((struct part *)work->data)->driver);
}

static void part_close_work(uv_work_t *work)
{
    struct part *part = work->data;
    driver_close(part->driver);
    runner_close(part->runner);
}

/* ---- on the loop's thread --------------------------------------------------------------- */

static void part_release_model(struct part *part)
{
    const struct hosting_options *options = &part->hosting->options;
    model_close(part->stretched);
    part->stretched = NULL;
    if (part->model)
        options->release(options->self, part->model_record, &part->file);
    part->model = NULL;
}

void part_failed(struct part *part)
{
    part_release_model(part);
    part->attached = false;
    for (uint32_t i = 0; i < part->life.n_stages; i++)
        part->life.stages[i].bytes = 0;
    log_line(LOG_WARN, "hosting", "instance %s, epoch %llu: %s", part->life.instance,
             (unsigned long long)part->life.epoch, part->life.problem.text);
}

static void part_after_close(uv_work_t *work, int status)
{
    struct part *part = work->data;
    assert(status == 0);
    part->driver = NULL;
    part->runner = NULL;
    part->life.has_driver = false;
    part_draft_clear(part);
    part_release_model(part);
    parts_closed(&part->hosting->parts, &part->life);
    if (part->life.state == PART_GONE)
        log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: unloaded", part->life.instance,
                 (unsigned long long)part->life.epoch);
    hosting_pump(part->hosting);
}

static void part_after_stop(uv_work_t *work, int status)
{
    struct part *part = work->data;
    assert(status == 0);
    parts_stopped(&part->hosting->parts, &part->life);
    hosting_pump(part->hosting);
}

void part_close(struct part *part, bool stops)
{
    const int failure = uv_queue_work(part->hosting->options.loop, &part->work,
                                      stops ? part_stop_work : part_close_work,
                                      stops ? part_after_stop : part_after_close);
    assert(failure == 0); /* it fails only without a function */
    (void)failure;
}

static void part_note_bytes(struct part *part)
{
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        part->life.stages[i].bytes = pipeline_stage_bytes(part_pipeline(part), i);
    }
}

static void part_be_ready(struct part *part)
{
    part_note_bytes(part);
    log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: loaded", part->life.instance,
             (unsigned long long)part->life.epoch);
    struct error why = {0};
    error_set(&why, ERROR_BUSY, "not all of its stages are loaded");
    part_meet(part, reach_opened(&part->reach, uv_now(part->hosting->options.loop)), &why);
}

static void part_after_open(uv_work_t *work, int status)
{
    struct part *part = work->data;
    struct hosting *hosting = part->hosting;
    const bool is_open = !part->code;
    assert(status == 0);
    if (!is_open) {
        part->driver = NULL;
        part->runner = NULL;
    } else if (!part->life.unwanted && reach_is_far(&part->life)) {
        part->code = part_attach(part, &part->problem);
    }
    part->life.has_driver = part->driver;
    parts_opened(&hosting->parts, &part->life, is_open, part->code ? &part->problem : NULL);
    if (part->life.state == PART_READY)
        part_be_ready(part);
    hosting_pump(hosting);
}

static enum error_code part_make_plan(struct part *part, struct error *err)
{
    if (part->options.kv_type >= KV_TYPES)
        return error_set(err, ERROR_UNSUPPORTED, "this version does not know KV cache type %d",
                         (int)part->options.kv_type);
    if (!model_precision_is_known(part->options.precision))
        return error_set(err, ERROR_UNSUPPORTED, "this version does not know weights of type %d",
                         part->options.precision);
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        const struct part_stage *stage = &part->life.stages[i];
        part->plan[i] =
            (struct stage_plan){.n_layers = stage->n_layers, .weights_max = stage->weights_max};
        if (!stage->here)
            continue;
        part->plan[i].device = gpu_find(part->hosting->options.gpu, stage->device);
        if (!part->plan[i].device)
            return error_set(err, ERROR_NOT_FOUND,
                             "stage %u: this node has no device %s, or no longer", i,
                             stage->device);
        if (part->hosting->options.children)
            part->plan[i] = (struct stage_plan){.n_layers = stage->n_layers,
                                                .lane = stage->device,
                                                .weights_max = stage->weights_max};
    }
    return ERROR_NONE;
}

static const struct model *part_take_model(struct part *part)
{
    const struct hosting_options *options = &part->hosting->options;
    struct worker_range ranges[LIMIT_STAGES];
    uint32_t n = 0;
    bool is_streamed = false;
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        const struct part_stage *stage = &part->life.stages[i];
        if (!stage->here)
            continue;
        is_streamed |= stage->weights_max != 0;
        ranges[n++] = (struct worker_range){stage->first_layer, stage->n_layers};
    }
    part->file.precision = (struct worker_precision){
        part->options.precision_allowed ? 0 : (uint32_t)part->options.precision, is_streamed};
    return options->model(options->self, part->model_record, ranges, n, &part->file);
}

void part_open(struct part *part)
{
    struct hosting *hosting = part->hosting;
    const struct hosting_options *options = &hosting->options;
    if (part_make_plan(part, &part->problem)) {
        parts_fail(&hosting->parts, &part->life, &part->problem);
        return;
    }
    part->model = part_take_model(part);
    if (!part->model)
        return; /* its file is being opened */
    if (model_hyperparameters(part->model)->reads_whole)
        part->options.cells = 0; /* it keeps nothing from one text to the next */
    part->far = (struct far){.instance = part->key,
                             .epoch = part->life.epoch,
                             .type = options->wire,
                             .numbers_after = hosting->wall_ms * 1000000,
                             .send = part_send,
                             .halt = part_halt,
                             .arg = part,
                             .lanes = {.impl = &pipeline_in_lane,
                                       .children = options->children,
                                       .changed = part_lanes_changed,
                                       .arg = part,
                                       .unwanted = &part->cancels}};
    parts_opening(&hosting->parts, &part->life);
    const int failure = uv_queue_work(options->loop, &part->work, part_open_work, part_after_open);
    assert(failure == 0);
    (void)failure;
}
