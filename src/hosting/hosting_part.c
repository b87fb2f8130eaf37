/* A part: the stages of one placement on this node. */
#include "hosting/hosting_impl.h"

#include "base/fnv.h"
#include "base/mem.h"
#include "base/random.h"
#include "hosting/part_options.h"

#include <assert.h>
#include <string.h>

enum { MEMORY_TELL_MS = 1000 }; /* the log is for rare facts */

uint64_t part_key(const char *instance)
{
    return random_mix(fnv_text(FNV_BASIS, instance));
}

Cluster__Model *part_copy_model(const Cluster__Model *model)
{
    struct buffer bytes = {0};
    ProtobufCMessage *copy = NULL;
    message_encode(&model->base, &bytes);
    if (bytes.failed || message_decode(&cluster__model__descriptor, (const uint8_t *)bytes.data,
                                       bytes.size, &copy, NULL))
        copy = NULL;
    buffer_deinit(&bytes);
    return (Cluster__Model *)copy;
}

void part_new(struct hosting *hosting, const struct parts_effect *wanted)
{
    const Cluster__Instance *instance = wanted->instance;
    struct part *part = mem_new(sizeof *part);
    Cluster__Model *record = part_copy_model(wanted->model);
    if (!part || !record || !parts_add(&hosting->parts, &part->life, wanted)) {
        message_free(record ? &record->base : NULL);
        mem_free(part);
        return;
    }
    part->hosting = hosting;
    part->work.data = part;
    part->model_record = record;
    part->key = part_key(instance->id);
    part->options = part_options(instance->demand, wanted->placement->shares_cells);
    part->options.stop = &part->cancels;
    part->n_whole = part_whole_streams(instance->demand);
    part->options.rope = state_rope(instance->demand);
    if (wanted->placement->has_precision)
        part->options.precision = (int)wanted->placement->precision;
    part_draft_want(part, instance->demand);
    reach_init(&part->reach, &part->life);
    part_caches_init(part);
    if (wanted->from)
        part_take_over_from(part, wanted->from);
}

void part_free(struct part *part)
{
    assert(!part->driver && !part->runner && !part->model);
    assert(!part->attached && !part->n_cache_jobs); /* nobody leads here any more */
    part_caches_clear(part);
    part_draft_clear(part);
    message_free(part->model_record ? &part->model_record->base : NULL);
    part_life_deinit(&part->life);
    mem_free(part);
}

bool part_drives(const struct part *part)
{
    return part->life.stages[0].here;
}

void part_note_busy(struct part *part)
{
    part->life.is_busy = part->n_cache_jobs || part_draft_is_busy(part);
}

void part_leave(struct part *part)
{
    struct error why = {0};
    const bool has_failed = part->life.problem.code;
    error_set(&why, ERROR_CANCELLED, "instance %s, epoch %llu: %s", part->life.instance,
              (unsigned long long)part->life.epoch,
              has_failed ? part->life.problem.text : "it is being unloaded");
    part_detach(part);
    part_draft_leave(part);
    cache_give_close(&part->give);
    if (part->driver)
        driver_lost(part->driver, &why); /* stages elsewhere are not waited for */
    reach_leave(&part->reach);
}

void part_give_up(struct part *part, const struct error *why)
{
    parts_give_up(&part->hosting->parts, &part->life, why);
    hosting_pump(part->hosting);
}

/* A stage in a lane has a ladder of its own; the driver's is that of its first stage, too. */
static uint32_t part_memory_step(struct part *part, uint32_t stage)
{
    struct memory_step own = {0}, driver = {0};
    const bool has_own = pipeline_memory_step(part_pipeline(part), stage, &own);
    if (part->driver && (!has_own || stage == 0))
        driver_memory_step(part->driver, &driver);
    return own.step > driver.step ? own.step : driver.step;
}

bool part_note_memory(struct part *part, uint64_t now_ms)
{
    bool is_changed = false;
    if (part->life.state != PART_READY) /* while it loads, its pipeline is another thread's */
        return false;
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        struct part_stage *stage = &part->life.stages[i];
        if (!stage->here || (part->memory_ms[i] && now_ms - part->memory_ms[i] < MEMORY_TELL_MS))
            continue;
        const uint32_t step = part_memory_step(part, i);
        if (step == stage->memory_step)
            continue;
        part->memory_ms[i] = now_ms;
        stage->memory_step = step;
        is_changed = true;
    }
    return is_changed;
}
