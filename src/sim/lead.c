/* What a leader does: lets nodes in and keeps their records, says who replicates, and runs the master with the
 * planner; as node/daemon_lead.c. */
#include "sim/world.h"

#include "base/mem.h"
#include "placement/problem.h"

#include <stdio.h>
#include <string.h>

enum { REPROPOSE_MS = 2000, STEADY_MS = 10000, JOINS_AT_ONCE = 64, PLAN_NODES_MAX = 2000 };

struct world_planner {
    struct world *w;
    uint32_t capacity;
    struct placement_device *devices;
    struct master_device *names;
    struct placement_link *links;
    struct placement_layer layers[LIMIT_LAYERS];
    struct placement_problem problem;
    struct members members, next;
    struct member_view views[LIMIT_CLUSTER_NODES];
    struct master_node nodes[LIMIT_CLUSTER_NODES];
    struct master_proposals proposals;
    const Cluster__NodeRecord *records[SCENARIO_NODES];
};

enum error_code planner_init(struct world *w)
{
    struct world_planner *p = w->planner = mem_new(sizeof *p);
    if (!p)
        return ERROR_NO_MEMORY;
    p->w = w;
    for (uint32_t i = 0; i < w->n; i++)
        p->capacity += (uint32_t)w->scenario->nodes[i].devices;
    if (p->capacity > LIMIT_PLACEMENT_DEVICES)
        p->capacity = LIMIT_PLACEMENT_DEVICES;
    p->devices = mem_new_array(p->capacity, sizeof *p->devices);
    p->names = mem_new_array(p->capacity, sizeof *p->names);
    p->links = mem_new_array((size_t)p->capacity * p->capacity, sizeof *p->links);
    return p->devices && p->names && p->links ? ERROR_NONE : ERROR_NO_MEMORY;
}

void planner_deinit(struct world *w)
{
    if (!w->planner)
        return;
    mem_free(w->planner->devices);
    mem_free(w->planner->names);
    mem_free(w->planner->links);
    mem_free(w->planner);
}

/* ---- the leader's memory ---- */

bool lead_open(struct world *w, struct node *node)
{
    lead_lost(node);
    node->master = mem_new(sizeof *node->master);
    node->heard_ms = mem_new_array(w->n, sizeof *node->heard_ms);
    node->steady_ms = mem_new_array(w->n, sizeof *node->steady_ms);
    node->recorded_ms = mem_new_array(w->n, sizeof *node->recorded_ms);
    node->wanted = mem_new_array(w->n, sizeof *node->wanted);
    node->used = mem_new_array(SCENARIO_INSTANCES, sizeof *node->used);
    node->leads = true;
    node->leads_since_ms = w->now_ms;
    node->members_ms = node->lead_ms = 0;
    return node->master && node->heard_ms && node->steady_ms && node->recorded_ms && node->wanted && node->used;
}

void lead_lost(struct node *node)
{
    mem_free(node->master);
    mem_free(node->heard_ms);
    mem_free(node->steady_ms);
    mem_free(node->recorded_ms);
    mem_free(node->wanted);
    mem_free(node->used);
    node->master = NULL;
    node->heard_ms = node->steady_ms = node->recorded_ms = node->used = NULL;
    node->wanted = NULL;
    node->leads = false;
}

/* ---- records ---- */

static void fill_node(const struct world *w, const struct node *about, Cluster__Node *out, Cluster__Device *devices,
                      Cluster__Device **list)
{
    static const char *const names[SCENARIO_DEVICES] = {"d0", "d1", "d2", "d3"};
    const struct scenario_node *is = &w->scenario->nodes[about->index];
    cluster__node__init(out);
    out->id = out->name = (char *)(uintptr_t)about->id;
    out->has_member = true;
    out->member = about->member;
    out->devices = list;
    for (uint32_t i = 0; i < is->devices; i++) {
        if (about->devices_gone[i])
            continue;
        Cluster__Device *device = &devices[out->n_devices];
        cluster__device__init(device);
        device->id = (char *)(uintptr_t)names[i];
        device->has_memory_bytes = true;
        device->memory_bytes = is->memory_mib << 20;
        list[out->n_devices++] = device;
    }
}

static bool is_recorded(const Cluster__Node *about, const Cluster__Node *record)
{
    bool same = about->member == record->member && about->n_devices == record->n_devices;
    for (size_t i = 0; same && i < about->n_devices; i++)
        same = strcmp(about->devices[i]->id, record->devices[i]->id) == 0;
    return same;
}

static bool record(struct world *w, struct node *node, const struct node *about)
{
    const Cluster__NodeRecord *is = w->planner->records[about->index];
    Cluster__Device devices[SCENARIO_DEVICES], *list[SCENARIO_DEVICES];
    Cluster__Node message;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    fill_node(w, about, &message, devices, list);
    name.id = (char *)(uintptr_t)about->id;
    if (!is) {
        event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
        event.node_joined = &message;
    } else if (!is->admitted) {
        event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED;
        event.node_admitted = &name;
    } else if (!is_recorded(&message, is->node)) {
        event.kind_case = CLUSTER__EVENT__KIND_NODE_UPDATED;
        event.node_updated = &message;
    } else {
        return false;
    }
    node->recorded_ms[about->index] = w->now_ms;
    log_propose(w, node, &event, UINT64_C(1) << 60 | (uint64_t)event.kind_case << 32 | about->index, false);
    return true;
}

static void record_all(struct world *w, struct node *node)
{
    const Cluster__State *root = node_state(node)->root;
    uint32_t n = 0;
    memset(w->planner->records, 0, w->n * sizeof *w->planner->records);
    for (size_t i = 0; root && i < root->n_nodes; i++)
        w->planner->records[world_node(w, root->nodes[i]->node->id)->index] = root->nodes[i];
    for (uint32_t i = 0; i < w->n && n < JOINS_AT_ONCE; i++) {
        const struct node *about = &w->nodes[i];
        const Cluster__NodeRecord *is = w->planner->records[i];
        const uint64_t wait = is && is->admitted ? REPROPOSE_MS : LEAD_MS;
        if (about->joined && net_link(w, node->index, i) &&
            (!node->recorded_ms[i] || w->now_ms - node->recorded_ms[i] >= wait))
            n += record(w, node, about);
    }
}

static void record_model(struct world *w, struct node *node, uint32_t i)
{
    const struct scenario_instance *is = &w->scenario->instances[i];
    char model_name[8], id[8];
    uint8_t manifest[32] = {(uint8_t)(i + 1)};
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    snprintf(model_name, sizeof model_name, "m%u", i);
    snprintf(id, sizeof id, "i%u", i);
    if (state_instance(node_state(node), id))
        return;
    if (!state_model(node_state(node), model_name)) {
        model.name = model_name;
        model.has_manifest = model.has_n_layers = true;
        model.manifest.len = sizeof manifest;
        model.manifest.data = manifest;
        model.n_layers = (uint32_t)is->layers;
        event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED;
        event.model_registered = &model;
    } else {
        demand.has_context_tokens = demand.has_streams = true;
        demand.context_tokens = 4096;
        demand.streams = 4;
        instance.id = id;
        instance.model = model_name;
        instance.demand = &demand;
        instance.has_idle_ms = true;
        instance.idle_ms = is->idle_ms;
        event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED;
        event.instance_desired = &instance;
    }
    log_propose(w, node, &event, UINT64_C(2) << 60 | (uint64_t)event.kind_case << 32 | i, false);
}

/* ---- who replicates ---- */

static void set_members(struct world *w, struct node *node, const struct replica_status *status)
{
    struct world_planner *p = w->planner;
    uint32_t n = 0;
    uint64_t heir;
    if (w->now_ms < node->members_ms || status->members_pending)
        return;
    node->members_ms = w->now_ms + 1000;
    const Cluster__State *root = node_state(node)->root;
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        const Cluster__Node *is = root->nodes[i]->node;
        const uint32_t k = world_node(w, is->id)->index;
        if (!root->nodes[i]->admitted || !is->member)
            continue;
        const bool self = k == node->index, alive = self || net_link(w, node->index, k);
        if (!alive)
            node->steady_ms[k] = w->now_ms;
        const uint64_t match = replica_match(node->replica, is->member);
        p->views[n++] =
            (struct member_view){.id = is->member,
                                 .alive = alive,
                                 .caught_up = self || (match && match + LIMIT_CLUSTER_BATCH >= status->last),
                                 .steady = self || (alive && w->now_ms - node->steady_ms[k] >= STEADY_MS)};
    }
    if (!n)
        return;
    replica_members(node->replica, &p->members);
    if (members_next(&p->members, p->views, n, node->member, &p->next, &heir))
        replica_change_members(node->replica, w->now_ms, &p->next, NULL);
    else if (heir)
        replica_hand_over(node->replica, w->now_ms, heir, NULL);
}

/* ---- placing ---- */

static uint64_t taken(const struct world *w, const struct state *state, const Cluster__Instance *but, const char *node,
                      const char *device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < state->root->n_instances; i++) {
        const Cluster__Instance *instance = state->root->instances[i];
        const Cluster__Placement *const own[] = {instance->current, instance->next};
        for (int k = 0; k < 2 && instance != but; k++) {
            for (size_t s = 0; own[k] && s < own[k]->n_stages; s++) {
                if (strcmp(own[k]->stages[s]->node, node) == 0 && strcmp(own[k]->stages[s]->device, device) == 0)
                    bytes +=
                        own[k]->stages[s]->n_layers * w->scenario->instances[instance_index(instance->id)].layer_mib
                        << 20;
            }
        }
    }
    return bytes;
}

static void fill_links(struct world_planner *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            const bool here = strcmp(p->names[i].node, p->names[k].node) == 0;
            p->links[(size_t)i * n + k] =
                here ? (struct placement_link){1e-5, 1e10} : (struct placement_link){3e-4, 1.1e8};
        }
    }
}

static uint32_t fill_devices(struct world_planner *p, const struct master_view *view, const Cluster__Instance *instance,
                             const bool *allowed)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < view->n_nodes; i++) {
        const Cluster__NodeRecord *record = allowed[i] ? state_node(view->state, view->nodes[i].id) : NULL;
        for (size_t k = 0; record && k < record->node->n_devices && n < p->capacity; k++) {
            const Cluster__Device *from = record->node->devices[k];
            const uint64_t used = taken(p->w, view->state, instance, record->node->id, from->id);
            struct placement_device *device = &p->devices[n];
            *device = (struct placement_device){.share = 1, .thermal_headroom = 1, .measured = true};
            snprintf(device->id, sizeof device->id, "%s", from->id);
            snprintf(device->node, sizeof device->node, "%s", record->node->id);
            device->memory_free_bytes = from->memory_bytes > used ? from->memory_bytes - used : 0;
            device->decode_bytes_per_s[0] =
                1e9 * (double)p->w->scenario->nodes[world_node(p->w, record->node->id)->index].gb_per_s;
            p->names[n++] = (struct master_device){record->node->id, from->id};
        }
    }
    return n;
}

static enum error_code make_problem(void *self, const struct master_view *view, const Cluster__Instance *instance,
                                    const bool *allowed, const struct placement_problem **problem,
                                    const struct master_device **devices, struct error *err)
{
    struct world_planner *p = self;
    const struct scenario_instance *is = &p->w->scenario->instances[instance_index(instance->id)];
    const uint32_t n = fill_devices(p, view, instance, allowed);
    if (!n)
        return error_set(err, ERROR_NOT_FOUND, "no device is left");
    fill_links(p, n);
    for (uint32_t i = 0; i < is->layers; i++) {
        p->layers[i] = (struct placement_layer){0};
        p->layers[i].bytes[0] = p->layers[i].bytes_per_token[0] = is->layer_mib << 20;
    }
    p->problem =
        (struct placement_problem){.n_devices = n,
                                   .devices = p->devices,
                                   .links = p->links,
                                   .model = {.n_types = 1,
                                             .type_names = {"q4_0"},
                                             .n_layers = (uint32_t)is->layers,
                                             .layers = p->layers,
                                             .activation_bytes_per_token = 8192,
                                             .output_bytes_per_token = 4},
                                   .demand = {.goal = PLACEMENT_LATENCY, .context_tokens = 4096, .streams = 1}};
    *problem = &p->problem;
    *devices = p->names;
    return ERROR_NONE;
}

static void propose_bytes(struct world *w, struct node *node, const struct buffer *bytes)
{
    Cluster__Event *event = NULL;
    if (event_decode((const uint8_t *)bytes->data, bytes->size, &event, NULL)) {
        w->out_of_memory = true;
        return;
    }
    char *by = event->by;
    log_propose(w, node, event, 0, false);
    event->by = by;
    event_free(event);
}

static void run_master(struct world *w, struct node *node, const struct replica_status *status)
{
    struct world_planner *p = w->planner;
    struct master_use uses[SCENARIO_INSTANCES];
    struct master_planner planner = {.problem = make_problem, .self = p, .max_nodes = PLAN_NODES_MAX};
    struct master_options options = master_options_default();
    const Cluster__State *root = node_state(node)->root;
    uint32_t n = 0, n_uses = 0, wanted = ask_wanted(node);
    options.place = master_plan;
    options.self = &planner;
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        const uint32_t k = world_node(w, root->nodes[i]->node->id)->index;
        if (!root->nodes[i]->admitted)
            continue;
        const bool self = k == node->index, linked = self || net_link(w, node->index, k);
        p->nodes[n++] = (struct master_node){root->nodes[i]->node->id, self ? w->now_ms : node->heard_ms[k]};
        wanted |= linked && !self && w->now_ms - node->heard_ms[k] < 2000 ? node->wanted[k] : 0;
    }
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const uint32_t k = instance_index(root->instances[i]->id);
        const uint64_t own = node->used_ms[k];
        uses[n_uses++] =
            (struct master_use){root->instances[i]->id, own > node->used[k] ? own : node->used[k], wanted >> k & 1};
    }
    const struct master_view view = {.state = node_state(node),
                                     .lineage = status->lineage,
                                     .now_ms = w->now_ms,
                                     .wall_ms = w->now_ms,
                                     .leads_since_ms = node->leads_since_ms,
                                     .nodes = p->nodes,
                                     .n_nodes = n,
                                     .uses = uses,
                                     .n_uses = n_uses,
                                     .self = node->id};
    w->out_of_memory |= master_step(node->master, &options, &view, &p->proposals, NULL) != ERROR_NONE;
    for (uint32_t i = 0; i < p->proposals.n; i++)
        propose_bytes(w, node, &p->proposals.events[i]);
    master_proposals_clear(&p->proposals);
}

void lead_turn(struct world *w, struct node *node)
{
    if (!node->leads || !node->replica || (node->lead_ms && w->now_ms - node->lead_ms < LEAD_MS))
        return;
    const struct replica_status status = replica_status(node->replica);
    if (!status.leads)
        return;
    node->lead_ms = w->now_ms;
    record_all(w, node);
    for (uint32_t i = 0; i < w->scenario->n_instances; i++)
        record_model(w, node, i);
    set_members(w, node, &status);
    run_master(w, node, &status);
}
