/* Parts, and what becomes of them: opened, handed over, closed, forgotten. */
#include "hosting/parts_impl.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* ---- one ---------------------------------------------------------------------------------- */

void parts_check(const struct parts *parts)
{
    uint32_t n_jobs = 0;
    for (const struct part_life *life = parts->first; life; life = life->next) {
        n_jobs += life->state == PART_LOADING || life->state == PART_CLOSING;
        assert(life->instance && life->n_stages <= LIMIT_STAGES);
        assert(life->state != PART_CLOSING || !life->is_busy);
        assert(life->state == PART_LOADING || life->state == PART_GONE || !life->unwanted ||
               life->state == PART_CLOSING || life->stopped || life->state == PART_LEAVING);
        assert(!life->closes || life->state == PART_CLOSING);
        assert(life->state != PART_FAILED || life->problem.code);
    }
    assert(n_jobs == parts->n_jobs && n_jobs <= parts->options.n_jobs_max);
}

struct part_life *parts_find(const struct parts *parts, const char *instance, uint64_t epoch)
{
    struct part_life *life = parts->first;
    while (life && (life->epoch != epoch || strcmp(life->instance, instance) != 0))
        life = life->next;
    return life;
}

const Cluster__Placement *parts_placement_of(const Cluster__Instance *instance, uint64_t epoch)
{
    if (instance && instance->current && instance->current->epoch == epoch)
        return instance->current;
    return instance && instance->next && instance->next->epoch == epoch ? instance->next : NULL;
}

const Cluster__Placement *parts_placement(const struct state *state, const char *instance,
                                          uint64_t epoch)
{
    return parts_placement_of(state_instance(state, instance), epoch);
}

/* Stages that were not asked for yet are not there for the worker, so that it asks. */
bool part_is_seen(const struct part_life *life, uint32_t stage)
{
    return life->stages[stage].here && (life->stages[stage].asked || life->state != PART_WAITING);
}

enum worker_stage_state part_worker_state(const struct part_life *life)
{
    if (life->adopter)
        return WORKER_READY;
    switch (life->state) {
    case PART_WAITING:
        return WORKER_LOADING;
    case PART_LOADING:
        return life->unwanted ? WORKER_UNLOADING : WORKER_LOADING;
    case PART_READY:
        return WORKER_READY;
    case PART_FAILED:
        return WORKER_FAILED;
    case PART_HANDING:
    case PART_LEAVING:
    case PART_CLOSING:
    case PART_GONE:
        break;
    }
    return WORKER_UNLOADING;
}

void part_life_deinit(struct part_life *life)
{
    for (uint32_t i = 0; i < life->n_stages; i++)
        mem_free(life->stages[i].device);
    mem_free(life->instance);
    mem_free(life->model);
}

/* False: no memory. */
static bool part_fill_stage(const struct parts *parts, struct part_life *life, uint32_t i,
                            const Cluster__Stage *from)
{
    struct part_stage *stage = &life->stages[i];
    stage->here = strcmp(from->node, parts->options.node) == 0;
    stage->first_layer = from->first_layer;
    stage->n_layers = from->n_layers;
    stage->weights_max = from->weights_max;
    stage->device = mem_copy_text(from->device, strlen(from->device));
    /* The state compares nodes as text, caches as bytes: the two have to agree. */
    const uint8_t *own = parts->options.node_id;
    if (!parts->options.read_id(from->node, stage->node_id) ||
        stage->here != (memcmp(stage->node_id, own, NODE_ID_BYTES) == 0)) {
        error_set(&life->problem, ERROR_INVALID, "stage %u: there cannot be a node '%.80s'", i,
                  from->node);
        life->state = PART_FAILED;
    }
    return stage->device;
}

bool parts_add(struct parts *parts, struct part_life *life, const struct parts_effect *wanted)
{
    const Cluster__Placement *placement = wanted->placement;
    assert(wanted->type == PARTS_WANTED && placement->n_stages <= LIMIT_STAGES);
    assert(!parts_find(parts, wanted->instance->id, placement->epoch));
    life->epoch = placement->epoch;
    life->instance = mem_copy_text(wanted->instance->id, strlen(wanted->instance->id));
    life->model = mem_copy_text(wanted->model->name, strlen(wanted->model->name));
    bool ok = life->instance && life->model;
    for (uint32_t i = 0; i < placement->n_stages && ok; i++)
        ok = part_fill_stage(parts, life, life->n_stages++, placement->stages[i]);
    if (!ok) {
        part_life_deinit(life);
        return false;
    }
    life->next = parts->first;
    parts->first = life;
    return true;
}

/* ---- going -------------------------------------------------------------------------------- */

static void part_leave(struct parts *parts, struct part_life *life)
{
    life->state = PART_LEAVING;
    life->told = false;
    life->leaves = true;
    parts->is_changed = true;
}

void parts_give_up(struct parts *parts, struct part_life *life, const struct error *why)
{
    assert(life->state == PART_READY || life->state == PART_HANDING);
    assert(why->code);
    life->problem = *why;
    part_leave(parts, life);
}

void parts_hand_over(struct parts *parts, struct part_life *life)
{
    assert(life->state == PART_READY || life->state == PART_HANDING);
    parts->is_changed |= life->state == PART_READY;
    life->state = PART_HANDING;
}

void parts_retire(struct parts *parts, struct part_life *life, uint64_t adopter)
{
    life->adopter = adopter;
    switch (life->state) {
    case PART_WAITING:
    case PART_FAILED:
        life->state = PART_GONE;
        break;
    case PART_LOADING:
        life->cancels = !life->unwanted;
        life->unwanted = true;
        break;
    case PART_READY:
    case PART_HANDING:
        part_leave(parts, life);
        break;
    case PART_LEAVING:
    case PART_CLOSING:
    case PART_GONE:
        break;
    }
}

static bool parts_sweep_once(struct parts *parts)
{
    bool any = false;
    for (struct part_life *life = parts->first; life; life = life->next) {
        if (life->adopter && !parts_find(parts, life->instance, life->adopter))
            life->adopter = 0;
    }
    for (struct part_life **at = &parts->first; *at;) {
        struct part_life *life = *at;
        if (life->state != PART_GONE || life->adopter || life->fails) {
            at = &life->next;
            continue;
        }
        *at = life->next;
        life->next = parts->freed;
        parts->freed = life;
        any = true;
    }
    return any;
}

void parts_sweep(struct parts *parts)
{
    while (parts_sweep_once(parts)) /* who waited for a successor goes with it */
        ;
}

void parts_told(struct parts *parts)
{
    for (struct part_life *life = parts->first; life; life = life->next) {
        life->told = life->state == PART_LEAVING;
        if (!parts->closing)
            continue;
        if (life->state == PART_WAITING || life->state == PART_FAILED)
            life->state = PART_GONE;
        life->adopter = 0;
    }
    parts_sweep(parts);
}

void parts_close(struct parts *parts)
{
    parts->closing = true;
    for (struct part_life *life = parts->first; life; life = life->next)
        parts_retire(parts, life, 0);
    parts_drop_pins(parts, NULL);
    parts->is_changed = true;
}

/* ---- jobs --------------------------------------------------------------------------------- */

void parts_jobs(struct parts *parts)
{
    parts->looks_for_jobs = true;
    for (struct part_life *life = parts->first; life; life = life->next)
        life->is_tried = false;
}

/* A driver in two jobs: who had it may have been about to cancel a request when the first ended
 * it. */
static void part_begin_closing(struct parts *parts, struct part_life *life)
{
    assert(!life->is_busy);
    life->state = PART_CLOSING;
    life->closes = true;
    parts->n_jobs++;
}

static void part_fail(struct parts *parts, struct part_life *life)
{
    assert(life->problem.code);
    life->state = PART_FAILED;
    life->fails = true;
    parts->is_changed = true;
}

void parts_fail(struct parts *parts, struct part_life *life, const struct error *why)
{
    assert(life->state == PART_WAITING);
    life->problem = *why;
    part_fail(parts, life);
}

void parts_opening(struct parts *parts, struct part_life *life)
{
    assert(life->state == PART_WAITING && parts->n_jobs < parts->options.n_jobs_max);
    life->state = PART_LOADING;
    parts->n_jobs++;
}

void parts_opened(struct parts *parts, struct part_life *life, bool is_open,
                  const struct error *why)
{
    assert(life->state == PART_LOADING && parts->n_jobs);
    assert(is_open || why);
    parts->n_jobs--;
    if (why)
        life->problem = *why;
    if (!is_open) {
        part_fail(parts, life);
        if (life->unwanted)
            life->state = PART_GONE;
    } else if (why || life->unwanted) {
        part_begin_closing(parts, life);
    } else {
        life->state = PART_READY;
        parts->is_changed = true;
    }
}

void parts_stopped(struct parts *parts, struct part_life *life)
{
    assert(life->state == PART_CLOSING && !life->stopped && parts->n_jobs);
    parts->n_jobs--;
    life->state = PART_LEAVING;
    life->stopped = true;
    life->told = false;
    parts->is_changed = true;
}

void parts_closed(struct parts *parts, struct part_life *life)
{
    assert(life->state == PART_CLOSING && parts->n_jobs);
    parts->n_jobs--;
    if (life->problem.code)
        part_fail(parts, life);
    else
        life->state = PART_GONE;
    parts->is_changed = true;
}

static bool parts_share_device(const struct part_life *a, const struct part_life *b)
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

static bool part_devices_are_free(const struct parts *parts, const struct part_life *life)
{
    for (const struct part_life *other = parts->first; other; other = other->next) {
        const bool goes = other->state == PART_HANDING || other->state == PART_LEAVING ||
                          other->state == PART_CLOSING ||
                          (other->state == PART_LOADING && other->unwanted);
        if (goes && other != life && parts_share_device(life, other))
            return false;
    }
    return true;
}

static bool part_is_asked(const struct part_life *life)
{
    for (uint32_t i = 0; i < life->n_stages; i++) {
        if (life->stages[i].here && !life->stages[i].asked)
            return false;
    }
    return true;
}

static void part_adopt(struct parts *parts, struct part_life *life)
{
    struct part_life *old = life->adopts ? parts_find(parts, life->instance, life->adopts) : NULL;
    if (!old || life->epoch == old->adopter)
        return;
    if (old->adopter || old->state == PART_READY)
        parts_retire(parts, old, life->epoch);
}

bool part_next_flag(struct part_life *life, struct parts_effect *out)
{
    const bool stops = life->has_driver && !life->stopped;
    struct {
        bool *flag;
        enum parts_effect_type type;
    } const flags[] = {{&life->cancels, PARTS_CANCEL},
                       {&life->leaves, PARTS_LEAVE},
                       {&life->fails, PARTS_FAILED},
                       {&life->closes, stops ? PARTS_STOP : PARTS_CLOSE}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!*flags[i].flag)
            continue;
        *flags[i].flag = false;
        *out = (struct parts_effect){.type = flags[i].type, .life = life};
        return true;
    }
    return false;
}

/* Closing first: it makes room. */
bool parts_next_job(struct parts *parts, struct parts_effect *out)
{
    for (struct part_life *life = parts->first; life; life = life->next) {
        if (life->state == PART_LEAVING && life->told && !life->leaves && !life->is_busy &&
            parts->n_jobs < parts->options.n_jobs_max) {
            part_begin_closing(parts, life);
            return part_next_flag(life, out);
        }
    }
    for (struct part_life *life = parts->first; life && !parts->closing; life = life->next) {
        if (life->state != PART_WAITING || life->is_tried || !part_is_asked(life))
            continue;
        part_adopt(parts, life);
        life->is_tried = true;
        if (!part_devices_are_free(parts, life) || parts->n_jobs >= parts->options.n_jobs_max)
            continue;
        *out = (struct parts_effect){.type = PARTS_OPEN, .life = life};
        return true;
    }
    return false;
}

void parts_init(struct parts *parts, const struct parts_options *options)
{
    assert(options->node && options->read_id && options->n_jobs_max);
    *parts = (struct parts){.options = *options};
}

void parts_deinit(struct parts *parts)
{
    if (!parts)
        return;
    assert(!parts->first && !parts->freed);
    struct parts_effect effect;
    parts->closing = true;
    parts_drop_pins(parts, NULL);
    while (parts_next_unpin(parts, &effect)) /* nobody holds them any more */
        parts_pin_free(effect.pin);
    worker_actions_clear(&parts->actions);
    *parts = (struct parts){0};
}
