/* A step of the parts: what worker_step() wants of them, and the effects in their order. */
#include "hosting/parts_impl.h"

#include "base/fnv.h"
#include "base/mem.h"
#include "base/random.h"
#include "pipeline/memory_ladder.h"

#include <assert.h>
#include <string.h>

static void part_look_at_state(struct part_life *life, const struct state *state)
{
    const Cluster__Instance *instance = state_instance(state, life->instance);
    const Cluster__Placement *placement = parts_placement_of(instance, life->epoch);
    life->is_placed = life->others_ready = placement != NULL;
    life->is_current = placement && placement == instance->current;
    life->has_served |= life->is_current;
    for (uint32_t i = 0; placement && i < placement->n_stages && i < life->n_stages; i++)
        life->others_ready &=
            life->stages[i].here || placement->stages[i]->state == CLUSTER__STAGE_STATE__READY;
}

static uint32_t parts_count_seen(const struct parts *parts)
{
    uint32_t n = 0;
    for (const struct part_life *life = parts->first; life; life = life->next) {
        for (uint32_t i = 0; i < life->n_stages; i++)
            n += part_is_seen(life, i);
    }
    return n;
}

static struct worker_stage part_describe(const struct part_life *life, uint32_t i)
{
    struct worker_stage stage = {
        .instance = life->instance,
        .model = life->model,
        .device = life->stages[i].device,
        .epoch = life->epoch,
        .stage = i,
        .first_layer = life->stages[i].first_layer,
        .n_layers = life->stages[i].n_layers,
        .state = part_worker_state(life),
    };
    if (stage.state == WORKER_FAILED)
        stage.problem = life->problem.text;
    stage.memory_step = life->stages[i].memory_step;
    stage.memory_given = memory_step_words(stage.memory_step);
    return stage;
}

bool parts_step(struct parts *parts, const struct state *state, uint64_t now_ms, uint64_t wall_ms)
{
    assert(!parts->state && !parts->closing);
    parts_sweep(parts);
    struct worker_stage *stages = mem_new_array(parts_count_seen(parts) + 1, sizeof *stages);
    if (!stages)
        return false;
    struct worker_view view = {.state = state,
                               .node = parts->options.node,
                               .now_ms = now_ms,
                               .wall_ms = wall_ms,
                               .stages = stages,
                               .weights = parts->options.weights,
                               .weights_problem = parts->options.weights_problem,
                               .self = parts->options.self};
    for (struct part_life *life = parts->first; life; life = life->next) {
        part_look_at_state(life, state);
        for (uint32_t i = 0; i < life->n_stages; i++) {
            if (part_is_seen(life, i))
                stages[view.n_stages++] = part_describe(life, i);
        }
    }
    /* Without memory: what there is of actions is good, the rest comes later. */
    worker_step(&view, &parts->actions, NULL);
    mem_free(stages);
    parts->state = state;
    parts->now_ms = now_ms;
    parts->at = 0;
    parts->reports = parts->was_wanted = false;
    parts_check(parts);
    return true;
}

/* A report is made in every step until the state shows it. */
static bool parts_was_said(struct parts *parts, const struct worker_action *action)
{
    const bool is_memory = action->type == WORKER_REPORT_MEMORY;
    const uint32_t state = is_memory ? action->memory_step : action->state;
    const uint64_t key =
        random_mix(fnv_text(is_memory ? ~FNV_BASIS : FNV_BASIS, action->instance)) ^
        (action->epoch << 8) ^ action->stage;
    const uint32_t n_all = sizeof parts->said / sizeof *parts->said;
    uint32_t i = 0;
    while (i < parts->n_said && parts->said[i].key != key)
        i++;
    if (i == parts->n_said && parts->n_said < n_all)
        parts->n_said++;
    else if (i == parts->n_said) /* full: the memory is only to spare the log */
        i = (uint32_t)(key % n_all);
    struct parts_said *said = &parts->said[i];
    if (said->key == key && said->state == state && said->at_ms &&
        parts->now_ms - said->at_ms < PARTS_REPEAT_MS)
        return true;
    *said = (struct parts_said){key, parts->now_ms, state};
    return false;
}

/* True: there is something to be done first, and the action is to be looked at again. */
static bool parts_act_load(struct parts *parts, const struct worker_action *action,
                           struct parts_effect *out)
{
    const Cluster__Instance *instance = state_instance(parts->state, action->instance);
    const Cluster__Placement *placement = parts_placement_of(instance, action->epoch);
    const Cluster__Model *model = state_model(parts->state, action->model);
    struct part_life *life = parts_find(parts, action->instance, action->epoch);
    if (!life && placement && model && !parts->was_wanted && placement->n_stages <= LIMIT_STAGES) {
        const bool takes_over = placement == instance->next && !placement->replaces;
        *out = (struct parts_effect){.type = PARTS_WANTED,
                                     .instance = instance,
                                     .model = model,
                                     .placement = placement,
                                     .from = takes_over ? instance->current : NULL};
        return parts->was_wanted = true;
    }
    parts->was_wanted = false;
    if (!life || life->state != PART_WAITING)
        return false; /* no memory: the next step asks again */
    life->stages[action->stage].asked = true;
    if (action->type == WORKER_ADOPT)
        life->adopts = action->from_epoch;
    return false;
}

/* What the new part takes over is closed before it is loaded: the weights stay. */
static bool parts_act_adopt(struct parts *parts, const struct worker_action *action,
                            struct parts_effect *out)
{
    const Cluster__Placement *next = parts_placement(parts->state, action->instance, action->epoch);
    struct part_life *older = parts_find(parts, action->instance, action->from_epoch);
    return next && older && parts_choose_pin(parts, older, next, out);
}

static bool parts_act_unload(struct parts *parts, const struct worker_action *action,
                             struct parts_effect *out)
{
    const Cluster__Instance *instance = state_instance(parts->state, action->instance);
    struct part_life *life = parts_find(parts, action->instance, action->epoch);
    const bool has_heir = instance && instance->active && instance->current;
    if (life && has_heir &&
        parts_choose_pin(parts, life, instance->next ? instance->next : instance->current, out)) {
        parts->at--; /* it is looked at again, once its layers are safe */
        return true;
    }
    *out = (struct parts_effect){.type = PARTS_UNWANTED, .life = life, .instance = instance};
    out->from = has_heir ? instance->current : NULL;
    return life;
}

/* True: `out` is to be carried out. */
static bool parts_act(struct parts *parts, const struct worker_action *action,
                      struct parts_effect *out)
{
    switch (action->type) {
    case WORKER_FETCH:
        *out = (struct parts_effect){.type = PARTS_FETCH,
                                     .action = action,
                                     .model = state_model(parts->state, action->model)};
        return out->model;
    case WORKER_LOAD:
        if (parts_act_load(parts, action, out))
            parts->at--;
        return parts->was_wanted;
    case WORKER_ADOPT:
        if (parts_act_load(parts, action, out)) {
            parts->at--;
            return true;
        }
        return parts_act_adopt(parts, action, out);
    case WORKER_UNLOAD:
        return parts_act_unload(parts, action, out);
    case WORKER_REPORT:
    case WORKER_REPORT_MEMORY:
        *out = (struct parts_effect){.type = PARTS_PROPOSE, .action = action};
        return !parts_was_said(parts, action);
    }
    return false;
}

/* Reports may change the state, which the actions' texts belong to: those last. */
static bool parts_next_action(struct parts *parts, struct parts_effect *out)
{
    while (parts->state) {
        if (parts->at == parts->actions.n && parts->reports) {
            worker_actions_clear(&parts->actions);
            parts->state = NULL;
            parts_sweep(parts);
            parts_jobs(parts);
        } else if (parts->at == parts->actions.n) {
            parts_drop_pins(parts, parts->state); /* reports may change it */
            parts->reports = true;
            parts->at = 0;
        } else {
            const struct worker_action *action = &parts->actions.list[parts->at++];
            if (worker_action_is_report(action) == parts->reports && parts_act(parts, action, out))
                return true;
        }
    }
    return false;
}

bool parts_next(struct parts *parts, struct parts_effect *out)
{
    for (struct part_life *life = parts->first; life; life = life->next) {
        if (part_next_flag(life, out))
            return true;
    }
    if (parts_next_action(parts, out))
        return true;
    if (parts_next_unpin(parts, out)) /* before jobs: it makes room */
        return true;
    if (parts->looks_for_jobs && parts_next_job(parts, out))
        return true;
    parts->looks_for_jobs = false;
    parts_check(parts);
    struct part_life *freed = parts->freed;
    if (freed) {
        parts->freed = freed->next;
        *out = (struct parts_effect){.type = PARTS_FREE, .life = freed};
        return true;
    }
    const bool is_changed = parts->is_changed;
    parts->is_changed = false;
    *out = (struct parts_effect){.type = PARTS_CHANGED};
    return is_changed;
}
