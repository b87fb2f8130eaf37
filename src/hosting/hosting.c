#include "hosting/hosting_impl.h"

#include "base/mem.h"

#include <string.h>

struct part *hosting_find(const struct hosting *hosting, const char *instance, uint64_t epoch)
{
    struct part *part = hosting->parts;
    while (part && (part->epoch != epoch || strcmp(part->instance, instance) != 0))
        part = part->next;
    return part;
}

/* ---- the loop's turns ------------------------------------------------------------------- */

void hosting_tell(struct hosting *hosting)
{
    hosting->is_changed = true;
    uv_async_send(&hosting->wake);
}

static void drop_idle(struct hosting *hosting)
{
    for (struct part *part = hosting->parts; part; part = part->next) {
        if (part->state == PART_WAITING || part->state == PART_FAILED)
            part->state = PART_GONE;
        part->adopter = 0;
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct hosting *hosting = handle->data;
    if (--hosting->n_handles)
        return;
    pthread_mutex_destroy(&hosting->cache_lock);
    void (*closed)(void *arg) = hosting->closed;
    void *arg = hosting->closed_arg;
    mem_free(hosting);
    closed(arg);
}

static void close_when_done(struct hosting *hosting)
{
    if (!hosting->closing || hosting->parts || hosting->n_leaving_pins || hosting->handles_closing)
        return;
    hosting->handles_closing = true;
    uv_close((uv_handle_t *)&hosting->wake, on_handle_closed);
    uv_close((uv_handle_t *)&hosting->timer, on_handle_closed);
    uv_close((uv_handle_t *)&hosting->cache_wake, on_handle_closed);
}

/* A part that leaves has been told of once this has raised `changed`; only then is it closed. */
static void on_wake(uv_async_t *wake)
{
    struct hosting *hosting = wake->data;
    const bool is_changed = hosting->is_changed && !hosting->closing;
    hosting->is_changed = false;
    for (struct part *part = hosting->parts; part; part = part->next)
        part->told = part->state == PART_LEAVING;
    if (hosting->closing)
        drop_idle(hosting);
    hosting_sweep(hosting);
    hosting_mind(hosting);
    hosting_mend(hosting);
    cache_look(hosting);
    if (is_changed)
        hosting->options.changed(hosting->options.self);
    hosting_jobs(hosting);
    close_when_done(hosting);
}

static void on_timer(uv_timer_t *timer)
{
    struct hosting *hosting = timer->data;
    hosting_mend(hosting);
    cache_look(hosting);
    hosting_watch(hosting);
}

void hosting_watch(struct hosting *hosting)
{
    bool waits = false;
    for (const struct part *part = hosting->parts; part; part = part->next)
        waits |= part->lost || part->owes_notice || part->state == PART_HANDING ||
                 part->give.offer || part->take.until_ms;
    if (hosting->closing || !waits)
        uv_timer_stop(&hosting->timer);
    else if (!uv_is_active((uv_handle_t *)&hosting->timer))
        uv_timer_start(&hosting->timer, on_timer, HOSTING_PAUSE_MS, HOSTING_PAUSE_MS);
}

/* ---- parts that come and go ------------------------------------------------------------- */

static bool sweep_once(struct hosting *hosting)
{
    bool has_freed = false;
    for (struct part *part = hosting->parts; part; part = part->next) {
        if (part->adopter && !hosting_find(hosting, part->instance, part->adopter))
            part->adopter = 0;
    }
    for (struct part **at = &hosting->parts; *at;) {
        struct part *part = *at;
        if (part->state != PART_GONE || part->adopter) {
            at = &part->next;
            continue;
        }
        *at = part->next;
        part_free(part);
        has_freed = true;
    }
    return has_freed;
}

void hosting_sweep(struct hosting *hosting)
{
    while (sweep_once(hosting)) /* who waited for a successor goes with it */
        ;
}

static const Cluster__Placement *placement_of(const Cluster__Instance *instance, uint64_t epoch)
{
    if (instance && instance->current && instance->current->epoch == epoch)
        return instance->current;
    return instance && instance->next && instance->next->epoch == epoch ? instance->next : NULL;
}

const Cluster__Placement *hosting_placement(const struct state *state, const char *instance,
                                            uint64_t epoch)
{
    return placement_of(state_instance(state, instance), epoch);
}

static void load(struct hosting *hosting, const struct state *state,
                 const struct worker_action *action)
{
    const Cluster__Instance *instance = state_instance(state, action->instance);
    const Cluster__Placement *placement = placement_of(instance, action->epoch);
    const Cluster__Model *model = state_model(state, action->model);
    struct part *part = hosting_find(hosting, action->instance, action->epoch);
    if (!part && placement && model) {
        part = part_new(hosting, instance, placement, model);
        if (part && placement == instance->next && !placement->replaces)
            part_take_over_from(part, instance->current);
    }
    if (!part || part->state != PART_WAITING)
        return; /* no memory: the next step asks again */
    part->stages[action->stage].asked = true;
    if (action->type == WORKER_ADOPT)
        part->adopts = action->from_epoch;
}

/* What the new part takes over is closed before it is loaded (hosting_load.c): the weights stay. */
static void pin_older(struct hosting *hosting, const struct state *state,
                      const struct worker_action *action)
{
    const Cluster__Placement *next = hosting_placement(state, action->instance, action->epoch);
    struct part *older = hosting_find(hosting, action->instance, action->from_epoch);
    if (next && older)
        part_pin_for(older, next);
}

static void unload(struct hosting *hosting, const struct state *state,
                   const struct worker_action *action)
{
    const Cluster__Instance *instance = state_instance(state, action->instance);
    struct part *part = hosting_find(hosting, action->instance, action->epoch);
    const bool has_heir = part && instance && instance->active && instance->current;
    if (has_heir)
        part_pin_for(part, instance->next ? instance->next : instance->current);
    if (part && !(has_heir && part_hand_over(part, instance->current)))
        part_retire(part, 0);
}

/* A report is made in every step until the state shows it. */
static bool was_said(struct hosting *hosting, const struct worker_action *action, uint64_t now_ms)
{
    Cluster__Event *event;
    if (event_decode((const uint8_t *)action->event.data, action->event.size, &event, NULL))
        return false;
    const uint32_t state = event->stage_reported->state;
    event_free(event);
    const uint64_t key = part_key(action->instance) ^ (action->epoch << 8) ^ action->stage;
    const uint32_t n_all = sizeof hosting->said / sizeof *hosting->said;
    uint32_t i = 0;
    while (i < hosting->n_said && hosting->said[i].key != key)
        i++;
    if (i == hosting->n_said && hosting->n_said < n_all)
        hosting->n_said++;
    else if (i == hosting->n_said) /* full: the memory is only to spare the log */
        i = (uint32_t)(key % n_all);
    struct said *said = &hosting->said[i];
    if (said->key == key && said->state == state && said->at_ms &&
        now_ms - said->at_ms < HOSTING_REPEAT_MS)
        return true;
    *said = (struct said){key, now_ms, state};
    return false;
}

static void act(struct hosting *hosting, const struct state *state,
                const struct worker_action *action, uint64_t now_ms)
{
    const struct hosting_options *options = &hosting->options;
    const Cluster__Model *model;
    switch (action->type) {
    case WORKER_FETCH:
        model = state_model(state, action->model);
        if (model)
            options->fetch(options->self, model, action->first_layer, action->n_layers);
        break;
    case WORKER_LOAD:
    case WORKER_ADOPT:
        load(hosting, state, action);
        if (action->type == WORKER_ADOPT)
            pin_older(hosting, state, action);
        break;
    case WORKER_UNLOAD:
        unload(hosting, state, action);
        break;
    case WORKER_REPORT:
        if (!was_said(hosting, action, now_ms))
            options->propose(options->self, action->event.data, action->event.size);
        break;
    }
}

/* ---- a step ----------------------------------------------------------------------------- */

/* What the state says of each part: whether it is the current one, and whether the stages elsewhere
 * are ready. */
static void look_at_state(struct hosting *hosting, const struct state *state)
{
    for (struct part *part = hosting->parts; part; part = part->next) {
        const Cluster__Instance *instance = state_instance(state, part->instance);
        const Cluster__Placement *placement = placement_of(instance, part->epoch);
        part->is_current = placement && placement == instance->current;
        part->has_served |= part->is_current;
        if (part->is_current && instance->next)
            part_expect(part, instance->next);
        part->others_ready = placement != NULL;
        for (uint32_t i = 0; placement && i < placement->n_stages && i < part->n_stages; i++)
            part->others_ready &=
                part->stages[i].here || placement->stages[i]->state == CLUSTER__STAGE_STATE__READY;
        if (part->state != PART_READY || !placement || !part->driver || part->others_ready ||
            part->lost)
            continue;
        struct error why = {0};
        error_set(&why, ERROR_BUSY, "not all of its stages are loaded");
        part_lose(part, &why);
    }
}

static void step_once(struct hosting *hosting, const struct state *state, uint64_t now_ms,
                      uint64_t wall_ms)
{
    struct worker_view view;
    struct worker_actions actions;
    hosting_sweep(hosting);
    look_at_state(hosting, state);
    struct worker_stage *stages = hosting_view(hosting, &view);
    if (!stages)
        return; /* no memory now; the next step comes */
    view.state = state;
    view.now_ms = now_ms;
    view.wall_ms = wall_ms;
    worker_step(&view, &actions,
                NULL); /* without memory: what there is of actions is good, the rest comes later */
    /* Reports may change the state, which the actions' texts belong to: those last. */
    for (int reports = 0; reports < 2; reports++) {
        for (uint32_t i = 0; i < actions.n; i++) {
            if ((actions.list[i].type == WORKER_REPORT) == reports)
                act(hosting, state, &actions.list[i], now_ms);
        }
    }
    worker_actions_clear(&actions);
    mem_free(stages);
    hosting_sweep(hosting);
    hosting_jobs(hosting);
    hosting_drop_pins(hosting, state);
    hosting_mend(hosting);
    cache_look(hosting);
    hosting_watch(hosting);
}

void hosting_step(struct hosting *hosting, const struct state *state, uint64_t now_ms,
                  uint64_t wall_ms)
{
    if (hosting->closing)
        return;
    if (hosting->stepping) { /* from one of its own events */
        hosting->again = true;
        return;
    }
    hosting->wall_ms = wall_ms;
    hosting->stepping = true;
    do {
        hosting->again = false;
        step_once(hosting, state, now_ms, wall_ms);
    } while (hosting->again && !hosting->closing);
    hosting->stepping = false;
}

/* ---- opening and closing ---------------------------------------------------------------- */

enum error_code hosting_open(const struct hosting_options *options, struct hosting **out,
                             struct error *err)
{
    struct hosting *hosting = mem_new(sizeof *hosting);
    if (!hosting)
        return error_set(err, ERROR_NO_MEMORY, "no memory for this node's stages");
    int problem = uv_async_init(options->loop, &hosting->wake, on_wake);
    if (problem) {
        mem_free(hosting);
        return error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    }
    uv_timer_init(options->loop, &hosting->timer);
    hosting->wake.data = hosting->timer.data = hosting;
    hosting->n_handles = 2;
    hosting->options = *options;
    id_parse(options->node, hosting->node_id, NODE_ID_BYTES);
    cache_open(hosting);
    *out = hosting;
    return ERROR_NONE;
}

void hosting_close(struct hosting *hosting, void (*closed)(void *arg), void *arg)
{
    hosting->closed = closed;
    hosting->closed_arg = arg;
    hosting->closing = true;
    for (struct part *part = hosting->parts; part; part = part->next)
        part_retire(part, 0);
    hosting_drop_pins(hosting, NULL);
    hosting_watch(hosting);
    hosting_tell(hosting);
}
