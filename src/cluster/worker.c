#include "cluster/worker.h"

#include "base/mem.h"
#include "cluster/event_kinds.h"

#include <assert.h>
#include <string.h>

struct worker_round {
    const struct worker_view *view;
    struct worker_actions *out;
    bool failed;
};

/* A stage that the state wants here. */
struct wanted {
    const Cluster__Instance *instance;
    const Cluster__Placement *placement;
    const Cluster__Stage *stage;
    uint32_t index;
};

static bool worker_texts_equal(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

void worker_actions_clear(struct worker_actions *actions)
{
    for (uint32_t i = 0; i < actions->n; i++)
        buffer_deinit(&actions->list[i].event);
    actions->n = 0;
}

static struct worker_action *worker_add_action(struct worker_round *s, enum worker_action_type type)
{
    assert(s->out->n <= WORKER_ACTIONS);
    if (s->out->n == WORKER_ACTIONS)
        return NULL;
    struct worker_action *action = &s->out->list[s->out->n++];
    *action = (struct worker_action){.type = type};
    return action;
}

static void add_for(struct worker_round *s, enum worker_action_type type, const struct wanted *want,
                    const struct worker_stage *from)
{
    assert(want->index < want->placement->n_stages);
    struct worker_action *action = worker_add_action(s, type);
    if (!action)
        return;
    action->instance = want->instance->id;
    action->model = want->instance->model;
    action->device = want->stage->device;
    action->epoch = want->placement->epoch;
    action->stage = want->index;
    action->first_layer = want->stage->first_layer;
    action->n_layers = want->stage->n_layers;
    action->demand = want->instance->demand;
    action->precision = worker_precision_of(want->instance->demand, want->stage->weights_max);
    if (from)
        action->from_epoch = from->epoch, action->from_stage = from->stage;
}

/* False: no memory, or no room. */
static bool worker_add_report(struct worker_round *s, enum worker_action_type type,
                              const struct wanted *want, Cluster__Event *event)
{
    event->by = (char *)(uintptr_t)s->view->node;
    event->has_time_ms = true;
    event->time_ms = s->view->wall_ms;
    struct buffer bytes = {0};
    event_encode(event, &bytes);
    if (bytes.failed) {
        buffer_deinit(&bytes);
        s->failed = true;
        return false;
    }
    add_for(s, type, want, NULL);
    s->out->list[s->out->n - 1].event = bytes;
    return true;
}

static void worker_report_stage(struct worker_round *s, const struct wanted *want,
                                Cluster__StageState state, const char *problem)
{
    assert(want->index < want->placement->n_stages);
    if (want->stage->state == state || s->out->n == WORKER_ACTIONS)
        return;
    Cluster__StageReport message = CLUSTER__STAGE_REPORT__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    message.instance = want->instance->id;
    message.has_epoch = message.has_stage = message.has_state = true;
    message.epoch = want->placement->epoch;
    message.stage = want->index;
    message.node = (char *)(uintptr_t)s->view->node;
    message.state = state;
    message.problem = (char *)(uintptr_t)problem;
    event.kind_case = CLUSTER__EVENT__KIND_STAGE_REPORTED;
    event.stage_reported = &message;
    if (worker_add_report(s, WORKER_REPORT, want, &event))
        s->out->list[s->out->n - 1].state = state;
}

/* Once all nodes know what that is. */
static void worker_report_memory(struct worker_round *s, const struct wanted *want,
                                 const struct worker_stage *have)
{
    assert(have->state == WORKER_READY && want->index < want->placement->n_stages);
    if (!have->memory_given || want->stage->memory_step == have->memory_step ||
        s->out->n == WORKER_ACTIONS || state_level(s->view->state) < EVENT_ROW_MEMORY_STEPPED)
        return;
    Cluster__MemoryStep message = CLUSTER__MEMORY_STEP__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    message.instance = want->instance->id;
    message.has_epoch = message.has_stage = message.has_step = message.has_before = true;
    message.epoch = want->placement->epoch;
    message.stage = want->index;
    message.node = (char *)(uintptr_t)s->view->node;
    message.device = want->stage->device;
    message.step = have->memory_step;
    message.before = want->stage->memory_step;
    message.given = (char *)(uintptr_t)have->memory_given;
    event.kind_case = CLUSTER__EVENT__KIND_MEMORY_STEPPED;
    event.memory_stepped = &message;
    if (worker_add_report(s, WORKER_REPORT_MEMORY, want, &event))
        s->out->list[s->out->n - 1].memory_step = have->memory_step;
}

static bool is(const struct worker_stage *have, const struct wanted *want)
{
    return have->epoch == want->placement->epoch && have->stage == want->index &&
           worker_texts_equal(have->instance, want->instance->id);
}

static const struct worker_stage *worker_find_stage(const struct worker_round *s,
                                                    const struct wanted *want)
{
    for (uint32_t i = 0; i < s->view->n_stages; i++) {
        if (is(&s->view->stages[i], want))
            return &s->view->stages[i];
    }
    return NULL;
}

/* The same layers on the same device, loaded for an older epoch of the instance. */
static const struct worker_stage *find_older(const struct worker_round *s,
                                             const struct wanted *want)
{
    if (!want->placement->replaces)
        return NULL; /* the old one serves until the new one is ready */
    for (uint32_t i = 0; i < s->view->n_stages; i++) {
        const struct worker_stage *have = &s->view->stages[i];
        if (have->epoch < want->placement->epoch &&
            worker_texts_equal(have->instance, want->instance->id) &&
            worker_texts_equal(have->model, want->instance->model) &&
            worker_texts_equal(have->device, want->stage->device) &&
            have->first_layer == want->stage->first_layer &&
            have->n_layers == want->stage->n_layers && have->state == WORKER_READY)
            return have;
    }
    return NULL;
}

/* ---- going through what is wanted here ---- */

typedef bool (*visit)(struct worker_round *s, const struct wanted *want,
                      void *data); /* true: stop */

static bool each_wanted(struct worker_round *s, visit visitor, void *data)
{
    const Cluster__State *root = s->view->state->root;
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const Cluster__Instance *instance = root->instances[i];
        const bool replaced = instance->next && instance->next->replaces;
        const Cluster__Placement *const own[] = {replaced ? NULL : instance->current,
                                                 instance->next};
        for (int k = 0; k < 2; k++) {
            for (size_t j = 0; own[k] && instance->active && j < own[k]->n_stages; j++) {
                const struct wanted want = {instance, own[k], own[k]->stages[j], (uint32_t)j};
                if (worker_texts_equal(want.stage->node, s->view->node) && visitor(s, &want, data))
                    return true;
            }
        }
    }
    return false;
}

/* Wanted as it is, or as what a newer epoch will take over. */
static bool needs(struct worker_round *s, const struct wanted *want, void *data)
{
    const struct worker_stage *have = data;
    return is(have, want) || (!worker_find_stage(s, want) && find_older(s, want) == have);
}

static void unload_unwanted(struct worker_round *s)
{
    for (uint32_t i = 0; i < s->view->n_stages; i++) {
        const struct worker_stage *have = &s->view->stages[i];
        if (have->state == WORKER_UNLOADING || each_wanted(s, needs, (void *)(uintptr_t)have))
            continue;
        struct worker_action *action = worker_add_action(s, WORKER_UNLOAD);
        if (!action)
            return;
        action->instance = have->instance;
        action->model = have->model;
        action->device = have->device;
        action->epoch = have->epoch;
        action->stage = have->stage;
        action->first_layer = have->first_layer;
        action->n_layers = have->n_layers;
    }
}

/* Something on the device is going, or has to go first. */
static bool device_is_clearing(const struct worker_round *s, const char *device)
{
    for (uint32_t i = 0; i < s->view->n_stages; i++) {
        if (s->view->stages[i].state == WORKER_UNLOADING &&
            worker_texts_equal(s->view->stages[i].device, device))
            return true;
    }
    for (uint32_t i = 0; i < s->out->n; i++) {
        if (s->out->list[i].type == WORKER_UNLOAD &&
            worker_texts_equal(s->out->list[i].device, device))
            return true;
    }
    return false;
}

static const char *why_without_weights(const struct worker_view *view, const Cluster__Model *model)
{
    const char *why =
        model && view->weights_problem ? view->weights_problem(view->self, model) : NULL;
    return why ? why : "its weights cannot be had";
}

static void worker_begin_stage(struct worker_round *s, const struct wanted *want)
{
    assert(!worker_find_stage(s, want)); /* it would be loaded twice */
    const Cluster__Model *model = state_model(s->view->state, want->instance->model);
    const struct worker_stage *older = find_older(s, want);
    if (want->stage->state == CLUSTER__STAGE_STATE__FAILED)
        return; /* a new epoch has to come */
    if (older) {
        add_for(s, WORKER_ADOPT, want, older);
        return;
    }
    worker_report_stage(s, want, CLUSTER__STAGE_STATE__LOADING, NULL);
    switch (model ? s->view->weights(
                        s->view->self, model,
                        worker_precision_of(want->instance->demand, want->stage->weights_max),
                        want->stage->first_layer, want->stage->n_layers)
                  : WORKER_CANNOT_FETCH) {
    case WORKER_HAS_ALL:
        if (!device_is_clearing(s, want->stage->device))
            add_for(s, WORKER_LOAD, want, NULL);
        break;
    case WORKER_LACKS:
        add_for(s, WORKER_FETCH, want, NULL);
        break;
    case WORKER_FETCHES:
        break;
    case WORKER_CANNOT_FETCH:
        worker_report_stage(s, want, CLUSTER__STAGE_STATE__FAILED,
                            why_without_weights(s->view, model));
        break;
    }
}

static bool worker_go_on(struct worker_round *s, const struct wanted *want, void *data)
{
    const struct worker_stage *have = worker_find_stage(s, want);
    if (!have) {
        worker_begin_stage(s, want);
        return s->failed;
    }
    switch (have->state) {
    case WORKER_LOADING:
        worker_report_stage(s, want, CLUSTER__STAGE_STATE__LOADING, NULL);
        break;
    case WORKER_READY:
        worker_report_stage(s, want, CLUSTER__STAGE_STATE__READY, NULL);
        worker_report_memory(s, want, have);
        break;
    case WORKER_FAILED:
        worker_report_stage(s, want, CLUSTER__STAGE_STATE__FAILED,
                            have->problem ? have->problem : "unknown");
        break;
    case WORKER_UNLOADING: /* it is loaded again when it has gone */
        worker_report_stage(s, want, CLUSTER__STAGE_STATE__LOADING, NULL);
        break;
    }
    return s->failed;
}

enum error_code worker_step(const struct worker_view *view, struct worker_actions *out,
                            struct error *err)
{
    struct worker_round s = {.view = view, .out = out};
    out->n = 0;
    unload_unwanted(&s);
    each_wanted(&s, worker_go_on, NULL);
    return s.failed ? error_set(err, ERROR_NO_MEMORY, "worker: not enough memory for a report")
                    : ERROR_NONE;
}
