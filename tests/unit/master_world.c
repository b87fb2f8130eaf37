#include "master_world.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error err;

const char *const house_ids[NODES] = {"node0", "node1", "node2", "node3"};

static void submit(struct house *h, Cluster__Event *event)
{
    struct buffer bytes = {0};
    struct state_outcome outcome;
    event_encode(event, &bytes);
    assert_int_equal(
        state_apply(&h->state, ++h->index, (uint8_t *)bytes.data, bytes.size, &outcome, &err),
        ERROR_NONE);
    if (!outcome.applied)
        fail_msg("%s", outcome.reason);
    buffer_deinit(&bytes);
}

static void submit_bytes(struct house *h, const struct buffer *bytes)
{
    struct state_outcome outcome;
    Cluster__Event *event;
    assert_int_equal(event_decode((uint8_t *)bytes->data, bytes->size, &event, &err), ERROR_NONE);
    h->placed += event->kind_case == CLUSTER__EVENT__KIND_INSTANCE_PLACED;
    h->memory_said += event->kind_case == CLUSTER__EVENT__KIND_MEMORY_STEPPED;
    event_free(event);
    assert_int_equal(
        state_apply(&h->state, ++h->index, (uint8_t *)bytes->data, bytes->size, &outcome, &err),
        ERROR_NONE);
    h->ignored += !outcome.applied;
}

/* As node/solving.h does, where it has to search. */
static enum error_code house_finds_none(struct house *h, struct error *e)
{
    enum { GOOD_MS = 10 * 1000 };
    if (h->now_ms - h->asked_ms > h->searches_ms + GOOD_MS)
        h->asked_ms = h->now_ms;
    return h->now_ms - h->asked_ms < h->searches_ms
               ? error_set(e, ERROR_BUSY, "it is being computed")
               : error_set(e, ERROR_NOT_FOUND, "there is no device left");
}

enum error_code house_fake_place(void *self, const struct master_view *view,
                                 const Cluster__Instance *instance, const bool *allowed,
                                 bool beside, struct master_placement *out, struct error *e)
{
    struct house *h = self;
    const uint32_t most = h->max_stages ? h->max_stages : NODES;
    if (beside && h->no_memory_beside)
        return error_set(e, ERROR_NOT_FOUND, "not enough memory");
    for (uint32_t k = 0; k < view->n_nodes && out->n_stages < most; k++) {
        const uint32_t i = h->reverse ? view->n_nodes - 1 - k : k;
        if (allowed[i])
            out->stages[out->n_stages++] =
                (struct master_stage){.node = view->nodes[i].id, .device = "gpu"};
    }
    if (!out->n_stages || (h->needs_three && out->n_stages < 3))
        return house_finds_none(h, e);
    for (uint32_t i = 0, layer = 0; i < out->n_stages; i++) {
        out->stages[i].first_layer = layer;
        out->stages[i].n_layers = (LAYERS - layer) / (out->n_stages - i);
        layer += out->stages[i].n_layers;
    }
    return ERROR_NONE;
}

void house_make(struct house *h, uint64_t idle_ms)
{
    memset(h, 0, sizeof *h);
    h->options = master_options_default();
    h->options.place = house_fake_place;
    h->options.self = h;
    h->now_ms = h->leads_since_ms = 10000;
    for (uint32_t i = 0; i < NODES; i++) {
        h->memory[i] = 450; /* four layers */
        h->speeds[i] = 1000;
        Cluster__Device device = CLUSTER__DEVICE__INIT, *devices[] = {&device};
        Cluster__Node node = CLUSTER__NODE__INIT;
        Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
        Cluster__Event event = CLUSTER__EVENT__INIT;
        device.id = (char *)"gpu";
        node.id = node.name = name.id = (char *)(uintptr_t)house_ids[i];
        node.has_member = true, node.member = 1 + i;
        node.has_level = true, node.level = event_level_known();
        node.n_devices = 1, node.devices = devices;
        event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED, event.node_joined = &node;
        submit(h, &event);
        event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED, event.node_admitted = &name;
        submit(h, &event);
        h->up[i] = true;
    }
    uint8_t hash[32] = {1};
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    model.name = (char *)"m", model.has_manifest = true, model.manifest.len = 32,
    model.manifest.data = hash;
    model.has_n_layers = true, model.n_layers = LAYERS;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED, event.model_registered = &model;
    submit(h, &event);
    demand.has_context_tokens = demand.has_streams = true, demand.context_tokens = 512,
    demand.streams = 1;
    instance.id = (char *)"i", instance.model = (char *)"m", instance.demand = &demand;
    instance.has_idle_ms = true, instance.idle_ms = idle_ms;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED, event.instance_desired = &instance;
    submit(h, &event);
}

void house_drop(struct house *h)
{
    state_deinit(&h->state);
    free(h);
}

static void master_turn(struct house *h)
{
    struct master_node nodes[NODES];
    const struct master_use use = {
        .instance = "i", .used_ms = h->used_ms, .wanted = h->wanted, .tokens = h->tokens};
    struct master_proposals proposals;
    for (uint32_t i = 0; i < NODES; i++) {
        if (h->up[i])
            h->heard_ms[i] = h->now_ms;
        nodes[i] = (struct master_node){house_ids[i],  h->heard_ms[i],       h->suspected[i],
                                        &h->misses[i], h->misses[i] != NULL, h->lends_nothing[i]};
    }
    const struct master_view view = {.state = &h->state,
                                     .lineage = h->lineage,
                                     .now_ms = h->now_ms,
                                     .leads_since_ms = h->leads_since_ms,
                                     .nodes = nodes,
                                     .n_nodes = NODES,
                                     .uses = &use,
                                     .n_uses = 1,
                                     .self = "node0"};
    assert_int_equal(master_step(&h->master, &h->options, &view, &proposals, &err), ERROR_NONE);
    for (uint32_t i = 0; i < proposals.n; i++)
        submit_bytes(h, &proposals.events[i]);
    master_proposals_clear(&proposals);
}

struct at {
    struct house *house;
    uint32_t node;
};

static enum worker_weights weights(void *self, const Cluster__Model *model,
                                   struct worker_precision precision, uint32_t first, uint32_t n)
{
    const struct at *at = self;
    return at->house->lacks_weights[at->node] ? WORKER_LACKS : WORKER_HAS_ALL;
}

static void act(struct house *h, uint32_t node, const struct worker_action *action)
{
    struct have *have = h->have[node];
    switch (action->type) {
    case WORKER_FETCH:
        h->fetches++;
        h->lacks_weights[node] = false;
        break;
    case WORKER_LOAD:
    case WORKER_ADOPT: {
        assert_true(h->n_have[node] < HAVE_MAX);
        struct have *new = &have[h->n_have[node]++];
        *new = (struct have){.epoch = action->epoch,
                             .done_ms = h->now_ms + 300,
                             .stage = action->stage,
                             .first_layer = action->first_layer,
                             .n_layers = action->n_layers};
        snprintf(new->instance, sizeof new->instance, "%s", action->instance);
        snprintf(new->device, sizeof new->device, "%s", action->device);
        new->state = action->type == WORKER_ADOPT ? WORKER_READY : WORKER_LOADING;
        *(action->type == WORKER_ADOPT ? &h->adoptions : &h->loads) += 1;
        break;
    }
    case WORKER_UNLOAD:
        h->unloads++;
        for (uint32_t i = 0; i < h->n_have[node]; i++) {
            if (have[i].epoch == action->epoch && have[i].stage == action->stage)
                have[i] = have[--h->n_have[node]];
        }
        break;
    case WORKER_REPORT:
    case WORKER_REPORT_MEMORY:
        submit_bytes(h, &action->event);
        break;
    }
}

static void worker_turn(struct house *h, uint32_t node)
{
    struct worker_stage stages[HAVE_MAX];
    char names[HAVE_MAX][64]; /* unloading moves what it names */
    struct worker_actions actions;
    struct at at = {h, node};
    for (uint32_t i = 0; i < h->n_have[node]; i++) {
        struct have *have = &h->have[node][i];
        if (have->state == WORKER_LOADING && have->done_ms <= h->now_ms)
            have->state = h->cannot_load[node] ? WORKER_FAILED : WORKER_READY;
        memcpy(names[i], have->instance, sizeof names[i]);
        stages[i] = (struct worker_stage){.instance = names[i],
                                          .model = "m",
                                          .device = "gpu",
                                          .epoch = have->epoch,
                                          .stage = have->stage,
                                          .first_layer = have->first_layer,
                                          .n_layers = have->n_layers,
                                          .state = have->state,
                                          .problem = "out of memory",
                                          .memory_step = h->memory_step[node],
                                          .memory_given = "something"};
    }
    const struct worker_view view = {.state = &h->state,
                                     .node = house_ids[node],
                                     .now_ms = h->now_ms,
                                     .stages = stages,
                                     .n_stages = h->n_have[node],
                                     .weights = weights,
                                     .self = &at};
    assert_int_equal(worker_step(&view, &actions, &err), ERROR_NONE);
    /* Reports change the state, which the actions' texts belong to: those last. */
    for (int reports = 0; reports < 2; reports++) {
        for (uint32_t i = 0; i < actions.n; i++) {
            if (worker_action_is_report(&actions.list[i]) == reports)
                act(h, node, &actions.list[i]);
        }
    }
    worker_actions_clear(&actions);
}

void house_run(struct house *h, uint64_t ms)
{
    for (const uint64_t end = h->now_ms + ms; h->now_ms < end; h->now_ms += 100) {
        master_turn(h);
        for (uint32_t i = 0; i < NODES; i++) {
            if (h->up[i])
                worker_turn(h, i);
        }
    }
}

const Cluster__Instance *house_instance(const struct house *h)
{
    return state_instance(&h->state, "i");
}

bool house_serves(const struct house *h)
{
    return state_is_ready(house_instance(h)->current);
}

struct house *house_that_serves(uint64_t idle_ms)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, idle_ms);
    house_run(h, 2000);
    assert_false(house_instance(h)->active); /* nobody has asked */
    h->wanted = true;
    house_run(h, 1000);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == NODES);
    h->wanted = false;
    h->used_ms = h->now_ms;
    return h;
}

struct house *house_on_two_nodes(void)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, 0);
    h->max_stages = 2;
    h->wanted = true;
    house_run(h, 1000);
    return h;
}

uint32_t house_loaded(const struct house *h)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < NODES; i++)
        n += h->up[i] ? h->n_have[i] : 0;
    return n;
}

void house_propose_move(struct house *h, uint32_t from, uint32_t n)
{
    Cluster__Stage stages[NODES], *list[NODES];
    Cluster__Placement placement = CLUSTER__PLACEMENT__INIT;
    Cluster__InstancePlaced placed = CLUSTER__INSTANCE_PLACED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    for (uint32_t i = 0; i < n; i++) {
        cluster__stage__init(&stages[i]);
        stages[i].node = (char *)(uintptr_t)house_ids[from + i];
        stages[i].device = (char *)"gpu";
        stages[i].has_first_layer = stages[i].has_n_layers = true;
        stages[i].first_layer = i * LAYERS / n;
        stages[i].n_layers = LAYERS / n;
        list[i] = &stages[i];
    }
    placement.has_epoch = placed.has_after_epoch = true;
    placement.epoch = h->state.root->last_epoch + 1;
    placement.n_stages = n, placement.stages = list;
    placement.has_by_hand = placement.by_hand = h->by_hand;
    placed.id = (char *)"i", placed.placement = &placement;
    placed.after_epoch = state_epoch(house_instance(h));
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_PLACED, event.instance_placed = &placed;
    submit(h, &event);
}

void house_set(struct house *h, const char *key, const char *value)
{
    Cluster__Setting setting = {.key = (char *)(uintptr_t)key, .value = (char *)(uintptr_t)value};
    Cluster__Event event = CLUSTER__EVENT__INIT;
    const Cluster__Setting empty = CLUSTER__SETTING__INIT;
    setting.base = empty.base;
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED, event.setting_changed = &setting;
    submit(h, &event);
}
