/* Stages on a node's devices: worker_step() says what to do; loading takes its time, memory is
 * given back a moment after, and a device refuses what it has no room for. As hosting/hosting.h. */
#include "sim/world.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { UNLOAD_MS = 30, LOAD_MS = 50, FETCH_MS = 100, LINK_MIB_PER_S = 110 };
enum { EVENT_FETCHED = 1 }; /* event.b of EVENT_STAGE; 0: of the stage whose key is in event.a */

static const char *const instances[SCENARIO_INSTANCES] = {"i0", "i1", "i2", "i3",
                                                          "i4", "i5", "i6", "i7"};
static const char *const models[SCENARIO_INSTANCES] = {"m0", "m1", "m2", "m3",
                                                       "m4", "m5", "m6", "m7"};
static const char *const devices[SCENARIO_DEVICES] = {"d0", "d1", "d2", "d3"};

struct hosted *host_find(struct node *node, uint32_t instance, uint64_t epoch, uint32_t stage)
{
    struct hosted *h = node->hosted;
    while (h && (h->instance != instance || h->epoch != epoch || h->stage != stage))
        h = h->next;
    return h;
}

/* A layer's weights are on a device once, however many stages use them (engine/weight_unit.h). */
static bool shares(const struct hosted *of, const struct hosted *h, uint32_t layer)
{
    return of->instance == h->instance && of->device == h->device && of->holds &&
           layer >= of->first_layer && layer - of->first_layer < of->n_layers;
}

/* Of what `h` uses, that no stage of `list` up to `end` has on the device. */
static uint64_t bytes_beside(const struct hosted *list, const struct hosted *end,
                             const struct hosted *h)
{
    uint32_t n = 0;
    for (uint32_t layer = h->first_layer; layer < h->first_layer + h->n_layers; layer++) {
        const struct hosted *of = list;
        while (of != end && !(of != h && shares(of, h, layer)))
            of = of->next;
        n += of == end;
    }
    return h->n_layers ? h->bytes / h->n_layers * n : 0;
}

/* As if nothing were shared: quick, and mostly enough to know. */
static uint64_t held_at_most(const struct node *node, uint32_t device)
{
    uint64_t bytes = 0;
    for (const struct hosted *h = node->hosted; h; h = h->next)
        bytes += h->device == device && h->holds ? h->bytes : 0;
    return bytes;
}

static uint64_t held(const struct node *node, uint32_t device)
{
    uint64_t bytes = 0;
    for (const struct hosted *h = node->hosted; h; h = h->next)
        bytes += h->device == device && h->holds ? bytes_beside(node->hosted, h, h) : 0;
    return bytes;
}

bool host_computes(const struct node *node, uint32_t device)
{
    const struct hosted *h = node->hosted;
    while (h && (h->device != device || h->state != WORKER_READY))
        h = h->next;
    return h;
}

static void later(struct world *w, const struct node *node, uint64_t ms, uint64_t a, uint64_t b)
{
    world_push(
        w, (struct event){
               .at_ms = w->now_ms + ms, .type = EVENT_STAGE, .node = node->index, .a = a, .b = b});
}

void host_look_later(struct world *w, const struct node *node, uint64_t key, uint64_t ms)
{
    later(w, node, ms, key, 0);
}

static void free_hosted(struct hosted **link)
{
    struct hosted *h = *link;
    *link = h->next;
    kept_forget(h);
    mem_free(h->route);
    mem_free(h);
}

void host_drop_all(struct node *node)
{
    while (node->hosted)
        free_hosted(&node->hosted);
    kept_drop_all(node);
    memset(node->fetches, 0, sizeof node->fetches);
}

static void fail(struct world *w, struct node *node, struct hosted *h, const char *why)
{
    serve_stage_gone(w, node, h);
    kept_leave(w, node, h, why);
    h->state = WORKER_FAILED;
    h->problem = why;
    h->holds = h->waits = false;
    kept_forget(h);
    h->key = ++w->n_keys;
    node->changed = true;
}

void host_device_gone(struct world *w, struct node *node, uint32_t device, const char *why)
{
    for (struct hosted *h = node->hosted; h; h = h->next) {
        if (h->device == device && (h->state == WORKER_READY || h->state == WORKER_LOADING))
            fail(w, node, h, why);
    }
}

/* ---- what the worker wants ---- */

static void begin_unload(struct world *w, struct node *node, struct hosted *h)
{
    if (h->state == WORKER_UNLOADING)
        return;
    serve_stage_gone(w, node, h);
    kept_leave(w, node, h, NULL);
    h->state = WORKER_UNLOADING;
    kept_forget(h);
    h->key = ++w->n_keys;
    later(w, node, h->holds ? UNLOAD_MS : 1, h->key, 0);
}

static bool is_clearing(const struct node *node, uint32_t device)
{
    for (const struct hosted *h = node->hosted; h; h = h->next) {
        if (h->device == device && h->state == WORKER_UNLOADING)
            return true;
    }
    return false;
}

static void begin_load(struct world *w, struct node *node, struct hosted *h)
{
    const struct scenario_node *is = &w->scenario->nodes[node->index];
    if (is_clearing(node, h->device))
        return;
    h->waits = false;
    if (node->devices_gone[h->device]) {
        fail(w, node, h, "the device is gone");
        return;
    }
    const uint64_t bytes = bytes_beside(node->hosted, NULL, h);
    if (held(node, h->device) + bytes + node->others_bytes > is->memory_mib << 20) {
        w->result->refused_loads++;
        fail(w, node, h, "out of memory");
        return;
    }
    h->holds = true;
    w->result->loads++;
    later(w, node, LOAD_MS + (bytes >> 20) * 1000 / is->load_mib_per_s, h->key, 0);
}

static bool take_route(struct world *w, struct node *node, struct hosted *h)
{
    const Cluster__Placement *placement = serve_placement(node, h->instance, h->epoch);
    h->n_route = placement ? (uint32_t)placement->n_stages : 0;
    h->route = mem_new_array((size_t)h->n_route + 1, sizeof *h->route);
    for (uint32_t i = 0; h->route && i < h->n_route; i++)
        h->route[i] = world_node(w, placement->stages[i]->node)->index;
    return h->route;
}

static void load(struct world *w, struct node *node, const struct worker_action *action)
{
    const uint32_t instance = instance_index(action->instance);
    if (host_find(node, instance, action->epoch, action->stage))
        return;
    struct hosted *old = action->type == WORKER_ADOPT
                             ? host_find(node, instance, action->from_epoch, action->from_stage)
                             : NULL;
    const bool adopts = old && old->holds;
    if (old)
        begin_unload(w, node, old);
    if (adopts)
        old->holds = false;
    struct hosted *h = mem_new(sizeof *h);
    if (!h) {
        w->out_of_memory = true;
        return;
    }
    *h = (struct hosted){.next = node->hosted,
                         .key = ++w->n_keys,
                         .instance = instance,
                         .device = (uint32_t)(action->device[1] - '0'),
                         .stage = action->stage,
                         .epoch = action->epoch,
                         .bytes = action->n_layers * w->scenario->instances[instance].layer_mib
                                  << 20,
                         .first_layer = action->first_layer,
                         .n_layers = action->n_layers,
                         .state = WORKER_LOADING,
                         .waits = true};
    node->hosted = h;
    if (!take_route(w, node, h)) {
        w->out_of_memory = true;
        return;
    }
    kept_open(w, node, h);
    if (adopts) { /* the weights stay */
        h->waits = false;
        h->holds = true;
        later(w, node, LOAD_MS, h->key, 0);
        return;
    }
    begin_load(w, node, h);
}

static void fetch(struct world *w, struct node *node, uint32_t instance)
{
    const struct scenario_instance *is = &w->scenario->instances[instance];
    if (node->fetches[instance])
        return;
    node->fetches[instance] = true;
    later(w, node, FETCH_MS + is->layers * is->layer_mib * 1000 / LINK_MIB_PER_S / 20, instance,
          EVENT_FETCHED);
}

static uint64_t report_key(const struct worker_action *action)
{
    Cluster__Event *event;
    if (event_decode((const uint8_t *)action->event.data, action->event.size, &event, NULL))
        return 0;
    const uint64_t state = event->stage_reported->state;
    event_free(event);
    return UINT64_C(3) << 60 |
           hash_bytes(action->epoch << 8 | action->stage << 2 | state, action->instance, 2) >> 4;
}

static void act(struct world *w, struct node *node, const struct worker_action *action)
{
    Cluster__Event *event;
    struct hosted *h;
    switch (action->type) {
    case WORKER_FETCH:
        fetch(w, node, instance_index(action->instance));
        break;
    case WORKER_LOAD:
    case WORKER_ADOPT:
        load(w, node, action);
        break;
    case WORKER_UNLOAD:
        h = host_find(node, instance_index(action->instance), action->epoch, action->stage);
        if (h && !kept_hand_over(w, node, h))
            begin_unload(w, node, h);
        break;
    case WORKER_REPORT:
        if (event_decode((const uint8_t *)action->event.data, action->event.size, &event, NULL))
            break;
        char *by = event->by;
        log_propose(w, node, event, report_key(action), false);
        event->by = by;
        event_free(event);
        break;
    }
}

struct weights_of {
    struct world *w;
    struct node *node;
};

static enum worker_weights weights(void *self, const Cluster__Model *model, uint32_t first,
                                   uint32_t n)
{
    const struct weights_of *of = self;
    const uint32_t i = instance_index(model->name);
    (void)first, (void)n;
    return of->node->has_weights[i] ? WORKER_HAS_ALL
           : of->node->fetches[i]   ? WORKER_FETCHES
                                    : WORKER_LACKS;
}

void host_turn(struct world *w, struct node *node)
{
    struct worker_stage stages[64];
    struct worker_actions actions;
    struct weights_of of = {w, node};
    uint32_t n = 0;
    if (!node_state(node)->root)
        return;
    for (const struct hosted *h = node->hosted; h && n < 64; h = h->next)
        stages[n++] = (struct worker_stage){
            instances[h->instance], models[h->instance], devices[h->device], h->epoch,  h->stage,
            h->first_layer,         h->n_layers,         h->state,           h->problem};
    const struct worker_view view = {.state = node_state(node),
                                     .node = node->id,
                                     .now_ms = w->now_ms,
                                     .wall_ms = world_wall_ms(w, node),
                                     .stages = stages,
                                     .n_stages = n,
                                     .weights = weights,
                                     .self = &of};
    w->out_of_memory |= worker_step(&view, &actions, NULL) != ERROR_NONE;
    for (uint32_t i = 0; i < actions.n; i++)
        act(w, node, &actions.list[i]);
    worker_actions_clear(&actions);
    kept_turn(w, node);
    host_check(w, node);
}

void host_event(struct world *w, struct node *node, const struct event *event)
{
    if (event->b == EVENT_FETCHED) {
        node->has_weights[event->a] |= node->fetches[event->a];
        node->fetches[event->a] = false;
        node->changed = true;
        return;
    }
    if (kept_job(w, node, event->a))
        return;
    for (struct hosted **link = &node->hosted; *link; link = &(*link)->next) {
        struct hosted *h = *link;
        if (h->key != event->a)
            continue;
        node->changed = true;
        if (h->state == WORKER_LOADING) {
            h->state = WORKER_READY;
            h->lost = true; /* until the state says that all of them are ready */
        } else if (h->state == WORKER_UNLOADING) {
            const uint32_t device = h->device, instance = h->instance;
            const uint64_t epoch = h->epoch;
            free_hosted(link);
            kept_release(node, instance, epoch);
            for (h = node->hosted; h; h = h->next) {
                if (h->waits && h->device == device)
                    begin_load(w, node, h);
            }
        }
        return;
    }
}

/* ---- what must be so ---- */

static const Cluster__Stage *wanted(const Cluster__Placement *placement, const struct hosted *h)
{
    return placement && placement->epoch == h->epoch && h->stage < placement->n_stages
               ? placement->stages[h->stage]
               : NULL;
}

void host_check(struct world *w, struct node *node)
{
    const struct scenario_node *is = &w->scenario->nodes[node->index];
    for (uint32_t d = 0; d < is->devices; d++) {
        if (held_at_most(node, d) > is->memory_mib << 20 && held(node, d) > is->memory_mib << 20)
            world_violated(w, "%s: device d%u holds more than it has", node->id, d);
    }
    for (const struct hosted *h = node->hosted; h; h = h->next) {
        const Cluster__Instance *instance =
            state_instance(node_state(node), instances[h->instance]);
        const Cluster__Stage *stage = instance ? wanted(instance->current, h) : NULL;
        if (instance && !stage)
            stage = wanted(instance->next, h);
        if (!stage || h->state == WORKER_UNLOADING)
            continue;
        if (strcmp(stage->node, node->id) != 0 || strcmp(stage->device, devices[h->device]) != 0 ||
            stage->first_layer != h->first_layer || stage->n_layers != h->n_layers)
            world_violated(w, "%s: stage %u of %s, epoch %llu, is not the one that was placed",
                           node->id, h->stage, instance->id, (unsigned long long)h->epoch);
    }
}
