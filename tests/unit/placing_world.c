#include "placing_world.h"

#include "base/mem.h"
#include "model/model.h"
#include "sim_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct model *gemma;

int open_gemma(void **state)
{
    gemma = open_model_unwindowed("gemma3");
    assert_int_equal(model_hyperparameters(gemma)->n_layers, LAYERS);
    return 0;
}

int close_gemma(void **state)
{
    model_close(gemma);
    return 0;
}

const char *const world_ids[WORLD_NODES] = {"node0", "node1", "node2", "node3"};

void world_apply(struct placing_world *w, Cluster__Event *event)
{
    struct buffer bytes = {0};
    struct state_outcome outcome;
    struct error err = {0};
    event_encode(event, &bytes);
    assert_int_equal(
        state_apply(&w->state, ++w->index, (uint8_t *)bytes.data, bytes.size, &outcome, &err), 0);
    if (!outcome.applied)
        fail_msg("%s", outcome.reason);
    buffer_deinit(&bytes);
}

void world_node(struct placing_world *w, Cluster__Node *node)
{
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED, event.node_joined = node;
    world_apply(w, &event);
    name.id = node->id;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED, event.node_admitted = &name;
    world_apply(w, &event);
}

static const struct model *find_model(void *self, const Cluster__Model *said)
{
    const struct placing_world *w = self;
    assert_string_equal(said->name, "m");
    return w->model;
}

static void add_model(struct placing_world *w)
{
    uint8_t hash[32] = {1};
    Cluster__Model message = CLUSTER__MODEL__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    message.name = (char *)"m", message.has_manifest = true, message.manifest.len = 32,
    message.manifest.data = hash;
    message.has_n_layers = true, message.n_layers = model_hyperparameters(w->model)->n_layers;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED, event.model_registered = &message;
    world_apply(w, &event);
}

void world_open(struct placing_world *w, const struct model *of, const char *const *machines,
                uint32_t n)
{
    struct error err = {0};
    *w = (struct placing_world){
        .model = of, .n_nodes = n, .now_ms = 10000, .options = master_options_default()};
    for (uint32_t i = 0; i < n; i++) {
        Cluster__Node node = CLUSTER__NODE__INIT;
        w->gpus[i] = open_sim(machines[i]);
        node.id = node.name = (char *)(uintptr_t)world_ids[i];
        node.has_member = true, node.member = 1 + i;
        if (placing_describe(w->gpus[i], "", &node, &err))
            fail_msg("%s", err.text);
        world_node(w, &node);
        placing_describe_clear(&node);
        w->up[i] = true;
        node__now__init(&w->now[i]);
    }
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        w->seen[i] = (struct placing_seen){.node = world_ids[i]};
    add_model(w);
    w->placing.view =
        (struct placing_view){.seen = w->seen, .n_seen = n, .model = find_model, .self = w};
    w->planner = (struct master_planner){
        .problem = placing_problem, .call_in = placing_call_in, .self = &w->placing};
    w->options.place = master_plan, w->options.self = &w->planner;
}

void world_close(struct placing_world *w)
{
    placing_deinit(&w->placing);
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        placing_now_clear(&w->now[i]);
        gpu_close(w->gpus[i]);
    }
    state_deinit(&w->state);
}

void world_link(struct placing_world *w, uint32_t from, uint32_t to, uint64_t latency_ns,
                uint64_t bytes_per_s)
{
    const struct topology_link measured = {
        .class = TOPOLOGY_ETHERNET,
        .up = true,
        .latency_ns = {(double)latency_ns, true},
        .jitter_ns = {0, true},
        .loss_share = {0, true},
        .bandwidth_bytes_per_s = {(double)bytes_per_s, bytes_per_s != 0}};
    Cluster__Link link, *list = &link;
    Cluster__Links links = CLUSTER__LINKS__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    assert_true(placing_link_changed(&w->state, world_ids[from], world_ids[to], &measured, &link));
    links.n_links = 1, links.links = &list;
    event.kind_case = CLUSTER__EVENT__KIND_LINKS_MEASURED, event.links_measured = &links;
    world_apply(w, &event);
}

void world_links(struct placing_world *w, uint64_t latency_ns, uint64_t bytes_per_s)
{
    for (uint32_t i = 0; i < w->n_nodes * w->n_nodes; i++) {
        if (i / w->n_nodes != i % w->n_nodes)
            world_link(w, i / w->n_nodes, i % w->n_nodes, latency_ns, bytes_per_s);
    }
}

void world_instance(struct placing_world *w, const char *id, uint32_t context, uint32_t streams)
{
    world_instance_of(w, id, context, streams, KV_F16);
}

void world_instance_of(struct placing_world *w, const char *id, uint32_t context, uint32_t streams,
                       uint32_t kv_type)
{
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    demand.has_context_tokens = demand.has_streams = true, demand.context_tokens = context,
    demand.streams = streams;
    demand.has_kv_type = true, demand.kv_type = kv_type;
    instance.id = (char *)(uintptr_t)id, instance.model = (char *)"m", instance.demand = &demand;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED, event.instance_desired = &instance;
    world_apply(w, &event);
}

void world_hear(struct placing_world *w, uint32_t node)
{
    struct error err = {0};
    placing_now_clear(&w->now[node]);
    if (placing_now(w->gpus[node], NULL, NULL, 0, &w->now[node], &err))
        fail_msg("%s", err.text);
}

void world_hold(struct placing_world *w, uint32_t node, const char *instance, uint64_t epoch,
                uint32_t stage)
{
    const struct worker_stage held = {
        .instance = instance, .model = "m", .epoch = epoch, .stage = stage, .state = WORKER_READY};
    struct error err = {0};
    placing_now_clear(&w->now[node]);
    if (placing_now(w->gpus[node], NULL, &held, instance ? 1 : 0, &w->now[node], &err))
        fail_msg("%s", err.text);
}

const Cluster__Instance *world_find(const struct placing_world *w, const char *id)
{
    const Cluster__Instance *instance = state_instance(&w->state, id);
    assert_non_null(instance);
    return instance;
}

void world_report(struct placing_world *w, const char *id, uint64_t epoch,
                  Cluster__StageState state)
{
    const Cluster__Instance *instance = world_find(w, id);
    const Cluster__Placement *placement =
        instance->next && instance->next->epoch == epoch ? instance->next : instance->current;
    assert_true(placement && placement->epoch == epoch);
    for (uint32_t i = 0, n = (uint32_t)placement->n_stages; i < n; i++) {
        Cluster__StageReport report = CLUSTER__STAGE_REPORT__INIT;
        Cluster__Event event = CLUSTER__EVENT__INIT;
        char node[64];
        snprintf(node, sizeof node, "%s", placement->stages[i]->node);
        report.instance = (char *)(uintptr_t)id, report.node = node;
        report.has_epoch = report.has_stage = report.has_state = true;
        report.epoch = epoch, report.stage = i, report.state = state;
        event.kind_case = CLUSTER__EVENT__KIND_STAGE_REPORTED, event.stage_reported = &report;
        world_apply(w, &event);
    }
}

void world_step(struct placing_world *w, const char *wanted)
{
    struct master_node nodes[WORLD_NODES];
    const struct master_use use = {wanted, w->now_ms, true};
    struct master_proposals proposals;
    struct error err = {0};
    w->now_ms += 40000; /* no patience is left of any attempt before */
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        nodes[i] = (struct master_node){world_ids[i], w->up[i] ? w->now_ms : 1};
        w->seen[i] =
            (struct placing_seen){world_ids[i], w->up[i], w->now[i].n_devices ? &w->now[i] : NULL};
    }
    const struct master_view view = {.state = &w->state,
                                     .now_ms = w->now_ms,
                                     .leads_since_ms = 1,
                                     .nodes = nodes,
                                     .n_nodes = w->n_nodes,
                                     .uses = &use,
                                     .n_uses = 1,
                                     .self = world_ids[0]};
    for (int turn = 0; turn < 2; turn++) { /* wanted, then placed */
        assert_int_equal(master_step(&w->master, &w->options, &view, &proposals, &err), ERROR_NONE);
        for (uint32_t i = 0; i < proposals.n; i++) {
            struct state_outcome outcome;
            assert_int_equal(state_apply(&w->state, ++w->index, (uint8_t *)proposals.events[i].data,
                                         proposals.events[i].size, &outcome, &err),
                             ERROR_NONE);
            if (!outcome.applied)
                fail_msg("%s", outcome.reason);
        }
        master_proposals_clear(&proposals);
    }
}

const char *world_stages(const struct placing_world *w, const char *id)
{
    static char text[512];
    const Cluster__Instance *instance = world_find(w, id);
    const Cluster__Placement *placement = instance->next ? instance->next : instance->current;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; placement && i < placement->n_stages; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s/%s %u", i ? ", " : "",
                                 placement->stages[i]->node, placement->stages[i]->device,
                                 placement->stages[i]->n_layers);
    return text;
}
