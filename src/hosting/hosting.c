#include "hosting/hosting_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* ---- the loop's turns ------------------------------------------------------------------- */

void hosting_tell(struct hosting *hosting)
{
    hosting->is_changed = true;
    uv_async_send(&hosting->wake);
}

static void hosting_on_handle_closed(uv_handle_t *handle)
{
    struct hosting *hosting = handle->data;
    assert(hosting->n_handles && hosting->handles_closing && !hosting->n_leaving_pins);
    if (--hosting->n_handles)
        return;
    pthread_mutex_destroy(&hosting->cache_lock);
    parts_deinit(&hosting->parts);
    void (*closed)(void *arg) = hosting->closed;
    void *arg = hosting->closed_arg;
    mem_free(hosting);
    closed(arg);
}

static void hosting_close_when_done(struct hosting *hosting)
{
    if (!hosting->parts.closing || hosting->parts.first || hosting->n_leaving_pins ||
        hosting->handles_closing)
        return;
    assert(!hosting->parts.pins && !hosting->parts.unpinned); /* their weights would stay */
    hosting->handles_closing = true;
    uv_close((uv_handle_t *)&hosting->wake, hosting_on_handle_closed);
    uv_close((uv_handle_t *)&hosting->timer, hosting_on_handle_closed);
    uv_close((uv_handle_t *)&hosting->cache_wake, hosting_on_handle_closed);
}

/* A part that leaves has been told of once this has raised `changed`; only then is it closed. */
static void hosting_on_wake(uv_async_t *wake)
{
    struct hosting *hosting = wake->data;
    const bool is_changed = hosting->is_changed && !hosting->parts.closing;
    hosting->is_changed = false;
    parts_told(&hosting->parts);
    hosting_mind(hosting);
    hosting_mend(hosting);
    cache_look(hosting);
    if (is_changed)
        hosting->options.changed(hosting->options.self);
    parts_jobs(&hosting->parts);
    hosting_pump(hosting);
    hosting_close_when_done(hosting);
}

static void hosting_on_timer(uv_timer_t *timer)
{
    struct hosting *hosting = timer->data;
    for (struct part *part = hosting_first(hosting); part; part = part_next(part))
        part_draft_mind(part);
    hosting_mend(hosting);
    cache_look(hosting);
    hosting_watch(hosting);
}

void hosting_watch(struct hosting *hosting)
{
    bool waits = false;
    for (const struct part *part = hosting_first(hosting); part; part = part_next(part))
        waits |= reach_is_due(&part->reach) || part->life.state == PART_HANDING ||
                 part->give.offer || part->take.until_ms || part_draft_is_elsewhere(part);
    if (hosting->parts.closing || !waits)
        uv_timer_stop(&hosting->timer);
    else if (!uv_is_active((uv_handle_t *)&hosting->timer))
        uv_timer_start(&hosting->timer, hosting_on_timer, REACH_PAUSE_MS, REACH_PAUSE_MS);
}

/* ---- parts that come and go ------------------------------------------------------------- */

static void part_carry_on(struct hosting *hosting, const struct parts_effect *effect)
{
    struct part *part = (struct part *)effect->life;
    if (!effect->from || !part_hand_over(part, effect->from))
        parts_retire(&hosting->parts, &part->life, 0);
}

static void hosting_carry_out(struct hosting *hosting, const struct parts_effect *effect)
{
    const struct hosting_options *options = &hosting->options;
    struct part *part = (struct part *)effect->life;
    switch (effect->type) {
    case PARTS_FETCH:
        options->fetch(options->self, effect->model, effect->action->precision,
                       effect->action->first_layer, effect->action->n_layers);
        break;
    case PARTS_WANTED:
        part_new(hosting, effect);
        break;
    case PARTS_PIN:
        part_pin(part, effect->pin);
        break;
    case PARTS_UNPIN:
        hosting_unpin(hosting, effect->pin);
        break;
    case PARTS_UNWANTED:
        part_carry_on(hosting, effect);
        break;
    case PARTS_PROPOSE:
        options->propose(options->self, effect->action->event.data, effect->action->event.size);
        break;
    case PARTS_OPEN:
        part_open(part);
        break;
    case PARTS_CANCEL:
        atomic_store(&part->cancels, true);
        break;
    case PARTS_LEAVE:
        part_leave(part);
        break;
    case PARTS_STOP:
    case PARTS_CLOSE:
        part_close(part, effect->type == PARTS_STOP);
        break;
    case PARTS_FAILED:
        part_failed(part);
        break;
    case PARTS_FREE:
        part_free(part);
        break;
    case PARTS_CHANGED:
        hosting_tell(hosting);
        break;
    }
}

void hosting_pump(struct hosting *hosting)
{
    struct parts_effect effect;
    if (hosting->is_carrying_out)
        return; /* an effect led here: the loop below goes on with what it brought */
    hosting->is_carrying_out = true;
    while (parts_next(&hosting->parts, &effect))
        hosting_carry_out(hosting, &effect);
    hosting->is_carrying_out = false;
}

/* ---- a step ----------------------------------------------------------------------------- */

/* What may follow a part, and drivers whose stages elsewhere are not ready any more. */
static void hosting_look_at_state(struct hosting *hosting, const struct state *state)
{
    for (struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        const struct part_life *life = &part->life;
        const Cluster__Instance *instance =
            life->is_current ? state_instance(state, life->instance) : NULL;
        if (instance && instance->next)
            part_expect(part, instance->next);
        struct error why = {0};
        error_set(&why, ERROR_BUSY, "not all of its stages are loaded");
        part_meet(part, reach_look_at_state(&part->reach, uv_now(hosting->options.loop)), &why);
        part_draft_look(part, state);
    }
}

static void hosting_step_once(struct hosting *hosting, const struct state *state, uint64_t now_ms,
                              uint64_t wall_ms)
{
    for (struct part *part = hosting_first(hosting); part; part = part_next(part))
        part_note_memory(part, uv_now(hosting->options.loop));
    if (!parts_step(&hosting->parts, state, now_ms, wall_ms))
        return;
    hosting_look_at_state(hosting, state);
    hosting_pump(hosting);
    hosting_mend(hosting);
    cache_look(hosting);
    hosting_watch(hosting);
}

void hosting_step(struct hosting *hosting, const struct state *state, uint64_t now_ms,
                  uint64_t wall_ms)
{
    if (hosting->parts.closing)
        return;
    if (hosting->stepping) { /* from one of its own events */
        hosting->again = true;
        return;
    }
    hosting->wall_ms = wall_ms;
    hosting->stepping = true;
    do {
        hosting->again = false;
        hosting_step_once(hosting, state, now_ms, wall_ms);
    } while (hosting->again && !hosting->parts.closing);
    hosting->stepping = false;
}

/* ---- opening and closing ---------------------------------------------------------------- */

static bool hosting_read_id(const char *node, uint8_t out[NODE_ID_BYTES])
{
    return id_parse(node, out, NODE_ID_BYTES);
}

enum error_code hosting_open(const struct hosting_options *options, struct hosting **out,
                             struct error *err)
{
    struct hosting *hosting = mem_new(sizeof *hosting);
    if (!hosting)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for this node's stages");
    int problem = uv_async_init(options->loop, &hosting->wake, hosting_on_wake);
    if (problem) {
        mem_free(hosting);
        return error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    }
    uv_timer_init(options->loop, &hosting->timer);
    hosting->wake.data = hosting->timer.data = hosting;
    hosting->n_handles = 2;
    hosting->options = *options;
    id_parse(options->node, hosting->node_id, NODE_ID_BYTES);
    parts_init(&hosting->parts, &(struct parts_options){.node = options->node,
                                                        .read_id = hosting_read_id,
                                                        .n_jobs_max = PARTS_JOBS,
                                                        .weights = options->weights,
                                                        .weights_problem = options->weights_problem,
                                                        .self = options->self});
    memcpy(hosting->parts.options.node_id, hosting->node_id, NODE_ID_BYTES);
    cache_open(hosting);
    *out = hosting;
    return ERROR_NONE;
}

void hosting_close(struct hosting *hosting, void (*closed)(void *arg), void *arg)
{
    assert(closed);
    hosting->closed = closed;
    hosting->closed_arg = arg;
    parts_close(&hosting->parts);
    hosting_pump(hosting);
    hosting_watch(hosting);
    hosting_tell(hosting);
}
