/* A part's draft model (pipeline/drafter.h): opened beside a driver that is there, on the device of
 * its first layers, where placing has counted its memory (placing/placing.h), or on another of this
 * node that placing says. The weights are fetched meanwhile. A part that goes takes it along; the
 * next one opens its own. */
#include "hosting/hosting_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/draft_model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void part_draft_want(struct part *part, const Cluster__Demand *demand)
{
    if (demand->draft && part_drives(part) && part->options.speculate != SPECULATE_OFF)
        part->draft.name = mem_copy_text(demand->draft, strlen(demand->draft));
}

static void part_draft_release(struct part *part)
{
    const struct hosting_options *options = &part->hosting->options;
    struct part_draft *draft = &part->draft;
    if (draft->model)
        options->release(options->self, draft->model_record, &draft->file);
    draft->model = NULL;
    message_free(draft->model_record ? &draft->model_record->base : NULL);
    draft->model_record = NULL;
}

void part_draft_clear(struct part *part)
{
    assert(part->draft.state != DRAFT_OPENING);
    part_draft_release(part);
    mem_free(part->draft.name);
    part->draft.name = NULL;
    part->draft.state = DRAFT_NONE;
}

void part_draft_leave(struct part *part)
{
    atomic_store(&part->draft.cancels, true);
}

static void part_draft_fail(struct part *part, const struct error *why)
{
    part->draft.state = DRAFT_FAILED;
    log_line(LOG_WARN, "hosting", "instance %s: %s guesses nothing: %s", part->life.instance,
             part->draft.name, why->text);
    part_draft_release(part);
}

/* ---- the job ---------------------------------------------------------------------------- */

static void part_draft_open_work(uv_work_t *work)
{
    struct part *part = work->data;
    struct part_draft *draft = &part->draft;
    const struct driver_draft of = {.model = draft->model,
                                    .stages = &draft->plan,
                                    .n_stages = 1,
                                    .cells = driver_options(part->driver)->cells,
                                    .share = (double)model_weight_bytes(draft->model) /
                                             (double)model_weight_bytes(part->model),
                                    .lanes = &draft->lanes};
    draft->code = driver_add_draft(part->driver, &of, &draft->problem);
}

static void part_draft_after_open(uv_work_t *work, int status)
{
    struct part *part = work->data;
    assert(status == 0 && part->draft.state == DRAFT_OPENING);
    part->draft.state = DRAFT_OPEN;
    if (part->draft.code) {
        part_draft_fail(part, &part->draft.problem);
    } else {
        if (!strcmp(part->draft.device, part->life.stages[0].device))
            part->life.stages[0].bytes += driver_draft_bytes(part->driver);
        log_line(LOG_INFO, "hosting", "instance %s: %s guesses on %s", part->life.instance,
                 part->draft.name, part->draft.device);
    }
    part_note_busy(part);
    hosting_tell(part->hosting); /* what waited for the job can be closed */
}

static void part_draft_choose_device(struct part *part, const struct state *state)
{
    const struct hosting_options *options = &part->hosting->options;
    const Cluster__Instance *instance = state_instance(state, part->life.instance);
    struct part_draft *draft = &part->draft;
    struct device *device = NULL;
    draft->plan = (struct stage_plan){.device = part->plan[0].device,
                                      .lane = part->plan[0].lane,
                                      .n_layers = model_hyperparameters(draft->model)->n_layers};
    if (instance && instance->current && options->draft_device &&
        options->draft_device(options->self, instance, instance->current, draft->device))
        device = gpu_find(options->gpu, draft->device);
    if (!device)
        snprintf(draft->device, sizeof draft->device, "%s", part->life.stages[0].device);
    else if (draft->plan.lane)
        draft->plan.lane = draft->device;
    else
        draft->plan.device = device;
}

static void part_draft_open(struct part *part, const struct state *state)
{
    struct part_draft *draft = &part->draft;
    draft->state = DRAFT_OPENING;
    part_draft_choose_device(part, state);
    draft->lanes = (struct lane_source){.impl = &pipeline_in_lane,
                                        .children = part->hosting->options.children,
                                        .changed = part_lanes_changed,
                                        .arg = part,
                                        .unwanted = &draft->cancels};
    draft->work.data = part;
    part_note_busy(part);
    const int failure = uv_queue_work(part->hosting->options.loop, &draft->work,
                                      part_draft_open_work, part_draft_after_open);
    assert(failure == 0); /* it fails only without a function */
    (void)failure;
}

/* ---- before it -------------------------------------------------------------------------- */

/* Whether all of its weights are here; they are fetched. */
static bool part_draft_is_here(struct part *part, const Cluster__Model *said)
{
    const struct hosting_options *options = &part->hosting->options;
    const struct worker_precision stored = {0};
    struct part_draft *draft = &part->draft;
    switch (options->weights(options->self, said, stored, 0, said->n_layers)) {
    case WORKER_HAS_ALL:
        return true;
    case WORKER_LACKS:
        options->fetch(options->self, said, stored, 0, said->n_layers);
        break;
    case WORKER_FETCHES:
        break;
    case WORKER_CANNOT_FETCH:
        if (!draft->says_problem)
            log_line(LOG_WARN, "hosting",
                     "instance %s goes without guesses of %s, whose weights cannot be fetched now",
                     part->life.instance, draft->name);
        draft->says_problem = true;
        break;
    }
    return false;
}

void part_draft_look(struct part *part, const struct state *state)
{
    const struct hosting_options *options = &part->hosting->options;
    struct part_draft *draft = &part->draft;
    const Cluster__Model *said = draft->name ? state_model(state, draft->name) : NULL;
    struct error why;
    if (!said || draft->state != DRAFT_NONE || part->life.state != PART_READY || !part->driver ||
        !part_draft_is_here(part, said))
        return;
    draft->model_record = part_copy_model(said);
    if (draft->model_record)
        draft->model = options->model(options->self, draft->model_record,
                                      &(struct worker_range){0, said->n_layers}, 1, &draft->file);
    if (!draft->model)
        part_draft_release(part); /* its file is being opened */
    else if (model_check_draft(draft->model, part->model, &why))
        part_draft_fail(part, &why);
    else
        part_draft_open(part, state);
}
