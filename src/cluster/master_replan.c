/* Moves for gain: asks placement/replan.h about an instance as it is and what is known now. */
#include "base/mem.h"
#include "cluster/master.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/replan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHARE_MIN 0.01 /* however hot it is predicted to get, it is the governor that pauses it */

/* What is remembered of an instance; nothing of it is needed by another leader. */
struct master_mover_memory {
    char instance[LIMIT_CLUSTER_ID_BYTES + 1];
    struct replan_state state;
    uint64_t must_since_ms;      /* its layout is not valid since; 0: it is */
    uint64_t must_ms, forced_ms; /* not before; how long that was put off */
};

void master_mover_clear(struct master_mover *mover)
{
    for (uint32_t i = 0; i < mover->n; i++)
        mem_free(mover->list[i]);
    mover->n = 0;
}

static struct master_mover_memory *replan_recall(struct master_mover *mover,
                                                 const struct master_view *view, const char *id)
{
    struct master_mover_memory *memory = NULL;
    for (uint32_t i = mover->n; i-- > 0;) {
        if (strcmp(mover->list[i]->instance, id) == 0) {
            memory = mover->list[i];
        } else if (!state_instance(view->state, mover->list[i]->instance)) {
            mem_free(mover->list[i]);
            mover->list[i] = mover->list[--mover->n];
        }
    }
    if (memory || mover->n == LIMIT_CLUSTER_INSTANCES || strlen(id) > LIMIT_CLUSTER_ID_BYTES)
        return memory;
    memory = mem_new(sizeof *memory);
    if (!memory)
        return NULL;
    snprintf(memory->instance, sizeof memory->instance, "%s", id);
    mover->list[mover->n++] = memory;
    return memory;
}

/* ---- the question ---------------------------------------------------------------------------- */

struct asking {
    const struct master_mover *mover;
    const struct master_view *view;
    const Cluster__Instance *instance;
    const struct placement_problem *given;
    const struct master_device *names;
    struct placement_problem problem;
    struct placement_device *devices; /* problem's */
    struct replan_device *disks;
    struct replan_layout layout;
};

static uint32_t replan_device_of(const struct asking *a, const Cluster__Stage *stage)
{
    uint32_t i = 0;
    while (i < a->given->n_devices && (strcmp(a->names[i].node, stage->node) != 0 ||
                                       strcmp(a->names[i].device, stage->device) != 0))
        i++;
    return i;
}

/* The layout as it is. What is in use does not stand by; and a device in use is short of memory
 * only when half of its reserve has gone, so that the noise of measuring moves nothing. */
static bool take_layout(struct asking *a)
{
    const Cluster__Placement *current = a->instance->current;
    struct placement placement = {0};
    for (size_t i = 0; i < current->n_stages && i < LIMIT_STAGES; i++) {
        const uint32_t device = replan_device_of(a, current->stages[i]);
        if (device == a->given->n_devices)
            return false;
        a->devices[device].excluded = false;
        a->devices[device].reserve_bytes /= 2;
        placement.stages[placement.n_stages++] = (struct placement_stage){
            device, current->stages[i]->first_layer, current->stages[i]->n_layers};
    }
    a->layout = replan_layout_of(&a->problem, &placement);
    return true;
}

/* ---- heat ------------------------------------------------------------------------------------ */

static struct master_use replan_use_of(const struct master_view *view, const char *instance)
{
    for (uint32_t i = 0; i < view->n_uses; i++) {
        if (strcmp(view->uses[i].instance, instance) == 0)
            return view->uses[i];
    }
    return (struct master_use){0};
}

static bool covers(const struct placement *placement, const struct placement_model *model)
{
    uint32_t n_layers = 0;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        if (stage->device == REPLAN_GONE || stage->first_layer != n_layers ||
            stage->n_layers > model->n_layers - n_layers)
            return false;
        n_layers += stage->n_layers;
    }
    return n_layers == model->n_layers;
}

/* What the use to come would take if every device could compute all of its time while it is
 * cool. */
static enum error_code full_s_of_use(const struct asking *a, const struct placement *current,
                                     double *out, struct error *err)
{
    const uint32_t n = a->problem.n_devices;
    struct placement_problem problem = a->problem;
    struct placement_device *full = mem_new_array(n, sizeof *full);
    *out = 0;
    if (!full)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u devices", n);
    memcpy(full, a->devices, n * sizeof *full);
    for (uint32_t i = 0; i < n; i++)
        full[i].share = full[i].full_s > 0 ? 1 : full[i].share;
    problem.devices = full;
    if (covers(current, &problem.model)) {
        const struct placement_cost cost = placement_decode_cost(&problem, current);
        const double rate = placement_decode_tokens_per_s(&problem, &cost);
        *out =
            rate > 0 && isfinite(rate) ? replan_use_of(a->view, a->instance->id).tokens / rate : 0;
    }
    mem_free(full);
    return ERROR_NONE;
}

static uint32_t layers_on(const struct placement *placement, uint32_t device)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < placement->n_stages; i++)
        n += placement->stages[i].device == device ? placement->stages[i].n_layers : 0;
    return n;
}

/* A prediction is doubted: a device that is in use has to be surely too hot before it is left, and
 * one that is not has to be surely cool enough. Then each has one share for the use to come: a
 * device that will be hot soon has less, one that stays cool for as long as it is needed has all.
 * One that is not in use gets nothing for being cool at first: it would be left again. */
static enum error_code foresee(struct asking *a, struct error *err)
{
    const struct placement current = replan_find(&a->problem, &a->layout);
    double seconds;
    const enum error_code code = full_s_of_use(a, &current, &seconds, err);
    for (uint32_t i = 0; i < a->problem.n_devices && !code; i++) {
        struct placement_device *device = &a->devices[i];
        if (device->full_s <= 0 || device->share <= 0)
            continue;
        const bool used = layers_on(&current, i) > 0;
        const double doubted = device->share + (used ? device->share_error : -device->share_error);
        device->share = fmin(fmax(doubted, SHARE_MIN), 1);
        if (used || seconds <= device->full_s)
            device->share = placement_share_over(device, seconds);
    }
    return code;
}

static enum error_code replan_prepare(struct asking *a, struct error *err)
{
    const struct master_mover *mover = a->mover;
    const uint32_t n = a->given->n_devices;
    a->problem = *a->given;
    a->devices = mem_new_array(n, sizeof *a->devices);
    a->disks = mem_new_array(n, sizeof *a->disks);
    if (!a->devices || !a->disks)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u devices", n);
    memcpy(a->devices, a->given->devices, n * sizeof *a->devices);
    a->problem.devices = a->devices;
    a->problem.demand.micro_batches = (uint32_t)a->instance->current->n_stages; /* as it runs */
    for (uint32_t i = 0; i < n; i++)
        a->disks[i].disk_bytes_per_s =
            mover->has_weights &&
                    mover->has_weights(mover->self, a->names[i].node, a->instance->model)
                ? MASTER_DISK_BYTES_PER_S
                : 0;
    if (!take_layout(a))
        return error_set(err, ERROR_NOT_FOUND, "a device of the placement is missing");
    const enum error_code code = placement_problem_check(&a->problem, err);
    return code ? code : foresee(a, err);
}

/* The caches of requests under way are taken to be half full; more than there is no room for. */
static uint64_t replan_kv_tokens(const struct asking *a, uint32_t live)
{
    const struct placement_demand *demand = &a->problem.demand;
    const uint64_t most = demand->cells ? demand->cells
                                        : (uint64_t)demand->context_tokens * demand->streams,
                   half = (uint64_t)live * (demand->context_tokens / 2);
    return half < most ? half : most;
}

static uint32_t replan_kv_sequences(const struct asking *a, uint32_t live)
{
    const uint32_t streams = a->problem.demand.streams;
    return live < streams ? live : streams;
}

/* What is still to come is taken to be what came of late. */
static enum error_code replan_ask(const struct asking *a, struct master_mover_memory *memory,
                                  struct replan_decision *out, struct error *err)
{
    const struct master_use use = replan_use_of(a->view, a->instance->id);
    const struct replan_input input = {
        .problem = &a->problem,
        .devices = a->disks,
        .current = &a->layout,
        .tokens = use.tokens,
        .kv_tokens = replan_kv_tokens(a, use.live),
        .kv_sequences = replan_kv_sequences(a, use.live),
        .now_s = (double)a->view->now_ms / 1000,
    };
    struct replan_options options = replan_options_default();
    options.solve.max_nodes = a->mover->max_nodes;
    if (a->mover->replan)
        return a->mover->replan(a->mover->solver, a->instance->id, &input, &options, &memory->state,
                                out, err);
    return replan(&input, &options, &memory->state, &memory->state, out, err);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* A layout that is not valid any more, and works nevertheless, has to be so for a while before it
 * is left; less so one that does not work either. */
static bool must_wait(struct master_mover_memory *memory, bool running, uint64_t now_ms)
{
    if (!memory->must_since_ms)
        memory->must_since_ms = now_ms;
    return now_ms - memory->must_since_ms < (running ? MASTER_MUST_MS : MASTER_STOPPED_MS) ||
           now_ms < memory->must_ms;
}

/* It is left: the next one is left alone for longer. */
static void note_forced(struct master_mover_memory *memory, uint64_t now_ms)
{
    memory->forced_ms = memory->forced_ms ? 2 * memory->forced_ms : 2 * MASTER_MUST_MS;
    if (memory->forced_ms > MASTER_FORCED_MAX_MS)
        memory->forced_ms = MASTER_FORCED_MAX_MS;
    memory->must_ms = now_ms + memory->forced_ms;
    memory->must_since_ms = 0;
}

/* The device that loses layers because it is, or will be, hot; n_devices: none. */
static uint32_t hot_device(const struct asking *a, const struct placement *target)
{
    const struct placement current = replan_find(&a->problem, &a->layout);
    uint32_t hot = a->problem.n_devices;
    for (uint32_t i = 0; i < current.n_stages; i++) {
        const uint32_t device = current.stages[i].device;
        if (device != REPLAN_GONE && a->devices[device].share < 1 &&
            layers_on(&current, device) > layers_on(target, device) &&
            (hot == a->problem.n_devices || a->devices[device].share < a->devices[hot].share))
            hot = device;
    }
    return hot;
}

static void say_why(const struct asking *a, const struct replan_decision *decision,
                    char why[static 64])
{
    const uint32_t hot = hot_device(a, &decision->plan.target);
    const struct placement_device *device = hot < a->problem.n_devices ? &a->devices[hot] : NULL;
    if (device && device->full_s > 0)
        snprintf(why, 64, "hot: %.12s/%.11s predicted to throttle in %.0f s", device->node,
                 device->id, fmin(device->full_s, 9999));
    else if (device)
        snprintf(why, 64, "%.16s/%.12s computes %.0f %% of its time", device->node, device->id,
                 device->share * 100);
    else
        snprintf(why, 64, "%.1f tokens/s instead of %.1f", decision->plan.decode_tokens_per_s,
                 decision->current_tokens_per_s);
}

static bool is_wanted(const struct asking *a, const struct replan_decision *decision,
                      struct master_mover_memory *memory, char why[static 64])
{
    const uint64_t now_ms = a->view->now_ms;
    switch (decision->verdict) {
    case REPLAN_MUST:
        snprintf(why, 64, "%.60s", decision->why);
        return !must_wait(memory, decision->running, now_ms);
    case REPLAN_MOVE:
        say_why(a, decision, why);
        memory->must_since_ms = 0;
        return true;
    case REPLAN_STAY:
    case REPLAN_WAIT:
        memory->must_since_ms = 0;
        return false;
    case REPLAN_NOWHERE:
        break;
    }
    return false;
}

/* Also when nothing is decoded while it loads. */
static bool pays_alone(const struct replan_decision *decision)
{
    const struct replan_plan *plan = &decision->plan;
    const double silent_s = plan->load_s + plan->pause_s, lost_s = plan->beside ? plan->load_s : 0;
    return decision->verdict == REPLAN_MUST ||
           decision->gain_s - lost_s > replan_options_default().worth * silent_s;
}

static enum error_code replan_consider(struct asking *a, struct master_mover_memory *memory,
                                       struct master_placement *out, char why[static 64],
                                       struct error *err)
{
    struct replan_decision *decision = mem_new(sizeof *decision);
    if (!decision)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a decision");
    enum error_code code = replan_prepare(a, err);
    if (!code)
        code = replan_ask(a, memory, decision, err);
    if (!code && is_wanted(a, decision, memory, why)) {
        struct master_placement target = {0};
        master_placement_of(&decision->plan.target, a->names, &target);
        code =
            master_check_beside(a->given, a->names, NULL, &target, err); /* with whole reserves */
        target.replaces =
            master_check_beside(a->given, a->names, a->instance->current, &target, NULL);
        if (!code && (!target.replaces || pays_alone(decision))) {
            *out = target;
            if (decision->verdict == REPLAN_MUST)
                note_forced(memory, a->view->now_ms);
        }
    }
    mem_free(decision);
    return code;
}

enum error_code master_replan(void *self, const struct master_view *view,
                              const Cluster__Instance *instance, const bool *allowed,
                              struct master_placement *out, char why[static 64], struct error *err)
{
    struct master_mover *mover = self;
    struct asking a = {.mover = mover, .view = view, .instance = instance};
    struct master_mover_memory *memory = replan_recall(mover, view, instance->id);
    *out = (struct master_placement){0};
    if (!memory)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for an instance");
    enum error_code code = mover->planner->problem(mover->planner->self, view, instance, allowed,
                                                   &a.given, &a.names, err);
    if (!code)
        code = replan_consider(&a, memory, out, why, err);
    mem_free(a.devices);
    mem_free(a.disks);
    return code;
}
