/* Opening and closing parts on the thread pool. */
#include "hosting/hosting_impl.h"

#include "base/log.h"
#include "gpu/gpu.h"

#include <assert.h>
#include <string.h>

/* ---- on a thread of the pool ------------------------------------------------------------ */

static enum error_code open_part(struct part *part, struct error *err)
{
    if (!part_drives(part))
        return runner_open(part->model, part->plan, part->n_stages, &part->options, &part->far,
                           &part->runner, err);
    return driver_open_far(part->model, part->plan, part->n_stages, &part->options, &part->far,
                           &part->driver, err);
}

static void open_work(uv_work_t *work)
{
    struct part *part = (struct part *)work;
    part->code = open_part(part, &part->problem);
}

static void stop_work(uv_work_t *work)
{
    driver_stop(((struct part *)work)->driver);
}

static void close_work(uv_work_t *work)
{
    struct part *part = (struct part *)work;
    driver_close(part->driver);
    runner_close(part->runner);
}

/* ---- on the loop's thread --------------------------------------------------------------- */

static void release_model(struct part *part)
{
    const struct hosting_options *options = &part->hosting->options;
    if (part->model)
        options->release(options->self, part->model_record);
    part->model = NULL;
}

static void fail(struct part *part)
{
    release_model(part);
    part->state = PART_FAILED;
    part->attached = false;
    for (uint32_t i = 0; i < part->n_stages; i++)
        part->stages[i].bytes = 0;
    log_line(LOG_WARN, "hosting", "instance %s, epoch %llu: %s", part->instance,
             (unsigned long long)part->epoch, part->problem.text);
    hosting_tell(part->hosting);
}

static void after_close(uv_work_t *work, int status)
{
    struct part *part = (struct part *)work;
    struct hosting *hosting = part->hosting;
    assert(status == 0);
    part->driver = NULL;
    part->runner = NULL;
    release_model(part);
    hosting->n_jobs--;
    if (part->code) {
        fail(part);
    } else {
        part->state = PART_GONE;
        log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: unloaded", part->instance,
                 (unsigned long long)part->epoch);
    }
    hosting_tell(hosting);
}

static void after_stop(uv_work_t *work, int status)
{
    struct part *part = (struct part *)work;
    assert(status == 0);
    part->hosting->n_jobs--;
    part->state = PART_LEAVING;
    part->stopped = true;
    part->told = false;
    hosting_tell(part->hosting);
}

/* A driver in two jobs: who had it may have been about to cancel a request when the first ended
 * it. */
static void begin_closing(struct part *part)
{
    const bool stops = part->driver && !part->stopped;
    part->state = PART_CLOSING;
    part->hosting->n_jobs++;
    int failure = uv_queue_work(part->hosting->options.loop, &part->work,
                                stops ? stop_work : close_work, stops ? after_stop : after_close);
    assert(failure == 0); /* it fails only without a function */
    (void)failure;
}

static void note_bytes(struct part *part)
{
    for (uint32_t i = 0; i < part->n_stages; i++) {
        part->stages[i].bytes = pipeline_stage_bytes(part_pipeline(part), i);
    }
}

static void be_ready(struct part *part)
{
    part->state = PART_READY;
    note_bytes(part);
    log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: loaded", part->instance,
             (unsigned long long)part->epoch);
    if (part->driver && part_is_far(part)) {
        struct error why = {0};
        error_set(&why, ERROR_BUSY, "not all of its stages are loaded");
        part_lose(part, &why);
        part->retry_ms = 0; /* as soon as they are */
    }
    hosting_tell(part->hosting);
}

static void after_open(uv_work_t *work, int status)
{
    struct part *part = (struct part *)work;
    struct hosting *hosting = part->hosting;
    assert(status == 0);
    hosting->n_jobs--;
    if (part->code) {
        part->driver = NULL;
        part->runner = NULL;
        fail(part);
        if (part->unwanted)
            part->state = PART_GONE;
        return;
    }
    if (!part->unwanted && part_is_far(part))
        part->code = part_attach(part, &part->problem);
    if (part->code)
        begin_closing(part); /* and then it has failed */
    else if (part->unwanted)
        begin_closing(part);
    else
        be_ready(part);
}

/* ---- what can begin --------------------------------------------------------------------- */

static bool shares_device(const struct part *a, const struct part *b)
{
    for (uint32_t i = 0; i < a->n_stages; i++) {
        for (uint32_t j = 0; j < b->n_stages; j++) {
            if (a->stages[i].here && b->stages[j].here &&
                strcmp(a->stages[i].device, b->stages[j].device) == 0)
                return true;
        }
    }
    return false;
}

static bool devices_are_free(const struct part *part)
{
    for (const struct part *other = part->hosting->parts; other; other = other->next) {
        const bool goes = other->state == PART_HANDING || other->state == PART_LEAVING ||
                          other->state == PART_CLOSING ||
                          (other->state == PART_LOADING && other->unwanted);
        if (goes && other != part && shares_device(part, other))
            return false;
    }
    return true;
}

static bool is_asked(const struct part *part)
{
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (part->stages[i].here && !part->stages[i].asked)
            return false;
    }
    return true;
}

static enum error_code make_plan(struct part *part, struct error *err)
{
    for (uint32_t i = 0; i < part->n_stages; i++) {
        const struct part_stage *stage = &part->stages[i];
        part->plan[i] = (struct stage_plan){.n_layers = stage->n_layers};
        if (!stage->here)
            continue;
        part->plan[i].device = gpu_find(part->hosting->options.gpu, stage->device);
        if (!part->plan[i].device)
            return error_set(err, ERROR_NOT_FOUND,
                             "stage %u: this node has no device %s (any more)", i, stage->device);
        if (part->hosting->options.children)
            part->plan[i] = (struct stage_plan){.n_layers = stage->n_layers, .lane = stage->device};
    }
    return ERROR_NONE;
}

static void begin_loading(struct part *part)
{
    struct hosting *hosting = part->hosting;
    const struct hosting_options *options = &hosting->options;
    if (make_plan(part, &part->problem)) {
        fail(part);
        return;
    }
    part->model = options->model(options->self, part->model_record);
    if (!part->model)
        return; /* its file is being opened */
    part->far = (struct far){.instance = part->key,
                             .epoch = part->epoch,
                             .type = options->wire,
                             .numbers_after = hosting->wall_ms * 1000000,
                             .send = part_send,
                             .arg = part,
                             .lanes = {.impl = &pipeline_in_lane,
                                       .children = options->children,
                                       .changed = part_lanes_changed,
                                       .arg = part,
                                       .unwanted = &part->cancels}};
    part->state = PART_LOADING;
    hosting->n_jobs++;
    int failure = uv_queue_work(options->loop, &part->work, open_work, after_open);
    assert(failure == 0);
    (void)failure;
}

static void adopt(struct part *part)
{
    struct part *old =
        part->adopts ? hosting_find(part->hosting, part->instance, part->adopts) : NULL;
    if (!old || part->epoch == old->adopter)
        return;
    if (old->adopter || old->state == PART_READY)
        part_retire(old, part->epoch);
}

void hosting_jobs(struct hosting *hosting)
{
    for (struct part *part = hosting->parts; part; part = part->next) {
        if (part->state == PART_LEAVING && part->told && !part->n_cache_jobs &&
            hosting->n_jobs < HOSTING_JOBS)
            begin_closing(part);
    }
    for (struct part *part = hosting->parts; part && !hosting->closing; part = part->next) {
        if (part->state != PART_WAITING || !is_asked(part))
            continue;
        adopt(part);
        if (devices_are_free(part) && hosting->n_jobs < HOSTING_JOBS)
            begin_loading(part);
    }
}
