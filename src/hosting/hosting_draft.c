/* A part's draft model (pipeline/drafter.h): opened beside a driver that is there, on the device of
 * its first layers, where placing has counted its memory (placing/placing.h), or on another of this
 * node that placing says. The weights are fetched meanwhile. Or the model is served as an instance
 * of its own: then that is asked, wherever it is, and nothing is opened here. A part that goes
 * takes it along; the next one opens its own. */
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
    assert(!part_draft_is_busy(part));
    part_draft_release(part);
    mem_free(part->draft.name);
    part->draft.name = NULL;
    part->draft.state = DRAFT_NONE;
}

void part_draft_leave(struct part *part)
{
    atomic_store(&part->draft.cancels, true);
}

bool part_draft_is_busy(const struct part *part)
{
    return part->draft.state == DRAFT_OPENING || part->draft.state == DRAFT_CLOSING;
}

static bool part_draft_is_minded(const struct part *part)
{
    return part->draft.state == DRAFT_OPEN &&
           (part->life.state == PART_READY || part->life.state == PART_HANDING);
}

bool part_draft_is_elsewhere(const struct part *part)
{
    return part_draft_is_minded(part) && part->draft.generator;
}

void part_draft_mind(struct part *part)
{
    if (part_draft_is_minded(part))
        driver_mind_draft(part->driver);
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
                                    .share = draft->share,
                                    .lanes = &draft->lanes},
                              elsewhere = {.elsewhere = draft->generator,
                                           .is_apart = draft->is_apart,
                                           .share = draft->share};
    draft->code =
        driver_add_draft(part->driver, draft->generator ? &elsewhere : &of, &draft->problem);
}

static void part_draft_close_work(uv_work_t *work)
{
    driver_drop_draft(((struct part *)work->data)->driver);
}

static void part_draft_after(struct part *part)
{
    part_note_busy(part);
    hosting_tell(part->hosting); /* what waited for the job can be closed */
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
            part->draft.bytes = driver_draft_bytes(part->driver);
        part->life.stages[0].bytes += part->draft.bytes;
        log_line(LOG_INFO, "hosting", "instance %s: %s guesses %s%s", part->life.instance,
                 part->draft.name, part->draft.generator ? "where it is placed" : "on ",
                 part->draft.device);
    }
    part_draft_after(part);
}

static void part_draft_after_close(uv_work_t *work, int status)
{
    struct part *part = work->data;
    assert(status == 0 && part->draft.state == DRAFT_CLOSING);
    part->draft.state = DRAFT_NONE;
    part->life.stages[0].bytes -= part->draft.bytes;
    part->draft.bytes = 0;
    part_draft_release(part);
    part_draft_after(part);
}

static void part_draft_begin(struct part *part, enum part_draft_state state, uv_work_cb job,
                             uv_after_work_cb after)
{
    part->draft.state = state;
    part->draft.work.data = part;
    part_note_busy(part);
    const int failure = uv_queue_work(part->hosting->options.loop, &part->draft.work, job, after);
    assert(failure == 0); /* it fails only without a function */
    (void)failure;
}

/* Where it is to guess, and what that takes; before that is measured it is believed to take its
 * share of the model's bytes, where nothing else is known. */
static void part_draft_find_place(struct part *part, const struct state *state,
                                  const Cluster__Model *said)
{
    const struct hosting_options *options = &part->hosting->options;
    const Cluster__Instance *instance = state_instance(state, part->life.instance);
    const Cluster__Placement *placement =
        parts_placement(state, part->life.instance, part->life.epoch);
    struct part_draft *draft = &part->draft;
    double share = 0;
    draft->device[0] = '\0';
    draft->share = (double)said->bytes / (double)(part->model_record->bytes + 1);
    if (placement && options->draft_place &&
        options->draft_place(options->self, instance, placement, draft->device, &share) &&
        share > 0)
        draft->share = share;
}

static void part_draft_choose_device(struct part *part)
{
    struct part_draft *draft = &part->draft;
    struct device *device = NULL;
    draft->plan = (struct stage_plan){.device = part->plan[0].device,
                                      .lane = part->plan[0].lane,
                                      .n_layers = model_hyperparameters(draft->model)->n_layers};
    if (draft->device[0])
        device = gpu_find(part->hosting->options.gpu, draft->device);
    if (!device)
        snprintf(draft->device, sizeof draft->device, "%s", part->life.stages[0].device);
    else if (draft->plan.lane)
        draft->plan.lane = draft->device;
    else
        draft->plan.device = device;
}

static void part_draft_open(struct part *part)
{
    struct part_draft *draft = &part->draft;
    part_draft_choose_device(part);
    draft->lanes = (struct lane_source){.impl = &pipeline_in_lane,
                                        .children = part->hosting->options.children,
                                        .changed = part_lanes_changed,
                                        .arg = part,
                                        .unwanted = &draft->cancels};
    part_draft_begin(part, DRAFT_OPENING, part_draft_open_work, part_draft_after_open);
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

static void part_draft_look_here(struct part *part, const struct state *state,
                                 const Cluster__Model *said)
{
    const struct hosting_options *options = &part->hosting->options;
    struct part_draft *draft = &part->draft;
    struct error why;
    if (!part_draft_is_here(part, said))
        return;
    draft->model_record = part_copy_model(said);
    if (draft->model_record)
        draft->model = options->model(options->self, draft->model_record,
                                      &(struct worker_range){0, said->n_layers}, 1, &draft->file);
    if (!draft->model)
        part_draft_release(part); /* its file is being opened */
    else if (model_check_draft(draft->model, part->model, &why))
        part_draft_fail(part, &why);
    else {
        part_draft_find_place(part, state, said);
        part_draft_open(part);
    }
}

void part_draft_look(struct part *part, const struct state *state)
{
    const struct hosting_options *options = &part->hosting->options;
    struct part_draft *draft = &part->draft;
    const Cluster__Model *said = draft->name ? state_model(state, draft->name) : NULL;
    const Cluster__Instance *instance = state_instance(state, part->life.instance);
    if (!said || !instance || part->life.state != PART_READY || !part->driver ||
        part_draft_is_busy(part))
        return;
    bool is_apart = false;
    struct generator *generator = options->draft_instance
                                      ? options->draft_instance(options->self, instance, &is_apart)
                                      : NULL;
    const bool is_another = generator != draft->generator || is_apart != draft->is_apart;
    if (is_another && draft->state == DRAFT_OPEN) {
        part_draft_begin(part, DRAFT_CLOSING, part_draft_close_work, part_draft_after_close);
        return; /* and looks again */
    }
    const bool may_ask = draft->state == DRAFT_FAILED && generator; /* a copy could not be opened */
    if (draft->state != DRAFT_NONE && !may_ask)
        return;
    draft->generator = generator;
    draft->is_apart = is_apart;
    if (!generator) {
        part_draft_look_here(part, state, said);
        return;
    }
    part_draft_find_place(part, state, said);
    part_draft_begin(part, DRAFT_OPENING, part_draft_open_work, part_draft_after_open);
}
