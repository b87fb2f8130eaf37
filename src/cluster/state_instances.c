/* Events of instances: what should run, where, and how far it is. */
#include "cluster/state_impl.h"

#include "base/limits.h"
#include "base/mem.h"
#include "placement/problem.h"

#include <string.h>

static Cluster__Instance *find_instance(Cluster__State *s, const char *id, size_t *at)
{
    for (size_t i = 0; i < s->n_instances; i++) {
        if (same_text(s->instances[i]->id, id)) {
            if (at)
                *at = i;
            return s->instances[i];
        }
    }
    return NULL;
}

static void drop_placement(Cluster__Placement **placement)
{
    message_free(*placement ? &(*placement)->base : NULL);
    *placement = NULL;
}

static bool demand_weights_are_good(const Cluster__ScoreWeights *weights)
{
    const uint32_t most = 1000 * LIMIT_SCORE_WEIGHT;
    const uint32_t all[] = {weights->compute, weights->memory, weights->network, weights->thermal,
                            weights->bandwidth};
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i] > most)
            return false;
        sum += all[i];
    }
    return sum > 0;
}

struct rope_stretch state_rope(const Cluster__Demand *demand)
{
    const Cluster__Rope *rope = demand->rope;
    return rope ? (struct rope_stretch){(enum rope_choice)rope->scaling, rope->factor,
                                        rope->frequency_base, rope->original_tokens}
                : (struct rope_stretch){0};
}

/* Of a wish, what is zero was left to others. */
static const char *demand_refusal(const Cluster__Demand *demand, bool is_wish)
{
    if ((!is_wish && !(demand->context_tokens && demand->streams)) ||
        demand->context_tokens > LIMIT_CONTEXT || demand->streams > LIMIT_SEQUENCES)
        return "the instance's demand cannot be met";
    const struct rope_stretch rope = state_rope(demand);
    if (rope_stretch_check(&rope, NULL))
        return "the demand's rotations are none";
    if (demand->weights_bytes > PLACEMENT_BYTES_MAX ||
        demand->time_limit_s > LIMIT_PLACING_SEARCH_S ||
        (demand->score_weights && !demand_weights_are_good(demand->score_weights)))
        return "the demand's memory, time or weights are beyond all limits";
    return NULL;
}

const char *apply_instance_desired(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Instance *instance = e->instance_desired;
    const Cluster__Demand *demand = instance->demand;
    const struct state view = {.root = s};
    if (!good_text(instance->id) || strlen(instance->id) > LIMIT_CLUSTER_ID_BYTES ||
        !good_text(instance->model) || !demand)
        return "the instance has no id, a long one, no model or no demand";
    const char *refusal = demand_refusal(demand, false);
    if (!refusal && instance->wished)
        refusal = demand_refusal(instance->wished, true);
    if (refusal)
        return refusal;
    if (instance->current || instance->next)
        return "an instance that is only wanted has no placement";
    if (find_instance(s, instance->id, NULL))
        return "the instance is there already";
    if (!state_model(&view, instance->model))
        return "there is no such model";
    if (s->n_instances == LIMIT_CLUSTER_INSTANCES)
        return "there are too many instances";
    if (!list_reserve(&s->instances, s->n_instances))
        return no_memory;
    e->instance_desired = NULL;
    LIST_ADD(s->instances, s->n_instances, instance);
    return NULL;
}

const char *apply_instance_target(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Instance *instance = find_instance(s, e->instance_target->id, NULL);
    if (!instance)
        return "there is no such instance";
    if (instance->active == e->instance_target->active)
        return "that is so already";
    instance->has_active = true;
    instance->active = e->instance_target->active;
    if (!instance->active) {
        drop_placement(&instance->current);
        drop_placement(&instance->next);
    }
    return NULL;
}

const char *apply_instance_stopped(Cluster__State *s, Cluster__Event *e)
{
    size_t at;
    if (!find_instance(s, e->instance_stopped->id, &at))
        return "there is no such instance";
    list_remove(&s->instances, &s->n_instances, at);
    return NULL;
}

/* ---- placements ---- */

/* A usable device of an admitted node. */
static bool has_device(const Cluster__State *s, const Cluster__Stage *stage)
{
    const struct state view = {.root = (Cluster__State *)(uintptr_t)s};
    const Cluster__NodeRecord *node = state_node(&view, stage->node);
    return node && node->admitted && state_device(node, stage->device);
}

static const char *check_stages(const Cluster__State *s, const Cluster__Placement *placement,
                                uint32_t n_layers)
{
    uint64_t layer = 0;
    if (placement->n_stages == 0 || placement->n_stages > LIMIT_STAGES)
        return "a placement without stages, or with too many";
    for (size_t i = 0; i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        if (stage->first_layer != layer || stage->n_layers == 0)
            return "a placement that leaves out or repeats layers";
        layer += stage->n_layers;
        if (!has_device(s, stage))
            return "a stage on a device that is not there";
        if (stage->state != CLUSTER__STAGE_STATE__LOADING)
            return "a stage that is more than wanted";
        for (size_t j = 0; j < i; j++) {
            if (same_text(stage->node, placement->stages[j]->node) &&
                same_text(stage->device, placement->stages[j]->device))
                return "a placement that takes a device twice";
        }
    }
    return layer == n_layers ? NULL : "a placement of other layers than the model's";
}

/* What serves, or loads, stays until `next` is ready; what has lost a stage is of no use any more,
 * but its other stages may still hold what the new ones can take over, so it stays as well. */
const char *apply_instance_placed(Cluster__State *s, Cluster__Event *e)
{
    Cluster__InstancePlaced *placed = e->instance_placed;
    Cluster__Instance *instance = find_instance(s, placed->id, NULL);
    const struct state view = {.root = s};
    if (!instance || !placed->placement)
        return "there is no such instance, or no placement";
    if (!instance->active)
        return "the instance is not to be loaded";
    if (placed->after_epoch != state_epoch(instance))
        return "it was decided before the last placement was known";
    if (placed->placement->epoch <= s->last_epoch)
        return "the epoch is not a new one";
    const Cluster__Model *model = state_model(&view, instance->model);
    const char *reason = check_stages(s, placed->placement, model ? model->n_layers : 0);
    if (reason)
        return reason;
    Cluster__Placement **place = instance->current ? &instance->next : &instance->current;
    drop_placement(place);
    *place = placed->placement;
    placed->placement = NULL;
    s->has_last_epoch = true;
    s->last_epoch = (*place)->epoch;
    return NULL;
}

const char *apply_instance_abandoned(Cluster__State *s, Cluster__Event *e)
{
    Cluster__Instance *instance = find_instance(s, e->instance_abandoned->id, NULL);
    if (!instance || !instance->next || instance->next->epoch != e->instance_abandoned->epoch)
        return "there is no such move";
    drop_placement(&instance->next);
    return NULL;
}

static Cluster__Placement *of_epoch(Cluster__Instance *instance, uint64_t epoch)
{
    if (instance->current && instance->current->epoch == epoch)
        return instance->current;
    return instance->next && instance->next->epoch == epoch ? instance->next : NULL;
}

const char *apply_stage_reported(Cluster__State *s, Cluster__Event *e)
{
    Cluster__StageReport *report = e->stage_reported;
    Cluster__Instance *instance = find_instance(s, report->instance, NULL);
    Cluster__Placement *placement = instance ? of_epoch(instance, report->epoch) : NULL;
    if (!placement || report->stage >= placement->n_stages)
        return "a report of a stage that nobody wants any more";
    Cluster__Stage *stage = placement->stages[report->stage];
    if (!same_text(stage->node, report->node))
        return "a report of another node's stage";
    if (report->state > CLUSTER__STAGE_STATE__FAILED ||
        (report->problem && report->problem[0] && !good_text(report->problem)))
        return "a report that says nothing";
    if (stage->state == report->state)
        return "that is known";
    stage->has_state = true;
    stage->state = report->state;
    char *old = stage->problem;
    stage->problem = report->problem;
    report->problem = old;
    if (placement == instance->next && state_is_ready(placement)) {
        drop_placement(&instance->current);
        instance->current = placement;
        instance->next = NULL;
    }
    return NULL;
}

/* Of the placement that it is of: a new one begins as it is placed. */
const char *apply_memory_stepped(Cluster__State *s, Cluster__Event *e)
{
    Cluster__MemoryStep *step = e->memory_stepped;
    Cluster__Instance *instance = find_instance(s, step->instance, NULL);
    Cluster__Placement *placement = instance ? of_epoch(instance, step->epoch) : NULL;
    if (!placement || step->stage >= placement->n_stages)
        return "memory of a stage that nobody wants any more";
    Cluster__Stage *stage = placement->stages[step->stage];
    if (!same_text(stage->node, step->node) || !same_text(stage->device, step->device))
        return "memory of another node's stage";
    if (step->step > LIMIT_CLUSTER_MEMORY_STEP || !good_text(step->given) ||
        strlen(step->given) > LIMIT_CLUSTER_ID_BYTES)
        return "a step of memory that cannot be";
    if (stage->memory_step == step->step)
        return "that is known";
    stage->has_memory_step = true;
    stage->memory_step = step->step;
    char *old = stage->memory_given;
    stage->memory_given = step->given;
    step->given = old;
    return NULL;
}

static void fail_lost(Cluster__State *s, Cluster__Placement *placement)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        Cluster__Stage *stage = placement->stages[i];
        if (has_device(s, stage))
            continue;
        stage->has_state = true;
        stage->state = CLUSTER__STAGE_STATE__FAILED;
    }
}

void fail_lost_stages(Cluster__State *s)
{
    for (size_t i = 0; i < s->n_instances; i++) {
        fail_lost(s, s->instances[i]->current);
        fail_lost(s, s->instances[i]->next);
    }
}
