/* Master and workers in a closed loop: what is wanted gets loaded, what is idle goes, what is lost is placed elsewhere,
 * what moves changes over when all of it is ready, and nothing flutters. Then the same with the real planner. */
#include "base/limits.h"
#include "base/random.h"
#include "cluster/master.h"
#include "cluster/members.h"
#include "cluster/worker.h"
#include "placement/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error err;

enum { NODES = 4, LAYERS = 8, HAVE_MAX = 16 };

struct have {
    char instance[64], device[16];
    uint64_t epoch, done_ms;
    uint32_t stage, first_layer, n_layers;
    enum worker_stage_state state;
};

struct house {
    struct state state;
    struct master master;
    struct master_options options;
    uint64_t now_ms, leads_since_ms, index;
    bool up[NODES], wanted, lacks_weights[NODES], cannot_load[NODES];
    uint64_t used_ms, heard_ms[NODES];
    struct have have[NODES][HAVE_MAX];
    uint32_t n_have[NODES];
    uint32_t loads, adoptions, unloads, fetches, ignored, placed;
    uint32_t max_stages;    /* of the fake planner; 0: all nodes */
    bool reverse;           /* it prefers the last nodes */
    uint64_t memory[NODES]; /* of the real planner's problem; a layer has 100 */
    double speeds[NODES];
    bool no_memory_beside, gains, by_hand, suspected[NODES];
    uint32_t considered;
    double tokens;
    uint32_t noise; /* of the real planner's rates: per cent */
    struct master_planner planner;
    struct master_mover mover;
    struct lineage lineage;
};

static const char *const ids[NODES] = {"node0", "node1", "node2", "node3"};

static void submit(struct house *h, Cluster__Event *event)
{
    struct buffer bytes = {0};
    struct state_outcome outcome;
    event_encode(event, &bytes);
    assert_int_equal(state_apply(&h->state, ++h->index, (uint8_t *)bytes.data, bytes.size, &outcome, &err), ERROR_NONE);
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
    event_free(event);
    assert_int_equal(state_apply(&h->state, ++h->index, (uint8_t *)bytes->data, bytes->size, &outcome, &err),
                     ERROR_NONE);
    h->ignored += !outcome.applied;
}

/* An even split over the first allowed nodes. */
static enum error_code fake_place(void *self, const struct master_view *view, const Cluster__Instance *instance,
                                  const bool *allowed, bool beside, struct master_placement *out, struct error *e)
{
    const struct house *h = self;
    const uint32_t most = h->max_stages ? h->max_stages : NODES;
    if (beside && h->no_memory_beside)
        return error_set(e, ERROR_NOT_FOUND, "no memory");
    for (uint32_t k = 0; k < view->n_nodes && out->n_stages < most; k++) {
        const uint32_t i = h->reverse ? view->n_nodes - 1 - k : k;
        if (allowed[i])
            out->stages[out->n_stages++] = (struct master_stage){.node = view->nodes[i].id, .device = "gpu"};
    }
    if (!out->n_stages)
        return error_set(e, ERROR_NOT_FOUND, "no device is left");
    for (uint32_t i = 0, layer = 0; i < out->n_stages; i++) {
        out->stages[i].first_layer = layer;
        out->stages[i].n_layers = (LAYERS - layer) / (out->n_stages - i);
        layer += out->stages[i].n_layers;
    }
    return ERROR_NONE;
}

static void make_house(struct house *h, uint64_t idle_ms)
{
    memset(h, 0, sizeof *h);
    h->options = master_options_default();
    h->options.place = fake_place;
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
        node.id = node.name = name.id = (char *)(uintptr_t)ids[i];
        node.has_member = true, node.member = 1 + i;
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
    model.name = (char *)"m", model.has_manifest = true, model.manifest.len = 32, model.manifest.data = hash;
    model.has_n_layers = true, model.n_layers = LAYERS;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED, event.model_registered = &model;
    submit(h, &event);
    demand.has_context_tokens = demand.has_streams = true, demand.context_tokens = 512, demand.streams = 1;
    instance.id = (char *)"i", instance.model = (char *)"m", instance.demand = &demand;
    instance.has_idle_ms = true, instance.idle_ms = idle_ms;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED, event.instance_desired = &instance;
    submit(h, &event);
}

static void drop_house(struct house *h)
{
    state_deinit(&h->state);
    free(h);
}

static void master_turn(struct house *h)
{
    struct master_node nodes[NODES];
    const struct master_use use = {.instance = "i", .used_ms = h->used_ms, .wanted = h->wanted, .tokens = h->tokens};
    struct master_proposals proposals;
    for (uint32_t i = 0; i < NODES; i++) {
        if (h->up[i])
            h->heard_ms[i] = h->now_ms;
        nodes[i] = (struct master_node){ids[i], h->heard_ms[i], h->suspected[i]};
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

static enum worker_weights weights(void *self, const Cluster__Model *model, uint32_t first, uint32_t n)
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
                                          .problem = "out of memory"};
    }
    const struct worker_view view = {.state = &h->state,
                                     .node = ids[node],
                                     .now_ms = h->now_ms,
                                     .stages = stages,
                                     .n_stages = h->n_have[node],
                                     .weights = weights,
                                     .self = &at};
    assert_int_equal(worker_step(&view, &actions, &err), ERROR_NONE);
    /* Reports change the state, which the actions' texts belong to: those last. */
    for (int reports = 0; reports < 2; reports++) {
        for (uint32_t i = 0; i < actions.n; i++) {
            if ((actions.list[i].type == WORKER_REPORT) == reports)
                act(h, node, &actions.list[i]);
        }
    }
    worker_actions_clear(&actions);
}

static void run(struct house *h, uint64_t ms)
{
    for (const uint64_t end = h->now_ms + ms; h->now_ms < end; h->now_ms += 100) {
        master_turn(h);
        for (uint32_t i = 0; i < NODES; i++) {
            if (h->up[i])
                worker_turn(h, i);
        }
    }
}

static const Cluster__Instance *instance(const struct house *h)
{
    return state_instance(&h->state, "i");
}

static bool serves(const struct house *h)
{
    const Cluster__Placement *current = instance(h)->current;
    for (size_t i = 0; current && i < current->n_stages; i++) {
        if (current->stages[i]->state != CLUSTER__STAGE_STATE__READY)
            return false;
    }
    return current != NULL;
}

static struct house *house_that_serves(uint64_t idle_ms)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, idle_ms);
    run(h, 2000);
    assert_false(instance(h)->active); /* nobody has asked */
    h->wanted = true;
    run(h, 1000);
    assert_true(serves(h) && instance(h)->current->n_stages == NODES);
    h->wanted = false;
    h->used_ms = h->now_ms;
    return h;
}

static uint32_t loaded(const struct house *h)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < NODES; i++)
        n += h->up[i] ? h->n_have[i] : 0;
    return n;
}

static void on_demand_and_when_idle(void **unused)
{
    struct house *h = house_that_serves(5000);
    assert_true(h->loads == NODES && h->placed == 1 && h->ignored == 0);
    run(h, 4000);
    assert_true(serves(h) && h->unloads == 0);
    h->used_ms = h->now_ms;
    run(h, 4000);
    assert_true(serves(h)); /* it was used in between */
    run(h, 2000);
    assert_true(!instance(h)->active && loaded(h) == 0);
    h->wanted = true;
    run(h, 1000);
    assert_true(serves(h) && h->placed == 2 && h->ignored == 0);
    drop_house(h);
}

static void rests_while_all_is_well(void **unused)
{
    struct house *h = house_that_serves(0);
    const uint64_t index = h->index;
    run(h, 60 * 1000);
    assert_true(h->index == index && h->placed == 1); /* not one event in a minute */
    h->leads_since_ms = h->now_ms;                    /* an election: another master, which has heard of nobody yet */
    memset(&h->master, 0, sizeof h->master);
    memset(h->heard_ms, 0, sizeof h->heard_ms);
    run(h, 60 * 1000);
    assert_true(h->index == index && serves(h));
    drop_house(h);
}

static void a_lost_node_is_replaced(void **unused)
{
    struct house *h = house_that_serves(0);
    h->up[2] = false;
    h->n_have[2] = 0;
    run(h, 800);
    assert_true(h->placed == 1); /* it may come back */
    run(h, 1500);
    assert_true(serves(h) && instance(h)->current->n_stages == 3 && h->placed == 2 && !instance(h)->next);
    assert_true(loaded(h) == 3);
    h->up[2] = true; /* back: nothing is moved for that */
    run(h, 5000);
    assert_true(serves(h) && h->placed == 2 && h->n_have[2] == 0 && h->ignored == 0);
    drop_house(h);
}

static void a_node_that_restarts_loads_again(void **unused)
{
    struct house *h = house_that_serves(0);
    const uint64_t epoch = instance(h)->current->epoch;
    h->n_have[1] = 0; /* so quickly that nobody missed it */
    run(h, 200);
    assert_false(serves(h));
    run(h, 1000);
    assert_true(serves(h) && instance(h)->current->epoch == epoch && h->loads == NODES + 1);
    drop_house(h);
}

static void all_comes_back_after_a_restart(void **unused)
{
    struct house *h = house_that_serves(0);
    memset(h->n_have, 0, sizeof h->n_have);
    memset(&h->master, 0, sizeof h->master);
    h->now_ms = h->leads_since_ms = 500;
    memset(h->heard_ms, 0, sizeof h->heard_ms);
    run(h, 1500);
    assert_true(serves(h) && h->placed == 1 && h->loads == 2 * NODES);
    drop_house(h);
}

static void weights_are_fetched_first(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->lacks_weights[1] = h->lacks_weights[3] = true;
    h->wanted = true;
    run(h, 1500);
    assert_true(serves(h) && h->fetches == 2);
    drop_house(h);
}

/* The stage's device refuses: tried again, ever more rarely, and served when it can be. */
static void failures_are_retried_with_patience(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->wanted = true;
    h->cannot_load[0] = true;
    run(h, 60 * 1000);
    assert_false(serves(h));
    assert_true(h->placed >= 3 && h->placed <= 8);
    h->cannot_load[0] = false;
    run(h, 64 * 1000);
    assert_true(serves(h) && loaded(h) == NODES);
    drop_house(h);
}

static void nowhere_to_go(void **unused)
{
    struct house *h = house_that_serves(0);
    for (uint32_t i = 0; i < NODES; i++)
        h->up[i] = false, h->n_have[i] = 0;
    run(h, 5000);
    assert_non_null(strstr(master_problem(&h->master, "i"), "no device is left"));
    h->up[3] = true;
    run(h, 40 * 1000);
    assert_true(serves(h) && instance(h)->current->n_stages == 1);
    assert_null(master_problem(&h->master, "i"));
    drop_house(h);
}

/* A move by hand, as `medley move` proposes it: the old placement serves until the new one is ready. */
static void propose_move(struct house *h, uint32_t from, uint32_t n)
{
    Cluster__Stage stages[NODES], *list[NODES];
    Cluster__Placement placement = CLUSTER__PLACEMENT__INIT;
    Cluster__InstancePlaced placed = CLUSTER__INSTANCE_PLACED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    for (uint32_t i = 0; i < n; i++) {
        cluster__stage__init(&stages[i]);
        stages[i].node = (char *)(uintptr_t)ids[from + i];
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
    placed.after_epoch = state_epoch(instance(h));
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_PLACED, event.instance_placed = &placed;
    submit(h, &event);
}

static void a_move_changes_over_when_ready(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->max_stages = 2;
    h->wanted = true;
    run(h, 1000);
    h->wanted = false;
    assert_true(serves(h) && h->loads == 2); /* node0: 0–3, node1: 4–7 */
    const uint64_t old = instance(h)->current->epoch;
    h->reverse = true;
    propose_move(h, 0, 2); /* the same once more: nothing is taken from what serves */
    run(h, 200);
    assert_true(serves(h) && instance(h)->next && h->adoptions == 0 && h->n_have[0] == 2);
    run(h, 500);
    assert_true(serves(h) && !instance(h)->next && h->loads == 4 && loaded(h) == 2);
    propose_move(h, 2, 2);
    run(h, 200);
    assert_true(serves(h) && instance(h)->next && instance(h)->current->epoch == old + 1);
    run(h, 500);
    assert_true(serves(h) && !instance(h)->next && instance(h)->current->epoch == old + 2);
    assert_true(h->loads == 6 && loaded(h) == 2 && h->n_have[2] == 1 && h->n_have[3] == 1);
    drop_house(h);
}

static void a_move_that_fails_is_given_up(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->max_stages = 2;
    h->wanted = true;
    run(h, 1000);
    const uint64_t old = instance(h)->current->epoch;
    h->cannot_load[3] = true;
    propose_move(h, 2, 2);
    run(h, 2000);
    assert_true(serves(h) && !instance(h)->next && instance(h)->current->epoch == old && loaded(h) == 2);
    propose_move(h, 1, 2);
    h->up[2] = false; /* dies in the middle of it */
    run(h, 3000);
    assert_true(serves(h) && !instance(h)->next && instance(h)->current->epoch == old);
    assert_true(h->placed == 1);
    drop_house(h);
}

/* What replaces a placement that has lost a node gets its memory: the old stages go at once, but for those that the new
 * ones take over; and none of them is loaded again meanwhile. */
static void what_is_replaced_makes_room(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->max_stages = 2;
    h->wanted = true;
    run(h, 1000);
    assert_true(serves(h) && h->loads == 2); /* node0: 0–3, node1: 4–7 */
    h->up[1] = false;
    h->n_have[1] = 0;
    h->max_stages = 1; /* node0 has to take all */
    h->lacks_weights[0] = true;
    for (uint64_t end_ms = h->now_ms + 5000; !instance(h)->next && h->now_ms < end_ms;)
        run(h, 100);
    assert_true(instance(h)->next && instance(h)->next->replaces && instance(h)->current);
    run(h, 100);
    for (uint32_t i = 0; i < h->n_have[0]; i++)
        assert_true(h->have[0][i].epoch == instance(h)->next->epoch && h->n_have[0] == 1);
    assert_int_equal(h->unloads, 1);
    run(h, 1000);
    assert_true(serves(h) && !instance(h)->next && h->loads == 3 && h->n_have[0] == 1);
    drop_house(h);
}

static void set(struct house *h, const char *key, const char *value)
{
    Cluster__Setting setting = {.key = (char *)(uintptr_t)key, .value = (char *)(uintptr_t)value};
    Cluster__Event event = CLUSTER__EVENT__INIT;
    const Cluster__Setting empty = CLUSTER__SETTING__INIT;
    setting.base = empty.base;
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED, event.setting_changed = &setting;
    submit(h, &event);
}

/* What is on a drained node goes, while it goes on serving; and nothing comes back to it before that is undone. */
static void a_drained_node_is_emptied(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->max_stages = 2;
    h->wanted = true;
    run(h, 1000);
    const uint64_t old = instance(h)->current->epoch;
    set(h, "drain/node1", "yes");
    for (int i = 0; i < 3; i++) { /* all of its own is loaded beside: no moment without */
        run(h, 100);
        assert_true(serves(h) && h->n_have[1] == 1 && instance(h)->next && !instance(h)->next->replaces);
    }
    run(h, 1000);
    assert_true(serves(h) && h->n_have[1] == 0 && h->placed == 2 && instance(h)->current->epoch > old);
    h->up[0] = false, h->n_have[0] = 0; /* not even for want of others … */
    run(h, 3000);
    assert_true(serves(h) && h->n_have[1] == 0 && h->placed == 3);
    h->up[2] = h->up[3] = false, h->n_have[2] = h->n_have[3] = 0;
    run(h, 3000);
    assert_non_null(strstr(master_problem(&h->master, "i"), "no device is left"));
    set(h, "drain/node1", NULL);
    run(h, 40 * 1000);
    assert_true(serves(h) && h->n_have[1] == 1);
    drop_house(h);
}

/* Where a drained node's stages can go nowhere they stay, and serve. */
static void a_drained_node_that_is_needed(void **unused)
{
    struct house *h = house_that_serves(0);
    const uint64_t epoch = instance(h)->current->epoch;
    for (uint32_t i = 0; i < NODES; i++) {
        char key[16];
        snprintf(key, sizeof key, "drain/%s", ids[i]);
        set(h, key, "yes");
    }
    run(h, 60 * 1000);
    assert_true(serves(h) && instance(h)->current->epoch == epoch && h->placed == 1);
    assert_non_null(strstr(master_problem(&h->master, "i"), "cannot leave the drained node"));
    set(h, "drain/node2", NULL);
    run(h, 320 * 1000);
    assert_true(serves(h) && loaded(h) == 1 && h->n_have[2] == 1 && !master_problem(&h->master, "i"));
    drop_house(h);
}

/* Where there is no memory for both, the old stages make room. */
static void a_drain_without_memory_for_both(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->max_stages = 2;
    h->wanted = true;
    run(h, 1000);
    h->no_memory_beside = true;
    set(h, "drain/node1", "yes");
    run(h, 100);
    assert_true(instance(h)->next && instance(h)->next->replaces);
    run(h, 1000);
    assert_true(serves(h) && h->n_have[1] == 0 && h->placed == 2);
    drop_house(h);
}

static enum error_code fake_consider(void *self, const struct master_view *view, const Cluster__Instance *want,
                                     const bool *allowed, struct master_placement *out, char why[static 64],
                                     struct error *e)
{
    struct house *h = self;
    h->considered++;
    snprintf(why, 64, "for a test");
    return h->gains ? fake_place(self, view, want, allowed, true, out, e) : ERROR_NONE;
}

static struct house *house_that_considers(void)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->options.consider = fake_consider;
    h->options.considers = h;
    h->max_stages = 2;
    h->wanted = true;
    run(h, 1000);
    assert_true(serves(h) && h->placed == 1);
    return h;
}

static void moves_for_gain(void **unused)
{
    struct house *h = house_that_considers();
    run(h, 60 * 1000);
    assert_true(h->considered >= 10 && h->considered <= 12 && h->placed == 1);
    h->reverse = h->gains = true;
    run(h, 60 * 1000);
    assert_true(serves(h) && h->placed == 2 && h->n_have[2] == 1 && h->n_have[3] == 1 && loaded(h) == 2);
    assert_string_equal(instance(h)->current->why, "for a test");
    assert_false(instance(h)->current->replaces);
    /* Somebody does not want that. */
    set(h, "moves", "off");
    h->reverse = false;
    h->considered = 0;
    run(h, 60 * 1000);
    assert_true(serves(h) && h->placed == 2 && h->considered == 0);
    set(h, "moves", NULL);
    h->cannot_load[0] = true; /* a move that fails is not tried again and again */
    run(h, 60 * 1000);
    assert_true(serves(h) && h->placed >= 3 && h->placed <= 6 && h->n_have[2] == 1 && h->n_have[3] == 1);
    h->cannot_load[0] = false;
    run(h, 320 * 1000);
    assert_true(serves(h) && h->n_have[0] == 1 && h->n_have[1] == 1 && loaded(h) == 2);
    drop_house(h);
}

static void what_was_placed_by_hand_stays(void **unused)
{
    struct house *h = house_that_considers();
    h->by_hand = true;
    propose_move(h, 1, 2);
    run(h, 1000);
    h->considered = 0;
    h->gains = true;
    run(h, 60 * 1000);
    assert_true(serves(h) && h->placed == 1 && h->considered == 0 && instance(h)->current->by_hand);
    h->up[2] = false, h->n_have[2] = 0; /* until it has lost a device */
    run(h, 3000);
    assert_true(serves(h) && h->placed == 2 && !instance(h)->current->by_hand);
    drop_house(h);
}

/* Whoever is suspected is lost at once, also for a leader that has just begun. */
static void who_is_suspected_is_lost(void **unused)
{
    struct house *h = house_that_serves(0);
    h->up[2] = false, h->n_have[2] = 0;
    h->suspected[2] = true;
    run(h, 100);
    assert_true(instance(h)->next && h->placed == 2);
    run(h, 1000);
    assert_true(serves(h) && instance(h)->current->n_stages == 3);
    drop_house(h);
}

static void a_new_lineage_is_told_first(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->lineage = (struct lineage){3, 9};
    h->wanted = true;
    run(h, 1500);
    assert_true(serves(h) && state_lineage(&h->state).generation == 3 && state_lineage(&h->state).founder == 9);
    assert_true(instance(h)->current->epoch > UINT64_C(3) << 32);
    drop_house(h);
}

/* ---- the real planner ---- */

static enum error_code problem_of(void *self, const struct master_view *view, const Cluster__Instance *want,
                                  const bool *allowed, const struct placement_problem **problem,
                                  const struct master_device **devices, struct error *e)
{
    static struct placement_problem p;
    static struct placement_device list[NODES];
    static struct placement_layer layers[LAYERS];
    static struct placement_link links[NODES * NODES];
    static struct master_device names[NODES];
    const struct house *h = self;
    memset(&p, 0, sizeof p);
    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < view->n_nodes; i++) {
        if (!allowed[i])
            continue;
        struct placement_device *device = &list[p.n_devices];
        names[p.n_devices++] = (struct master_device){view->nodes[i].id, "gpu"};
        snprintf(device->id, sizeof device->id, "gpu");
        snprintf(device->node, sizeof device->node, "%s", view->nodes[i].id);
        const double noise = 1 + h->noise * 0.01 * (2 * random_unit_at(i, h->now_ms) - 1);
        device->memory_free_bytes = h->memory[i];
        device->decode_bytes_per_s[0] = h->speeds[i] * noise;
        device->share = device->thermal_headroom = 1;
    }
    for (uint32_t i = 0; i < LAYERS; i++)
        layers[i] = (struct placement_layer){.bytes = {100}, .bytes_per_token = {100}};
    for (uint32_t i = 0; i < NODES * NODES; i++)
        links[i] = (struct placement_link){1e-6, 1e9};
    if (!p.n_devices)
        return error_set(e, ERROR_NOT_FOUND, "no device is left");
    p.devices = list, p.links = links;
    p.model = (struct placement_model){.n_types = 1, .n_layers = LAYERS, .layers = layers};
    p.model.activation_bytes_per_token = 1;
    p.demand = (struct placement_demand){.context_tokens = want->demand->context_tokens, .streams = 1};
    *problem = &p, *devices = names;
    return ERROR_NONE;
}

static void with_the_planner(void **unused)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->planner = (struct master_planner){.problem = problem_of, .self = h};
    h->options.place = master_plan;
    h->options.self = &h->planner;
    h->wanted = true;
    run(h, 1000);
    assert_true(serves(h) && instance(h)->current->n_stages == 2);
    for (uint32_t i = 0; i < NODES; i++) { /* one after the other, until one alone is too little */
        h->up[i] = false;
        h->n_have[i] = 0;
        run(h, 5000);
        if (i < 2)
            assert_true(serves(h));
        else
            assert_non_null(master_problem(&h->master, "i"));
    }
    h->up[0] = h->up[1] = true;
    run(h, 40 * 1000);
    assert_true(serves(h) && instance(h)->current->n_stages == 2);
    drop_house(h);
}

/* ---- moving for gain, with the real planner ---- */

static struct house *house_that_replans(const double *speeds)
{
    struct house *h = malloc(sizeof *h);
    make_house(h, 0);
    h->planner = (struct master_planner){.problem = problem_of, .self = h};
    h->mover = (struct master_mover){.planner = &h->planner};
    h->options.place = master_plan;
    h->options.self = &h->planner;
    h->options.consider = master_replan;
    h->options.considers = &h->mover;
    memcpy(h->speeds, speeds, sizeof h->speeds);
    h->wanted = true;
    run(h, 1000);
    assert_true(serves(h) && instance(h)->current->n_stages == 2 && h->placed == 1);
    h->wanted = false;
    return h;
}

static void drop_replanning(struct house *h)
{
    master_mover_clear(&h->mover);
    drop_house(h);
}

static bool uses(const struct house *h, const char *node)
{
    const Cluster__Placement *current = instance(h)->current;
    for (size_t i = 0; current && i < current->n_stages; i++) {
        if (strcmp(current->stages[i]->node, node) == 0)
            return true;
    }
    return false;
}

static void faster_devices_are_moved_to(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 900, 900};
    struct house *h = house_that_replans(speeds);
    assert_true(uses(h, "node0") && uses(h, "node1"));
    h->speeds[2] = h->speeds[3] = 4000;
    run(h, 120 * 1000);
    assert_true(serves(h) && h->placed == 1); /* nobody uses it: nothing is gained */
    h->tokens = 1000;
    for (int i = 0; i < 600; i++) { /* at no moment does it not serve */
        run(h, 100);
        assert_true(serves(h));
    }
    assert_true(h->placed == 2 && uses(h, "node2") && uses(h, "node3"));
    assert_non_null(strstr(instance(h)->current->why, "tokens/s instead of"));
    assert_false(instance(h)->current->replaces);
    h->speeds[2] = 0.1; /* it got hot */
    run(h, 4 * 60 * 1000);
    assert_true(serves(h) && !uses(h, "node2") && uses(h, "node3") && h->placed == 3);
    drop_replanning(h);
}

/* A cluster at rest, and one at work whose measurements are not quite the same each time: nothing moves. */
static void noise_moves_nothing(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 1000, 1000};
    struct house *h = house_that_replans(speeds);
    const uint64_t epoch = instance(h)->current->epoch;
    h->noise = 4;
    for (int use = 0; use < 2; use++) {
        h->tokens = use * 1e6;
        run(h, 3600 * 1000);
        assert_true(serves(h) && h->placed == 1 && instance(h)->current->epoch == epoch && h->ignored == 0);
    }
    drop_replanning(h);
}

/* Memory that somebody else takes: what works is left only when that lasts, and not again and again. */
static void memory_that_others_take(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 900, 900};
    struct house *h = house_that_replans(speeds);
    h->memory[1] = 350;
    run(h, 20 * 1000);
    h->memory[1] = 450;
    run(h, 20 * 1000);
    h->memory[1] = 350;
    run(h, 20 * 1000);
    assert_true(serves(h) && h->placed == 1 && uses(h, "node1"));
    run(h, 60 * 1000);
    assert_true(serves(h) && h->placed == 2 && !uses(h, "node1"));
    for (int i = 0; i < 60; i++) { /* an hour in which each in turn is short */
        for (uint32_t k = 0; k < NODES; k++)
            h->memory[k] = (uint32_t)i % NODES == k || (uint32_t)(i + 1) % NODES == k ? 350 : 450;
        run(h, 60 * 1000);
        assert_true(serves(h));
    }
    assert_true(h->placed <= 9);
    drop_replanning(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_demand_and_when_idle),
        cmocka_unit_test(rests_while_all_is_well),
        cmocka_unit_test(a_lost_node_is_replaced),
        cmocka_unit_test(a_node_that_restarts_loads_again),
        cmocka_unit_test(all_comes_back_after_a_restart),
        cmocka_unit_test(weights_are_fetched_first),
        cmocka_unit_test(failures_are_retried_with_patience),
        cmocka_unit_test(nowhere_to_go),
        cmocka_unit_test(a_move_changes_over_when_ready),
        cmocka_unit_test(a_move_that_fails_is_given_up),
        cmocka_unit_test(what_is_replaced_makes_room),
        cmocka_unit_test(a_drained_node_is_emptied),
        cmocka_unit_test(a_drained_node_that_is_needed),
        cmocka_unit_test(a_drain_without_memory_for_both),
        cmocka_unit_test(moves_for_gain),
        cmocka_unit_test(what_was_placed_by_hand_stays),
        cmocka_unit_test(who_is_suspected_is_lost),
        cmocka_unit_test(a_new_lineage_is_told_first),
        cmocka_unit_test(with_the_planner),
        cmocka_unit_test(faster_devices_are_moved_to),
        cmocka_unit_test(noise_moves_nothing),
        cmocka_unit_test(memory_that_others_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
