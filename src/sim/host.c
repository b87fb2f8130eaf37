/* Stages on a node's devices. What decides is the node's own (hosting/parts.h); made up are the
 * devices: loading takes its time, memory is given back a moment after, a device refuses what it
 * has no room for, and may go with all that it has. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { UNLOAD_MS = 30, LOAD_MS = 50, FETCH_MS = 100, LINK_MIB_PER_S = 110 };
enum { PINNED = UINT32_MAX }; /* as a stage: weights that stay loaded for the next placement */

/* event.b of EVENT_STAGE: what event.a is. */
enum { HOST_JOB, HOST_FETCHED, HOST_TOLD };

static const char *const host_devices[SCENARIO_DEVICES] = {"d0", "d1", "d2", "d3"};

static uint32_t host_device(const char *id)
{
    assert(id[0] == 'd' && id[1] >= '0' && id[1] < '0' + SCENARIO_DEVICES);
    return (uint32_t)(id[1] - '0');
}

struct hosted *host_find(struct node *node, uint32_t instance, uint64_t epoch, uint32_t stage)
{
    struct hosted *h = node->hosted;
    while (h && (h->instance != instance || h->epoch != epoch || h->stage != stage))
        h = h->next;
    return h;
}

struct sim_part *host_part(const struct node *node, uint32_t instance, uint64_t epoch)
{
    for (struct part_life *life = node->parts.first; life; life = life->next) {
        struct sim_part *part = (struct sim_part *)life;
        if (part->instance == instance && life->epoch == epoch)
            return part;
    }
    return NULL;
}

/* ---- a device's memory ---- */

/* A layer's weights are on a device once, however many stages use them (engine/weight_unit.h). */
static bool host_shares(const struct hosted *of, const struct hosted *h, uint32_t layer)
{
    return of->instance == h->instance && of->device == h->device && of->holds &&
           layer >= of->first_layer && layer - of->first_layer < of->n_layers;
}

/* Of what `h` uses, that no stage of `list` up to `end` has on the device. */
static uint64_t host_bytes_beside(const struct hosted *list, const struct hosted *end,
                                  const struct hosted *h)
{
    uint32_t n = 0;
    for (uint32_t layer = h->first_layer; layer < h->first_layer + h->n_layers; layer++) {
        const struct hosted *of = list;
        while (of != end && !(of != h && host_shares(of, h, layer)))
            of = of->next;
        n += of == end;
    }
    assert(n <= h->n_layers);
    return h->n_layers ? h->bytes / h->n_layers * n : 0;
}

/* As if nothing were shared: quick, and mostly enough to know. */
static uint64_t host_used_at_most(const struct node *node, uint32_t device)
{
    uint64_t bytes = 0;
    for (const struct hosted *h = node->hosted; h; h = h->next)
        bytes += h->device == device && h->holds ? h->bytes : 0;
    return bytes;
}

static uint64_t host_used(const struct node *node, uint32_t device)
{
    uint64_t bytes = 0;
    for (const struct hosted *h = node->hosted; h; h = h->next)
        bytes += h->device == device && h->holds ? host_bytes_beside(node->hosted, h, h) : 0;
    return bytes;
}

bool host_computes(const struct node *node, uint32_t device)
{
    const struct hosted *h = node->hosted;
    while (h && (h->device != device || h->state != WORKER_READY))
        h = h->next;
    return h;
}

/* ---- stages on devices ---- */

static void host_later(struct world *w, const struct node *node, uint64_t ms, uint64_t a,
                       uint64_t b)
{
    world_push(
        w, (struct event){
               .at_ms = w->now_ms + ms, .type = EVENT_STAGE, .node = node->index, .a = a, .b = b});
}

void host_look_later(struct world *w, const struct node *node, uint64_t key, uint64_t ms)
{
    host_later(w, node, ms, key, HOST_JOB);
}

static void host_free(struct hosted **link)
{
    struct hosted *h = *link;
    *link = h->next;
    kept_forget(h);
    mem_free(h->route);
    mem_free(h);
}

static bool host_is_of(const struct hosted *h, const struct sim_part *part)
{
    return h->instance == part->instance && h->epoch == part->life.epoch && h->stage != PINNED;
}

static void host_free_stages(struct node *node, const struct sim_part *part)
{
    for (struct hosted **link = &node->hosted; *link;) {
        if (host_is_of(*link, part))
            host_free(link);
        else
            link = &(*link)->next;
    }
}

/* Its stages stay until they are closed; nobody reaches them any more. */
static void host_cut_off(struct node *node, const struct sim_part *part)
{
    for (struct hosted *h = node->hosted; h; h = h->next) {
        if (!host_is_of(h, part) || h->state == WORKER_UNLOADING)
            continue;
        h->state = WORKER_UNLOADING;
        kept_forget(h);
    }
}

static struct hosted *host_new(struct world *w, struct node *node, uint32_t instance,
                               uint32_t device, uint32_t first_layer, uint32_t n_layers)
{
    struct hosted *h = mem_new(sizeof *h);
    if (!h) {
        w->out_of_memory = true;
        return NULL;
    }
    assert(n_layers && instance < w->scenario->n_instances);
    *h = (struct hosted){.next = node->hosted,
                         .key = ++w->n_keys,
                         .instance = instance,
                         .device = device,
                         .bytes = n_layers * w->scenario->instances[instance].layer_mib << 20,
                         .first_layer = first_layer,
                         .n_layers = n_layers,
                         .holds = true};
    node->hosted = h;
    return h;
}

static bool host_take_route(struct world *w, struct node *node, const struct sim_part *part,
                            struct hosted *h)
{
    (void)node;
    assert(!h->route && part->life.n_stages);
    h->n_route = part->life.n_stages;
    h->route = mem_new_array((size_t)h->n_route + 1, sizeof *h->route);
    w->out_of_memory |= !h->route;
    for (uint32_t i = 0; h->route && i < h->n_route; i++)
        h->route[i] = kept_index(part->life.stages[i].node_id);
    return h->route;
}

/* ---- opening ---- */

/* NULL: all of its devices are there, and have room. What it takes to load it. */
static const char *host_take_stages(struct world *w, struct node *node, struct sim_part *part,
                                    uint64_t *ms)
{
    const struct scenario_node *is = &w->scenario->nodes[node->index];
    uint64_t mib[SCENARIO_DEVICES] = {0};
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        const struct part_stage *stage = &part->life.stages[i];
        if (!stage->here)
            continue;
        const uint32_t device = host_device(stage->device);
        if (node->devices_gone[device])
            return "the device is gone";
        struct hosted *h =
            host_new(w, node, part->instance, device, stage->first_layer, stage->n_layers);
        if (!h || !host_take_route(w, node, part, h))
            return "no memory";
        h->epoch = part->life.epoch;
        h->stage = i;
        h->state = WORKER_LOADING;
        mib[device] += host_bytes_beside(node->hosted, NULL, h) >> 20;
        if (host_used(node, device) + node->others_bytes > is->memory_mib << 20)
            return "out of memory";
        w->result->loads++;
    }
    *ms = 0;
    for (uint32_t d = 0; d < SCENARIO_DEVICES; d++)
        *ms = mib[d] * 1000 / is->load_mib_per_s > *ms ? mib[d] * 1000 / is->load_mib_per_s : *ms;
    return NULL;
}

static void host_open(struct world *w, struct node *node, struct sim_part *part)
{
    struct error why = {0};
    uint64_t ms = 0;
    const char *problem = host_take_stages(w, node, part, &ms);
    if (problem) {
        host_free_stages(node, part);
        w->result->refused_loads++;
        error_set(&why, ERROR_NO_MEMORY, "%s", problem);
        parts_fail(&node->parts, &part->life, &why);
        return;
    }
    assert(!part->job);
    parts_opening(&node->parts, &part->life);
    part->job = ++w->n_keys;
    host_look_later(w, node, part->job, LOAD_MS + ms);
}

static void host_opened(struct node *node, struct sim_part *part, const char *problem)
{
    struct error why = {0};
    assert(part->life.state == PART_LOADING && part->job);
    if (problem) {
        host_free_stages(node, part);
        error_set(&why, ERROR_IO, "%s", problem);
    }
    part->job = 0;
    part->life.has_driver = !problem && part->life.stages[0].here;
    parts_opened(&node->parts, &part->life, !problem, problem ? &why : NULL);
    for (struct hosted *h = node->hosted; h; h = h->next) {
        if (host_is_of(h, part) && part->life.state == PART_READY)
            h->state = WORKER_READY;
    }
}

/* ---- weights that stay (hosting/parts_pin.c says which) ---- */

static void host_pin(struct world *w, struct node *node, const struct sim_part *part,
                     const struct parts_pin *pin)
{
    for (uint32_t i = 0; i < pin->n_ranges; i++) {
        const struct parts_range *range = &pin->ranges[i];
        const struct hosted *of = host_find(node, part->instance, part->life.epoch, range->stage);
        assert(of && of->state == WORKER_READY);
        struct hosted *h =
            host_new(w, node, part->instance, of->device, range->first_layer, range->n_layers);
        if (!h)
            return;
        h->stage = PINNED;
        h->epoch = pin->epoch;
        h->state = WORKER_UNLOADING;
    }
}

static void host_unpin(struct node *node, struct parts_pin *pin)
{
    const uint32_t instance = instance_index(pin->instance);
    for (struct hosted **link = &node->hosted; *link;) {
        const struct hosted *h = *link;
        if (h->stage == PINNED && h->instance == instance && h->epoch == pin->epoch)
            host_free(link);
        else
            link = &(*link)->next;
    }
    parts_pin_free(pin);
}

/* ---- what the machine wants ---- */

void host_fetch(struct world *w, struct node *node, uint32_t instance)
{
    const struct scenario_instance *is = &w->scenario->instances[instance];
    if (node->fetches[instance] || node->has_weights[instance])
        return;
    node->fetches[instance] = true;
    host_later(w, node, FETCH_MS + is->layers * is->layer_mib * 1000 / LINK_MIB_PER_S / 20,
               instance, HOST_FETCHED);
}

/* Some node that is up, and within reach, has them. */
static bool host_can_fetch(struct world *w, const struct node *node, uint32_t instance)
{
    for (uint32_t i = 0; i < w->n && w->scenario->copies; i++) {
        if (w->nodes[i].has_weights[instance] && w->nodes[i].up && net_link(w, node->index, i))
            return true;
    }
    return !w->scenario->copies;
}

static void host_fetched(struct world *w, struct node *node, uint32_t instance)
{
    if (node->fetches[instance] && !host_can_fetch(w, node, instance)) {
        host_later(w, node, FETCH_MS, instance, HOST_FETCHED);
        return;
    }
    node->has_weights[instance] |= node->fetches[instance];
    node->fetches[instance] = false;
}

static void host_propose(struct world *w, struct node *node, const struct worker_action *action)
{
    Cluster__Event *event;
    if (event_decode((const uint8_t *)action->event.data, action->event.size, &event, NULL))
        return;
    const uint64_t state = event->stage_reported->state;
    const uint64_t key =
        UINT64_C(3) << 60 |
        hash_bytes(action->epoch << 8 | action->stage << 2 | state, action->instance, 2) >> 4;
    char *by = event->by;
    log_propose(w, node, event, key, false);
    event->by = by;
    event_free(event);
}

static void host_make(struct world *w, struct node *node, const struct parts_effect *wanted)
{
    struct sim_part *part = mem_new(sizeof *part);
    if (!part || !parts_add(&node->parts, &part->life, wanted)) {
        w->out_of_memory = true;
        mem_free(part);
        return;
    }
    part->instance = instance_index(wanted->instance->id);
    reach_init(&part->reach, &part->life);
    kept_init(w, node, part, wanted->from);
}

static void host_unwanted(struct world *w, struct node *node, const struct parts_effect *effect)
{
    struct sim_part *part = (struct sim_part *)effect->life;
    if (!effect->from || !kept_hand_over(w, node, part, effect->from))
        parts_retire(&node->parts, &part->life, 0);
}

static void host_job(struct world *w, struct node *node, struct sim_part *part, uint64_t ms)
{
    assert(!part->job);
    part->job = ++w->n_keys;
    host_look_later(w, node, part->job, ms);
}

static void host_carry_out(struct world *w, struct node *node, const struct parts_effect *effect)
{
    struct sim_part *part = (struct sim_part *)effect->life;
    switch (effect->type) {
    case PARTS_FETCH:
        host_fetch(w, node, instance_index(effect->action->instance));
        break;
    case PARTS_WANTED:
        host_make(w, node, effect);
        break;
    case PARTS_PIN:
        host_pin(w, node, part, effect->pin);
        break;
    case PARTS_UNPIN:
        host_unpin(node, effect->pin);
        break;
    case PARTS_UNWANTED:
        host_unwanted(w, node, effect);
        break;
    case PARTS_PROPOSE:
        host_propose(w, node, effect->action);
        break;
    case PARTS_OPEN:
        host_open(w, node, part);
        break;
    case PARTS_CANCEL:
        break; /* a device that loads is not interrupted */
    case PARTS_LEAVE:
        host_cut_off(node, part);
        kept_leave(part);
        serve_leave(w, node, part);
        break;
    case PARTS_STOP:
        host_job(w, node, part, 1);
        break;
    case PARTS_CLOSE:
        host_job(w, node, part, UNLOAD_MS);
        break;
    case PARTS_FAILED:
        host_free_stages(node, part);
        break;
    case PARTS_FREE: /* another one of this epoch may be there by now */
        kept_clear(part);
        part_life_deinit(&part->life);
        mem_free(part);
        break;
    case PARTS_CHANGED: /* in the loop's next turn */
        host_later(w, node, 1, node->boots, HOST_TOLD);
        break;
    }
}

static void host_pump(struct world *w, struct node *node)
{
    struct parts_effect effect;
    while (parts_next(&node->parts, &effect)) {
        host_carry_out(w, node, &effect);
        node->changed = true; /* there is something new to look at */
    }
}

/* ---- the node ---- */

static enum worker_weights host_weights(void *self, const Cluster__Model *model,
                                        struct worker_precision precision, uint32_t first,
                                        uint32_t n)
{
    const struct node *node = self;
    const uint32_t i = instance_index(model->name);
    (void)precision, (void)first, (void)n;
    return node->has_weights[i] ? WORKER_HAS_ALL : node->fetches[i] ? WORKER_FETCHES : WORKER_LACKS;
}

static bool host_read_id(const char *node, uint8_t out[NODE_ID_BYTES])
{
    kept_id(world_index(node), out);
    return true;
}

void host_start(struct node *node)
{
    struct parts_options options = {.node = node->id,
                                    .read_id = host_read_id,
                                    .n_jobs_max = PARTS_JOBS,
                                    .weights = host_weights,
                                    .self = node};
    kept_id(node->index, options.node_id);
    parts_init(&node->parts, &options);
}

/* Its process ends: nobody is asked. */
void host_drop_all(struct node *node)
{
    while (node->hosted)
        host_free(&node->hosted);
    while (node->parts.first) {
        struct sim_part *part = (struct sim_part *)node->parts.first;
        node->parts.first = part->life.next;
        kept_clear(part);
        part_life_deinit(&part->life);
        mem_free(part);
    }
    kept_drop_jobs(node);
    assert(!node->hosted && !node->cache_jobs);
    parts_deinit(&node->parts);
    memset(node->fetches, 0, sizeof node->fetches);
}

void host_device_gone(struct world *w, struct node *node, uint32_t device, const char *why)
{
    struct error problem = {0};
    if (!node->up)
        return; /* nothing is loaded */
    error_set(&problem, ERROR_IO, "%s", why);
    for (struct part_life *life = node->parts.first; life; life = life->next) {
        struct sim_part *part = (struct sim_part *)life;
        bool concerned = false;
        for (uint32_t i = 0; i < life->n_stages; i++)
            concerned |= life->stages[i].here && host_device(life->stages[i].device) == device;
        if (!concerned)
            continue;
        if (life->state == PART_LOADING)
            host_opened(node, part, why);
        if (life->state != PART_READY && life->state != PART_HANDING)
            continue;
        serve_missed(w, node, part);
        kept_fail(w, node, part, why);
        if (life->state == PART_READY || life->state == PART_HANDING)
            parts_give_up(&node->parts, life, &problem);
    }
    node->changed = true;
    host_pump(w, node);
}

void host_turn(struct world *w, struct node *node)
{
    if (!node_state(node)->root)
        return;
    w->out_of_memory |=
        !parts_step(&node->parts, node_state(node), w->now_ms, world_wall_ms(w, node));
    host_pump(w, node);
    kept_turn(w, node);
    host_pump(w, node);
    host_check(w, node);
}

static void host_job_ended(struct world *w, struct node *node, struct sim_part *part)
{
    if (part->life.state == PART_LOADING) {
        host_opened(node, part, NULL);
        if (part->life.state == PART_READY)
            serve_opened(w, node, part);
        return;
    }
    assert(part->life.state == PART_CLOSING);
    part->job = 0;
    if (part->life.has_driver && !part->life.stopped) {
        parts_stopped(&node->parts, &part->life);
        return;
    }
    host_free_stages(node, part);
    parts_closed(&node->parts, &part->life);
    assert(part->life.state == PART_GONE || part->life.state == PART_FAILED);
}

void host_event(struct world *w, struct node *node, const struct event *event)
{
    node->changed = true;
    if (event->b == HOST_FETCHED) {
        host_fetched(w, node, (uint32_t)event->a);
    } else if (event->b == HOST_TOLD) {
        if (event->a == node->boots) /* a log that ends takes no part along */
            parts_told(&node->parts);
    } else if (!kept_job(w, node, event->a)) {
        struct part_life *life = node->parts.first;
        while (life && ((struct sim_part *)life)->job != event->a)
            life = life->next;
        if (life)
            host_job_ended(w, node, (struct sim_part *)life);
    }
    parts_jobs(&node->parts);
    host_pump(w, node);
}

/* ---- what must be so ---- */

static const Cluster__Stage *host_placed(const Cluster__Placement *placement,
                                         const struct hosted *h)
{
    return placement && placement->epoch == h->epoch && h->stage < placement->n_stages
               ? placement->stages[h->stage]
               : NULL;
}

void host_check(struct world *w, struct node *node)
{
    const struct scenario_node *is = &w->scenario->nodes[node->index];
    for (uint32_t d = 0; d < is->devices; d++) {
        if (host_used_at_most(node, d) > is->memory_mib << 20 && host_used(node, d) > is->memory_mib
                                                                                          << 20)
            world_violated(w, "%s: device %s holds more than it has", node->name, host_devices[d]);
    }
    for (const struct hosted *h = node->hosted; h; h = h->next) {
        const char id[] = {'i', (char)('0' + h->instance), 0};
        const Cluster__Instance *instance = state_instance(node_state(node), id);
        const Cluster__Stage *stage = instance ? host_placed(instance->current, h) : NULL;
        if (instance && !stage)
            stage = host_placed(instance->next, h);
        if (!stage || h->state == WORKER_UNLOADING)
            continue;
        if (strcmp(stage->node, node->id) != 0 || host_device(stage->device) != h->device ||
            stage->first_layer != h->first_layer || stage->n_layers != h->n_layers)
            world_violated(w, "%s: stage %u of %s, epoch %llu, is not the one that was placed",
                           node->name, h->stage, instance->id, (unsigned long long)h->epoch);
    }
}
